//! `libbraid`, for applications in C, and through `python/braid.py` in Python: a directory of
//! a mount as keys and values, by a session with its runtime. Applications in Rust use the
//! crate `braid-runtime`.
#![forbid(unsafe_code)]

use braid_contract::{Caller, Errno, Error, KeyValue, PutOptions, PutWhen, ScanPage, ScanRange, Shown};
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

struct Values(Arc<dyn KeyValue>);

fn failure(error: &Error) -> Failure {
    Failure { errno: error.errno().0, why: error.to_string() }
}

impl Values {
    /// A page of a scan, and whether it has values.
    fn page(&self, range: &ScanRange, values: bool) -> braid_contract::Result<(ScanPage, bool)> {
        match self.0.scan(&caller(), range, PAGE, values) {
            // A value may be too long for a page, though not for an answer of its own; and if it is
            // too long for that too, the keys before it can still be read.
            Err(error) if values && error.errno() == Errno::EFBIG => {
                Ok((self.0.scan(&caller(), range, PAGE, false)?, false))
            }
            page => Ok((page?, values)),
        }
    }
}

/// A placeholder: the runtime knows the caller.
fn caller() -> Caller {
    Caller::root()
}

impl DirectoryValues for Values {
    fn open(dir: &Path) -> Result<Self, Failure> {
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
        session.values(root).map(Self).map_err(|error| failure(&error))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.0.get(&caller(), key).map_err(|error| failure(&error))
    }

    fn len(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        self.0.len(&caller(), key).map_err(|error| failure(&error))
    }

    fn put(&self, key: &[u8], value: &[u8], when: u32, mode: u32) -> Result<bool, Failure> {
        let when = match when {
            0 => PutWhen::Always,
            1 => PutWhen::Absent,
            2 => PutWhen::Present,
            _ => return Err(Failure { errno: Errno::EINVAL.0, why: format!("'when' is {when}") }),
        };
        let options = PutOptions { when, mode: (mode & 0o777) as u16 };
        self.0.put(&caller(), key, value, options).map_err(|error| failure(&error))
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Failure> {
        self.0.delete(&caller(), key).map_err(|error| failure(&error))
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
            let (page, has_values) = self.page(&range, values).map_err(|error| failure(&error))?;
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
        self.0.sync().map_err(|error| failure(&error))
    }
}

braid_sys::export_values!(Values);
