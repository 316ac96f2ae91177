//! skeleton
use super::{Chooser, Effect, SimClock};
use braid_contract::Fd;
use std::sync::Arc;

/// What a file system may do with effects that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Model {
    /// All changes of metadata persist in one order, and to sync one of them
    /// is to sync those before it (ext4, xfs). Otherwise each directory and
    /// each inode is on its own (btrfs).
    pub journal_order: bool,
    /// To sync a file is also to sync the names that it has, and those of the
    /// directories above it.
    pub fsync_names: bool,
    /// A block that is written over may be found half old, half new, in units
    /// of 512 bytes.
    pub tear: bool,
}

impl Model {
    /// ext4 with its default options.
    pub const EXT4: Self = Self { journal_order: true, fsync_names: true, tear: true };
    /// xfs.
    pub const XFS: Self = Self { journal_order: true, fsync_names: true, tear: true };
    /// btrfs.
    pub const BTRFS: Self = Self { journal_order: false, fsync_names: true, tear: true };
    /// No promise beyond those of POSIX: what all of them do and more.
    pub const WORST: Self = Self { journal_order: false, fsync_names: false, tear: true };
}

impl Default for Model {
    fn default() -> Self {
        Self::WORST
    }
}

/// What a disk is like.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Its name in reports.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// Device number, as `stat` shows it.
    pub device: u64,
    /// Keeps nothing across power loss, like tmpfs.
    pub volatile: bool,
    /// What may become of effects that were not synced.
    pub model: Model,
}

/// One simulated device with a file system; cheap to clone.
#[derive(Clone, Debug)]
pub struct Disk {}

impl Disk {
    /// An empty file system.
    #[must_use]
    pub fn new(_config: DiskConfig) -> Self {
        Self {}
    }
    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> Fd {
        unreachable!("not yet")
    }
    /// Sets what is called, without any lock, right before each effect.
    pub fn set_observer(&self, _observer: Option<Arc<dyn Fn(&Effect) + Send + Sync>>) {}
    /// Sets the clock that the times of inodes come from.
    pub fn set_clock(&self, _clock: Arc<SimClock>) {}
    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::default()
    }
    /// Its state at this moment.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        Frozen {}
    }
    /// What would have killed a process of the kernel's: accesses to mappings
    /// where the file has no block or has ended.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The state of a disk at one moment.
#[derive(Clone, Debug)]
pub struct Frozen {}

impl Frozen {
    /// How many independent choices power loss leaves; 0: exactly one state.
    #[must_use]
    pub fn pending(&self) -> usize {
        0
    }
    /// Differs between two states of a disk that an effect lies between.
    #[must_use]
    pub fn version(&self) -> u64 {
        0
    }
    /// The disk as found after power loss; it has a clock of its own.
    #[must_use]
    pub fn after_power_loss(&self, _chooser: &mut dyn Chooser) -> Disk {
        Disk {}
    }
    /// The disk as after a crash of the process alone: nothing is lost, and
    /// what was pending still is.
    #[must_use]
    pub fn after_process_crash(&self) -> Disk {
        Disk {}
    }
}
