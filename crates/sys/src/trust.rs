//! Whether another user could have determined the contents of a file.

use rustix::process::geteuid;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The bits of a mode with which the group or everyone may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, users can't replace the files of others.
const STICKY: u32 = 0o1000;

/// The reason why another user, who is not root, could have determined what a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untrusted {
    /// It belongs to this user.
    Owner(u32),
    /// Others than its owner may write it.
    Writable,
}

/// As the end of a sentence about the file.
impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "belongs to user {uid}"),
            Self::Writable => f.write_str("may be written by other users"),
        }
    }
}

impl std::error::Error for Untrusted {}

/// Whether a file belongs to root, or to the user whom this process acts for. Of a symbolic link,
/// that is all that counts. To rely on the contents, ask with the metadata of the descriptor from
/// which they are read: another file may have the path by then.
///
/// # Errors
/// The reason why not.
pub fn check_owner(file: &Metadata) -> Result<(), Untrusted> {
    let owner = file.uid();
    if [0, geteuid().as_raw()].contains(&owner) { Ok(()) } else { Err(Untrusted::Owner(owner)) }
}

/// Whether no one else than root and the user whom this process acts for may write a file, or
/// replace the files in a directory; as [`check_owner`], and by its mode.
///
/// # Errors
/// The reason why not.
pub fn check_trusted(file: &Metadata) -> Result<(), Untrusted> {
    check_owner(file)?;
    let is_sticky = file.is_dir() && file.mode() & STICKY != 0;
    if file.mode() & WRITABLE_BY_OTHERS != 0 && !is_sticky { Err(Untrusted::Writable) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let file = File::open(&path).unwrap();
        let checked = |file: &File, mode| {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            check_trusted(&file.metadata().unwrap())
        };
        for mode in [0o600, 0o644, 0o755] {
            assert_eq!(checked(&file, mode), Ok(()), "{mode:o}");
        }
        for mode in [0o620, 0o602, 0o666, 0o1622] {
            assert_eq!(checked(&file, mode), Err(Untrusted::Writable), "{mode:o}");
        }
        let dir = File::open(dir.path()).unwrap();
        assert_eq!(checked(&dir, 0o777), Err(Untrusted::Writable));
        assert_eq!(checked(&dir, 0o1777), Ok(()));
    }

    #[test]
    fn what_belongs_to_others_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = || file.as_file().metadata().unwrap();
        assert_eq!((check_owner(&metadata()), check_trusted(&metadata())), (Ok(()), Ok(())));
        if geteuid().is_root() {
            chown(file.path(), Some(1234), None).unwrap();
            let refused = Err(Untrusted::Owner(1234));
            assert_eq!((check_owner(&metadata()), check_trusted(&metadata())), (refused, refused));
        }
        assert_eq!(Untrusted::Owner(1234).to_string(), "belongs to user 1234");
    }
}
