//! Files of other volumes in the tree over which a new volume is created: their
//! data is on tiers that this volume does not have, or in an index that is
//! gone. They answer `EUCLEAN`, and `braid create` names them.

use braid_contract::{Errno, NativeFd, Result, Shown};
use braid_format::{IdAttr, Proof};
use braid_home::Home;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

const NAMES: [&str; 2] = ["trusted.braid.id", "user.braid.id"];

/// The files of other volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Strays {
    /// Number of files, by the first half of their volume's id in hexadecimal;
    /// `None` for attributes of version 1, which lack it.
    pub files: BTreeMap<Option<String>, u64>,
    /// One of them.
    pub example: String,
}

impl fmt::Display for Strays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.files.values().sum();
        write!(f, "the new volume's tree has {total} files that are parts of another volume (")?;
        for (at, (volume, count)) in self.files.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match volume {
                Some(volume) => write!(f, "{comma}{count} of volume {volume}…")?,
                None => write!(f, "{comma}{count} of one of an earlier format")?,
            }
        }
        write!(
            f,
            "), such as {}: what they hold is not all here, so they are listed and can't be used (EUCLEAN); \
             to have them back, unmount, put that volume's .braid back, and mount it with its tiers; \
             braid fsck names them all",
            self.example
        )
    }
}

/// Searches the tree of a volume that was just created; `None` if there are no
/// such files.
pub(crate) fn look_for_strays(home: &Home) -> Result<Option<Strays>> {
    let mut strays = Strays::default();
    home.walk(&mut |path, fd, _| {
        if let Some(volume) = stray(home, &**fd)? {
            *strays.files.entry(volume).or_default() += 1;
            if strays.example.is_empty() {
                strays.example = path.shown().to_string();
            }
        }
        Ok(())
    })?;
    Ok((!strays.files.is_empty()).then_some(strays))
}

/// The volume of a file's id attribute, which can't be this one's; `None`
/// without the attribute.
fn stray(home: &Home, fd: &dyn NativeFd) -> Result<Option<Option<String>>> {
    for name in NAMES {
        let mut value = [0; 2 * IdAttr::LEN_MAX];
        let len = match fd.get_xattr(OsStr::new(name), &mut value) {
            Ok(len) => len,
            Err(error)
                if matches!(
                    error.errno(),
                    Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EACCES | Errno::EPERM
                ) =>
            {
                continue;
            }
            Err(error) if error.errno() == Errno::ERANGE => 0,
            Err(error) => return Err(error),
        };
        return Ok(Some(match IdAttr::decode(&value[..len], home.seal()) {
            Ok((_, Proof::OtherVolume(id))) => Some(id.iter().map(|byte| format!("{byte:02x}")).collect()),
            _ => None,
        }));
    }
    Ok(None)
}
