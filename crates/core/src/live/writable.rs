//! The home file, for changes of its contents. The kernel takes capabilities away
//! with each of them; whether a user's change does is not for the kernel to say,
//! which sees only the daemon. `clear_set_id` says it, and otherwise they stay.

use super::set_id::SetIdCheck;
use braid_contract::{Errno, Error, Fd, NativeFd, Result, XattrMode};
use parking_lot::ReentrantMutexGuard;
use std::ffi::OsStr;
use std::ops::Deref;

/// The extended attribute that has a program's capabilities.
pub(crate) const CAPABILITY: &str = "security.capability";

/// Bytes that one takes at most.
const CAPABILITY_MAX: usize = 64;

/// A home file that is open for writing. Its capabilities are put back when this
/// is dropped. A crash in between loses them.
pub(crate) struct Writable<'a> {
    fd: &'a Fd,
    kept: Option<Kept<'a>>,
}

/// The capabilities, and what keeps others from changing them.
type Kept<'a> = (Capability, ReentrantMutexGuard<'a, ()>);

impl<'a> Writable<'a> {
    pub(super) fn new(fd: &'a Fd, set_id: &'a SetIdCheck) -> Self {
        Self { fd, kept: Self::keep(fd, set_id) }
    }

    fn keep(fd: &Fd, set_id: &'a SetIdCheck) -> Option<Kept<'a>> {
        let as_of = set_id.capability_due()?;
        let alone = set_id.alone();
        match Capability::of(&**fd) {
            Ok(Some(capability)) => return Some((capability, alone)),
            Ok(None) => set_id.no_capability(as_of),
            Err(error) => tracing::warn!(%error, "can't see whether a file has capabilities"),
        }
        None
    }
}

impl Deref for Writable<'_> {
    type Target = Fd;

    fn deref(&self) -> &Fd {
        self.fd
    }
}

impl Drop for Writable<'_> {
    fn drop(&mut self) {
        if let Some((capability, _alone)) = &self.kept {
            capability.put_back(&**self.fd);
        }
    }
}

/// Changes the contents of the home file behind `fd`, which is not in use.
pub(crate) fn keeping_capability<T>(fd: &dyn NativeFd, change: impl FnOnce() -> T) -> Result<T> {
    let capability = Capability::of(fd)?;
    let changed = change();
    if let Some(capability) = capability {
        capability.put_back(fd);
    }
    Ok(changed)
}

/// A file's capabilities, as they are stored.
struct Capability(Vec<u8>);

impl Capability {
    /// Those of the inode behind `fd`.
    fn of(fd: &dyn NativeFd) -> Result<Option<Self>> {
        let mut value = vec![0; CAPABILITY_MAX];
        match fd.get_xattr(OsStr::new(CAPABILITY), &mut value) {
            Ok(len) => {
                value.truncate(len);
                Ok(Some(Self(value)))
            }
            Err(error) if is_without(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives them to the inode again, after a change that took them away.
    fn put_back(&self, fd: &dyn NativeFd) {
        if let Err(error) = fd.set_xattr(OsStr::new(CAPABILITY), &self.0, XattrMode::Set) {
            tracing::warn!(%error, "a file lost its capabilities as its home file was changed");
        }
    }
}

/// Whether an error says that there is no capability that could be removed.
pub(crate) fn is_without(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EPERM)
}
