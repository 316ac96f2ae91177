//! Space set aside on the home tier, for indexes to grow into when everything
//! else there is used up: a full home tier must not keep files from going on
//! growing on the other tiers.

use crate::sync::Mutex;
use braid_contract::Result;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::os::fd::OwnedFd;

/// Bytes set aside: the entries of 131,072 ranges.
pub(crate) const BALLAST_LEN: u64 = 1 << 20;

/// The file `.braid/ballast`.
#[derive(Debug)]
pub(crate) struct Ballast {
    /// `None` where a check finds that there is none.
    file: Option<OwnedFd>,
    full: Mutex<bool>,
}

impl Ballast {
    /// Makes the file, which is filled when there is room.
    pub(super) fn create(braid: &OwnedFd) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(braid, "ballast", flags, Mode::from_raw_mode(0o600))?;
        Ok(())
    }

    /// Opens the file.
    pub(super) fn open(braid: &OwnedFd) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(braid, "ballast", flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(Self { file: None, full: Mutex::new(false) }),
            result => result?,
        };
        let full = rustix::fs::fstat(&file)?.st_size.cast_unsigned() >= BALLAST_LEN;
        Ok(Self { file: Some(file), full: Mutex::new(full) })
    }

    /// Whether the space is there.
    pub(crate) fn is_full(&self) -> bool {
        *self.full.lock()
    }

    /// Takes the space, if there is room; otherwise it is tried again later.
    pub(crate) fn fill(&self) {
        let mut full = self.full.lock();
        if let Some(file) = self.file.as_ref().filter(|_| !*full) {
            *full = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, BALLAST_LEN).is_ok();
        }
    }

    /// Runs `act`; if it fails for lack of space, gives the space up, waits
    /// until it can be used, and runs it once more.
    pub(super) fn or_spend<T>(&self, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match act() {
            Err(rustix::io::Errno::NOSPC) if self.spend() => act(),
            result => result,
        }
    }

    fn spend(&self) -> bool {
        let mut full = self.full.lock();
        let Some(file) = self.file.as_ref().filter(|_| *full) else { return false };
        *full = false;
        tracing::warn!("the home tier is full: indexes use the space that was set aside for them");
        // Some file systems return space only with their next commit.
        rustix::fs::ftruncate(file, 0).and_then(|()| rustix::fs::syncfs(file)).is_ok()
    }
}
