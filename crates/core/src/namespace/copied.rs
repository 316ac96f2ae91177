//! Extended attributes that go along with a copy of an inode.

use crate::namespace::xattrs::read_value;
use braid_contract::{Attr, Context, Errno, FileKind, NativeFd, Result, SetTime, Shown, XattrMode};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Names that the id attribute has.
pub const ID_ATTRS: [&str; 2] = ["trusted.braid.id", "user.braid.id"];
/// Names that the pin attribute has.
const PIN_ATTRS: [&str; 2] = ["trusted.braid.pin", "user.braid.pin"];

/// Gives `new` the extended attributes of `old`, and no others, but for
/// Braid's own.
pub fn copy_xattrs(old: &dyn NativeFd, new: &dyn NativeFd) -> Result<()> {
    let (wanted, found) = (xattrs(old)?, xattrs(new)?);
    for (name, value) in &wanted {
        if found.get(name) != Some(value) {
            let set = new.set_xattr(name, value, XattrMode::Set);
            set.with_context(|| format!("setting its extended attribute {}", name.shown()))?;
        }
    }
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        new.remove_xattr(name)?;
    }
    Ok(())
}

/// All extended attributes but Braid's own, which differ for a copy.
fn xattrs(fd: &dyn NativeFd) -> Result<BTreeMap<OsString, Vec<u8>>> {
    let names = match read_value(|buf| fd.list_xattr(buf)) {
        Err(error) if error.errno() == Errno::EOPNOTSUPP => Vec::new(),
        result => result?,
    };
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        if ID_ATTRS.iter().chain(&PIN_ATTRS).any(|own| name == *own) {
            continue;
        }
        match read_value(|buf| fd.get_xattr(name, buf)) {
            Ok(value) => _ = found.insert(name.to_owned(), value),
            // It was removed meanwhile, or the kernel only makes it up.
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Owner, extended attributes, mode and times.
pub fn give_attributes(old: &dyn NativeFd, attr: &Attr, new: &dyn NativeFd) -> Result<()> {
    // A change of the owner clears set-id bits and capabilities.
    new.set_owner(Some(attr.uid), Some(attr.gid))?;
    copy_xattrs(old, new)?;
    if attr.kind != FileKind::Symlink {
        new.set_mode(u32::from(attr.mode) & 0o7777)?;
    }
    new.set_times(Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)))
}
