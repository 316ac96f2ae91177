//! The id attribute of an inode, and whether it can be believed.

use crate::target::CheckTarget;
use braid_contract::{Errno, Error, Fd, NativeFd};
use braid_format::{FormatError, IdAttr, Proof};
use braid_home::Identity;
use std::ffi::OsStr;

/// The id attribute of an inode.
pub(crate) enum AttrState {
    /// It has none: it is a plain file.
    None,
    /// Its own.
    Own(IdAttr),
    /// Copied from another inode: ignored.
    Copied(IdAttr),
    Damaged(FormatError),
    /// Valid, but not written by Braid on this volume, for this reason.
    Foreign(String),
    /// It can't be read.
    Failed(Error),
}

impl AttrState {
    /// Reads an inode's id attribute, without changing the inode for access.
    pub(crate) fn read(target: &CheckTarget<'_>, fd: &dyn NativeFd, identity: &Identity) -> Self {
        let mut value = [0; 2 * IdAttr::LEN_MAX];
        let len = match fd.get_xattr(OsStr::new(target.attr_name()), &mut value) {
            Ok(len) => len,
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => return Self::None,
            Err(error) if error.errno() == Errno::ERANGE => 0,
            Err(error) => return Self::Failed(error.context("reading its id attribute")),
        };
        match IdAttr::decode(&value[..len], target.home.seal()) {
            Ok((attr, _)) if !identity.is(attr.ino, attr.btime_ns) => Self::Copied(attr),
            Ok((attr, proof)) => match proof.check() {
                Ok(()) => Self::Own(attr),
                Err(why) => Self::Foreign(why),
            },
            Err(error) => Self::Damaged(error),
        }
    }
}

/// Whether the owner of a file may have written its attribute: it is of version
/// 1, in `user.`, on a volume that has a key.
pub(crate) fn is_unproven(target: &CheckTarget<'_>, fd: &Fd) -> bool {
    let mut value = [0; 2 * IdAttr::LEN_MAX];
    let len = fd.get_xattr(OsStr::new(target.attr_name()), &mut value).unwrap_or(0);
    let attr = IdAttr::decode(&value[..len], target.home.seal());
    target.user_xattr && target.home.seal().secret.is_some() && !matches!(attr, Ok((_, Proof::Sealed)))
}
