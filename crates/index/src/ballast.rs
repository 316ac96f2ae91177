//! Space set aside on the home tier, for indexes to grow into when all other
//! space there is used: a full home tier must not keep files from growing on
//! the other tiers.

use braid_contract::{Access, Errno, FallocateMode, Fd, NativeFd, Result};
use parking_lot::Mutex;
use std::ffi::OsStr;

/// Bytes set aside: the entries of 131,072 ranges.
pub const BALLAST_LEN: u64 = 1 << 20;

const NAME: &str = "ballast";

/// The file `.braid/ballast`.
#[derive(Debug)]
pub struct Ballast {
    /// `None` where a check finds no such file.
    file: Option<Fd>,
    full: Mutex<bool>,
}

impl Ballast {
    /// Creates the file, which is filled when there is room.
    pub fn create(braid: &dyn NativeFd) -> Result<()> {
        braid.ensure_file_at(NAME)
    }

    /// Opens the file.
    pub fn open(braid: &dyn NativeFd) -> Result<Self> {
        let file = match braid.open_at(OsStr::new(NAME), Access::ReadWrite) {
            Err(error) if error.errno() == Errno::ENOENT => {
                return Ok(Self { file: None, full: Mutex::new(false) });
            }
            result => result?,
        };
        let full = file.stat()?.attr.size >= BALLAST_LEN;
        Ok(Self { file: Some(file), full: Mutex::new(full) })
    }

    /// Whether the space is reserved.
    pub fn is_full(&self) -> bool {
        *self.full.lock()
    }

    /// Reserves the space, if there is room; otherwise a later call tries
    /// again.
    pub fn fill(&self) {
        let mut full = self.full.lock();
        if let Some(file) = self.file.as_ref().filter(|_| !*full) {
            let allocate = FallocateMode::Allocate { keep_size: false };
            *full = file.allocate(allocate, 0, BALLAST_LEN).is_ok();
        }
    }

    /// Runs `act`; if that fails for lack of space, frees the ballast, waits
    /// until the space is usable, and runs it once more.
    pub(super) fn or_spend<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(error) if error.errno() == Errno::ENOSPC && self.spend() => act(),
            result => result,
        }
    }

    fn spend(&self) -> bool {
        let mut full = self.full.lock();
        let Some(file) = self.file.as_ref().filter(|_| *full) else { return false };
        *full = false;
        tracing::warn!("the home tier is full: indexes use the space that was set aside for them");
        // Some file systems return freed space only with their next commit.
        file.truncate(0).and_then(|()| file.sync_fs()).is_ok()
    }
}
