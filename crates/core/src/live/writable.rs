//! The home file, for changes of its contents. The kernel takes capabilities away
//! with each of them; whether a user's change does is not for the kernel to say,
//! which sees only the daemon. `clear_set_id` says it, and otherwise they stay.

use super::set_id::SetIdCheck;
use braid_contract::{Errno, Error, Fd, NativeFd, XattrMode};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::ffi::OsStr;
use std::ops::Deref;

/// The extended attribute that has a program's capabilities.
pub(crate) const CAPABILITY: &str = "security.capability";

/// Bytes that one takes at most.
const CAPABILITY_MAX: usize = 64;

/// A home file that is open for writing, for one change. Its capabilities are put
/// back when this is dropped; a crash in between loses them.
pub(crate) struct Writable<'a> {
    fd: &'a Fd,
    rights: Rights<'a>,
}

/// What keeps others from changing capabilities, or from reading them while they are
/// gone.
enum Rights<'a> {
    Nothing { _stay: RwLockReadGuard<'a, ()> },
    PutBack { capability: Capability, _change: RwLockWriteGuard<'a, ()> },
}

impl<'a> Writable<'a> {
    pub(super) fn new(fd: &'a Fd, set_id: &'a SetIdCheck) -> Self {
        let stay = set_id.rights_stay();
        let Some(as_of) = set_id.capability_due() else {
            return Self { fd, rights: Rights::Nothing { _stay: stay } };
        };
        drop(stay);
        let change = set_id.rights_change();
        let rights = match Capability::of(&**fd) {
            Some(capability) => Rights::PutBack { capability, _change: change },
            None => {
                set_id.no_capability(as_of);
                Rights::Nothing { _stay: RwLockWriteGuard::downgrade(change) }
            }
        };
        Self { fd, rights }
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
        if let Rights::PutBack { capability, .. } = &self.rights {
            capability.put_back(&**self.fd);
        }
    }
}

/// Changes the contents of the home file behind `fd`, which is not in use.
pub fn keeping_capability<T>(fd: &dyn NativeFd, change: impl FnOnce() -> T) -> T {
    let capability = Capability::of(fd);
    let changed = change();
    capability.inspect(|capability| capability.put_back(fd));
    changed
}

/// A file's capabilities, as they are stored.
struct Capability(Vec<u8>);

impl Capability {
    /// Those of the inode behind `fd`.
    fn of(fd: &dyn NativeFd) -> Option<Self> {
        let mut value = vec![0; CAPABILITY_MAX];
        match fd.get_xattr(OsStr::new(CAPABILITY), &mut value) {
            Ok(len) => {
                value.truncate(len);
                Some(Self(value))
            }
            Err(error) => {
                if !is_without(&error) {
                    tracing::warn!(%error, "can't read a file's capabilities: it may lose them");
                }
                None
            }
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
