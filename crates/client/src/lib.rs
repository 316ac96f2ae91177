//! `libbraid`, for applications in C, and through `python/braid.py` in Python: keys and values
//! of a directory of a mount, by a session with its runtime, or of a stack that the application
//! carries out itself. Applications in Rust use the crates `braid-runtime` and `braid-daemon`.
#![forbid(unsafe_code)]

use braid_contract::{
    Caller, Errno, Error, InodeId, KeyValue, PutOptions, PutWhen, ScanPage, ScanRange, Shown,
};
use braid_daemon::Refusal;
use braid_daemon::direct::{DirectStack, OwnedByProcess};
use braid_ipc::{mounts, socket};
use braid_runtime::{DATA_MAX, Geometry, Options, Session};
use braid_sys::module::Failure;
use braid_sys::values::DirectoryValues;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Keys requested at a time.
const PAGE: usize = 1024;

/// Keys and values that a process has open.
struct Values(OwnedByProcess<Open>);

struct Open {
    values: Arc<dyn KeyValue>,
    caller: Caller,
    /// Closed when the values have gone.
    _stack: Option<DirectStack>,
}

fn failure(error: &Error) -> Failure {
    Failure { errno: error.errno().0, why: error.to_string() }
}

impl Values {
    fn new(values: Arc<dyn KeyValue>, caller: Caller, stack: Option<DirectStack>) -> Self {
        Self(OwnedByProcess::new(Open { values, caller, _stack: stack }))
    }

    /// The root of a stack that this process carries out.
    fn direct(stack: DirectStack) -> Result<Self, Failure> {
        let values = stack.values(InodeId::ROOT).map_err(|error| failure(&error))?;
        let caller = stack.caller().clone();
        Ok(Self::new(values, caller, Some(stack)))
    }

    /// A directory of a mount.
    fn of_session(values: Arc<dyn KeyValue>) -> Self {
        // The runtime knows the caller.
        Self::new(values, Caller::root(), None)
    }

    fn open(&self) -> Result<&Open, Failure> {
        self.0.get().map_err(|error| failure(&error))
    }
}

impl Open {
    /// A page of a scan, and whether it has values.
    fn page(&self, range: &ScanRange, values: bool) -> braid_contract::Result<(ScanPage, bool)> {
        match self.values.scan(&self.caller, range, PAGE, values) {
            // A value may be too long for a page, though not for an answer of its own; and if it is
            // too long for that too, the keys before it can still be read.
            Err(error) if values && error.errno() == Errno::EFBIG => {
                Ok((self.values.scan(&self.caller, range, PAGE, false)?, false))
            }
            page => Ok((page?, values)),
        }
    }
}

impl DirectoryValues for Values {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let refused = |refusal: Refusal| Failure {
            errno: refusal.errno.unwrap_or(Errno::EINVAL).0,
            why: refusal.to_string(),
        };
        if let Some(stack) = DirectStack::find(dir).map_err(refused)? {
            return Self::direct(stack);
        }
        let about = |error: std::io::Error| {
            let why = format!("{}: {error}", dir.shown());
            let errno = match error.kind() {
                ErrorKind::NotFound => Errno::ENOENT,
                ErrorKind::PermissionDenied => Errno::EACCES,
                _ => Error::from(error).errno(),
            };
            Failure { errno: errno.0, why }
        };
        let dev = std::fs::metadata(dir).map_err(about)?.dev();
        let table = mounts::list().map_err(about)?;
        let mount = table.iter().rev().find(|mount| mount.is_braid() && mount.dev == dev);
        let mount = mount.ok_or_else(|| Failure {
            errno: Errno::EXDEV.0,
            why: format!("{}: it is not on a Braid file system", dir.shown()),
        })?;
        let socket = socket::of_sessions(mount).map_err(about)?;
        // Values of all sizes must fit, and a user's sessions have little memory.
        let geometry = Geometry { queues: 2, depth: 2, data: DATA_MAX };
        let options = Options { geometry, ..Options::default() };
        let (session, root) = Session::begin(&socket, dir, options).map_err(|error| failure(&error))?;
        session.values(root).map(Self::of_session).map_err(|error| failure(&error))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Open { values, caller, .. } = self.open()?;
        values.get(caller, key).map_err(|error| failure(&error))
    }

    fn len(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let Open { values, caller, .. } = self.open()?;
        values.len(caller, key).map_err(|error| failure(&error))
    }

    fn put(&self, key: &[u8], value: &[u8], when: u32, mode: u32) -> Result<bool, Failure> {
        let when = match when {
            0 => PutWhen::Always,
            1 => PutWhen::Absent,
            2 => PutWhen::Present,
            _ => return Err(Failure { errno: Errno::EINVAL.0, why: format!("'when' is {when}") }),
        };
        let options = PutOptions { when, mode: (mode & 0o777) as u16 };
        let Open { values, caller, .. } = self.open()?;
        values.put(caller, key, value, options).map_err(|error| failure(&error))
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Failure> {
        let Open { values, caller, .. } = self.open()?;
        values.delete(caller, key).map_err(|error| failure(&error))
    }

    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        values: bool,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut range = ScanRange { prefix: prefix.to_vec(), ..ScanRange::default() };
        range.after = after.map(<[u8]>::to_vec);
        loop {
            let (page, has_values) = self.open()?.page(&range, values).map_err(|error| failure(&error))?;
            for (key, value) in page.entries {
                let value =
                    if values && !has_values { self.get(&key)? } else { Some(value.unwrap_or_default()) };
                // A key removed meanwhile is left out.
                let Some(value) = value else { continue };
                if !each(&key, &value) {
                    return Ok(());
                }
            }
            range.after = page.next;
            if range.after.is_none() {
                return Ok(());
            }
        }
    }

    fn sync(&self) -> Result<(), Failure> {
        self.open()?.values.sync().map_err(|error| failure(&error))
    }
}

braid_sys::export_values!(Values);
