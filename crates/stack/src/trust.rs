//! Who may have put a file there.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The largest library, in bytes: it is copied to memory.
const SIZE_MAX: u64 = 256 << 20;

/// A file with code.
pub(crate) struct Found {
    pub(crate) file: File,
    /// Its user and group.
    pub(crate) owner: (u32, u32),
    /// Why its code must not have the rights of this process: another user could have put
    /// it there, who owns it or may write it, or a directory on the way.
    pub(crate) distrust: Option<String>,
}

/// Opens a file with code.
///
/// # Errors
/// If it can't be opened.
pub(crate) fn find(path: &Path) -> Result<Found, String> {
    let failed = |error: io::Error| error.to_string();
    // A pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    if metadata.len() > SIZE_MAX {
        return Err(format!("it is longer than {} MiB", SIZE_MAX >> 20));
    }
    let real = fs::canonicalize(path).map_err(failed)?;
    let mut distrust = check(&metadata, "it").err();
    for dir in real.ancestors().skip(1) {
        let metadata = fs::metadata(dir).map_err(failed)?;
        let of_dir = || check(&metadata, &format!("the directory {}", dir.to_string_lossy())).err();
        distrust = distrust.or_else(of_dir);
    }
    Ok(Found { file, owner: (metadata.uid(), metadata.gid()), distrust })
}

fn check(metadata: &Metadata, what: &str) -> Result<(), String> {
    let user = geteuid().as_raw();
    if ![0, user].contains(&metadata.uid()) {
        return Err(format!("{what} belongs to user {}", metadata.uid()));
    }
    // In a sticky directory, others can't replace it.
    let (writable, sticky) =
        (metadata.mode() & 0o022 != 0, metadata.is_dir() && metadata.mode() & 0o1000 != 0);
    if writable && !sticky {
        return Err(format!("{what} may be written by other users"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_others_could_have_put_there_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (below, path) = (dir.path().join("below"), dir.path().join("below/x.so"));
        fs::create_dir(&below).unwrap();
        fs::write(&path, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let why = || find(&path).unwrap().distrust.unwrap_or_default();
        mode(dir.path(), 0o755);
        mode(&path, 0o644);
        mode(&below, 0o755);
        assert_eq!(why(), "");
        mode(&path, 0o664);
        assert_eq!(why(), "it may be written by other users");
        mode(&path, 0o644);
        mode(&below, 0o777);
        assert!(why().starts_with("the directory "), "{}", why());
        mode(&below, 0o1777);
        assert_eq!(why(), "", "as in /tmp, others can't replace it");
        mode(&below, 0o755);
        if geteuid().is_root() {
            chown(&path, Some(1234), None).unwrap();
            assert_eq!(why(), "it belongs to user 1234");
            assert_eq!(find(&path).unwrap().owner, (1234, 0));
        }
        assert!(find(&below).is_err());
        let pipe = dir.path().join("pipe.so");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(find(&pipe).err().unwrap(), "it is not a regular file");
        let long = dir.path().join("long.so");
        File::create(&long).unwrap().set_len(SIZE_MAX + 1).unwrap();
        assert_eq!(find(&long).err().unwrap(), "it is longer than 256 MiB");
    }
}
