//! Checks that only the daemon can write to a tier's directory: the contents of
//! `.braid` are trusted, so no other user may be able to write there.

use braid_contract::Shown;
use rustix::process::geteuid;
use std::fs::{Metadata, symlink_metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const STICKY: u32 = 0o1000;

/// A problem of a directory, and advice.
pub(crate) type Doubt = (String, String);

/// Checks the directory of a tier, or of a future one. Home's own mode is that
/// of the mount's root, and up to its users.
pub(crate) fn check(dir: &Path, home: bool) -> Result<(), Doubt> {
    let Ok(root) = symlink_metadata(dir) else { return Ok(()) };
    let shown = dir.shown();
    if root.mode() & 0o002 != 0 && root.mode() & STICKY == 0 {
        if !home {
            let found = format!(
                "{shown}: every user can write to it, and put another .braid in the place of its own"
            );
            return Err((found, format!("take that away: chmod o-w {shown}")));
        }
        tracing::warn!(
            dir = %shown,
            "every user who can reach the home directory can take .braid away natively; give it the sticky bit"
        );
    }
    match symlink_metadata(dir.join(".braid")) {
        Ok(braid) => check_braid(dir, &braid),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // The next open reports that better.
        Err(_) => Ok(()),
    }
}

fn check_braid(dir: &Path, braid: &Metadata) -> Result<(), Doubt> {
    let shown = dir.join(".braid");
    let shown = shown.shown();
    if !braid.is_dir() {
        let found = format!("{shown} is not a directory");
        return Err((found, "look at what put it there; Braid never makes it anything else".into()));
    }
    if braid.mode() & 0o077 != 0 {
        let found =
            format!("{shown} has mode {:04o}: others than its owner can get at it", braid.mode() & 0o7777);
        let advice = format!("look at who may have changed what is in it, then: chmod 700 {shown}");
        return Err((found, advice));
    }
    let (owner, me) = (braid.uid(), geteuid().as_raw());
    if owner == me {
        return Ok(());
    }
    if me != 0 {
        let found = format!("{shown} belongs to user {owner}");
        return Err((found, "mount it as that user, or as root".into()));
    }
    tracing::warn!(
        dir = %shown, owner,
        "this user can read and change all that is in it: everybody's data on the tier, and the volume's key"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (tier, braid) = (dir.path().join("tier"), dir.path().join("tier/.braid"));
        fs::create_dir(&tier).unwrap();
        chmod(&tier, 0o755);
        check(&tier, false).unwrap();
        fs::create_dir(&braid).unwrap();
        for (mode, good) in [(0o700, true), (0o770, false), (0o701, false), (0o755, false), (0o702, false)] {
            chmod(&braid, mode);
            assert_eq!(check(&tier, false).is_ok(), good, "{mode:o}");
            assert_eq!(check(&tier, true).is_ok(), good, "{mode:o}");
        }
        chmod(&braid, 0o700);
        for (mode, good) in [(0o700, true), (0o777, false), (0o1777, true), (0o775, true)] {
            chmod(&tier, mode);
            assert_eq!(check(&tier, false).is_ok(), good, "{mode:o}");
            assert!(check(&tier, true).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_what_is_braids_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), dir.path().join(".braid")).unwrap();
        let (found, _) = check(dir.path(), true).unwrap_err();
        assert!(found.ends_with("/.braid is not a directory"), "{found}");
    }
}
