//! Who may have put a file there.

use rustix::process::geteuid;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a file whose code is to run with the rights of this process.
///
/// # Errors
/// If it can't be opened, or another user could have put it there: who owns it or may
/// write it, or a directory on the way.
pub(crate) fn open(path: &Path) -> Result<File, String> {
    let failed = |error: io::Error| error.to_string();
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    let real = fs::canonicalize(path).map_err(failed)?;
    check(&metadata, "it")?;
    for dir in real.ancestors().skip(1) {
        check(&fs::metadata(dir).map_err(failed)?, &format!("the directory {}", dir.to_string_lossy()))?;
    }
    Ok(file)
}

fn check(metadata: &Metadata, what: &str) -> Result<(), String> {
    let user = geteuid().as_raw();
    if ![0, user].contains(&metadata.uid()) {
        return Err(format!(
            "{what} belongs to user {}, whose code would run with other rights",
            metadata.uid()
        ));
    }
    // In a sticky directory, others can't replace it.
    let (writable, sticky) =
        (metadata.mode() & 0o022 != 0, metadata.is_dir() && metadata.mode() & 0o1000 != 0);
    if writable && !sticky {
        return Err(format!("{what} may be written by other users: chmod go-w"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_others_could_have_put_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (below, path) = (dir.path().join("below"), dir.path().join("below/x.so"));
        fs::create_dir(&below).unwrap();
        fs::write(&path, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let why = || open(&path).unwrap_err();
        mode(&path, 0o644);
        mode(&below, 0o755);
        assert!(open(&path).is_ok());
        mode(&path, 0o664);
        assert_eq!(why(), "it may be written by other users: chmod go-w");
        mode(&path, 0o644);
        mode(&below, 0o777);
        assert!(why().starts_with("the directory "), "{}", why());
        mode(&below, 0o1777);
        assert!(open(&path).is_ok(), "as in /tmp, others can't replace it");
        mode(&below, 0o755);
        if geteuid().is_root() {
            chown(&path, Some(1234), None).unwrap();
            assert!(why().starts_with("it belongs to user 1234"), "{}", why());
        }
        assert!(open(&below).is_err());
    }
}
