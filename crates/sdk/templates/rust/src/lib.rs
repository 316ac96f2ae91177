//! Counts how often files are opened. It tells by an extended attribute of the root:
//! `getfattr -n user.opens MOUNT`. What was counted goes on in the next version,
//! and after a crash of the process.
//!
//! ```yaml
//! stack:
//!   opens:
//!     only: writing         # all, if it is left out
//!     volume: { tiers: { a: { dir: /mnt/a } } }
//! ```

use braid_sdk::contract::{
    Caller, Entry, Errno, Error, FileSystem, InodeId, Layer, OpenRequest, Opened, Result,
};
use braid_sdk::{PluginModule, State};
use serde::Deserialize;
use std::ffi::{CStr, OsStr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of the state's format.
const STATE: u32 = 1;

/// The module, on its child.
pub struct Opens {
    child: Arc<dyn FileSystem>,
    settings: Settings,
    count: AtomicU64,
}

/// What a stack file may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    only: Option<Only>,
}

/// Which ones count.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Only {
    Reading,
    Writing,
}

impl Opens {
    fn note(&self, request: OpenRequest) {
        let counts = match self.settings.only {
            None => true,
            Some(Only::Reading) => request.flags.read,
            Some(Only::Writing) => request.flags.write,
        };
        self.count.fetch_add(u64::from(counts), Ordering::Relaxed);
    }
}

/// Operations without a method here go to the child as they are.
impl Layer for Opens {
    fn child(&self) -> &dyn FileSystem {
        &*self.child
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        self.note(request);
        self.child.open(caller, ino, request)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        self.note(request);
        self.child.create(caller, parent, name, mode, umask, exclusive, request)
    }

    fn getxattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        if ino == InodeId::ROOT && name == "user.opens" {
            return Ok(self.count.load(Ordering::Relaxed).to_string().into_bytes());
        }
        self.child.getxattr(caller, ino, name)
    }
}

impl PluginModule for Opens {
    const NAME: &'static CStr = c"opens";
    const VERSION: &'static CStr = c"1.0.0";
    /// The count is atomic. So it outlives a crash of the process, but for the last second.
    const EXPORTS_IN_USE: bool = true;
    type Settings = Settings;

    fn new(settings: Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self { child, settings, count: AtomicU64::new(0) })
    }

    fn export(&self) -> State {
        let bytes = self.count.load(Ordering::Relaxed).to_le_bytes().to_vec();
        State { version: STATE, bytes }
    }

    fn import(&self, state: &State) -> Result<()> {
        let count = <[u8; 8]>::try_from(state.bytes.as_slice());
        match (state.version, count) {
            (STATE, Ok(count)) => {
                self.count.store(u64::from_le_bytes(count), Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Error::new(Errno::EINVAL, "a state that this version does not know")),
        }
    }
}

braid_sdk::plugin!(Opens);
