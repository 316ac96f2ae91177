//! A volume over directories, used like a front end uses it.

#[allow(dead_code, reason = "two of them run on simulated disks")]
pub(crate) mod machine;

use braid_contract::{
    Caller, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest, Result, SetAttr, TierState, WriteFlags,
};
use braid_placement::{PolicyConfig, Reserve};
use braid_stores::dir::DirStore;
use braid_stores::fault::{FaultControl, FaultStore};
use braid_stores::native::Machine;
use braid_stores::native::open_tier_dir;
use braid_testkit::{SplitMix, once_free};
use braid_volume::{HomeConfig, TierConfig, Volume, VolumeConfig};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const RANGE: u64 = 64 << 10;

/// Directories of a volume's tiers.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        std::fs::create_dir(dir.path().join("slow")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// One more tier, of weight 1, in a directory of this name.
    pub(crate) fn tier(&self, name: &str) -> TierConfig {
        let dir = self.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        TierConfig {
            name: name.into(),
            store: Some(Arc::new(once_free(|| DirStore::open(&dir)))),
            location: dir.display().to_string(),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::default(),
        }
    }

    pub(crate) fn config(&self) -> VolumeConfig {
        config(&self.path("home"), &self.path("slow"))
    }

    pub(crate) fn open(&self) -> Open {
        Open { volume: Volume::open(self.config()).unwrap() }
    }
}

pub(crate) fn config(home: &Path, slow: &Path) -> VolumeConfig {
    VolumeConfig {
        home: HomeConfig {
            name: "fast".into(),
            root: once_free(|| open_tier_dir(home)),
            location: home.display().to_string(),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::default(),
        },
        tiers: vec![TierConfig {
            name: "slow".into(),
            store: Some(Arc::new(once_free(|| DirStore::open(slow)))),
            location: slow.display().to_string(),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::default(),
        }],
        range_size: Some(RANGE as u32),
        policy: PolicyConfig::named("weighted").unwrap(),
        rules: Vec::new(),
        hints: Default::default(),
        epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
        heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
        monitor: true,
        movers: braid_volume::MoversConfig::NONE,
        create: true,
        environment: Arc::new(Machine),
    }
}

/// Makes the other tier fail on request.
pub(crate) fn faulty(config: &mut VolumeConfig) -> FaultControl {
    let store = FaultStore::new(config.tiers[0].store.take().unwrap(), Vec::new());
    let control = store.control();
    config.tiers[0].store = Some(Arc::new(store));
    control
}

/// An open volume, with the calls that tests need most.
pub(crate) struct Open {
    pub(crate) volume: Arc<Volume>,
}

pub(crate) fn caller() -> Caller {
    Caller::root()
}

impl Open {
    /// Waits until every tier answers again.
    pub(crate) fn wait_until_online(&self) {
        let began = Instant::now();
        while self.volume.status().tiers.iter().any(|tier| tier.state != TierState::Online) {
            assert!(began.elapsed().as_secs() < 60, "the tier does not come back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn create(&self, name: &str) -> (InodeId, HandleId) {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let made = self.volume.create(
            &caller(),
            InodeId::ROOT,
            OsStr::new(name),
            0o100_644,
            0o022,
            true,
            flags.into(),
        );
        let (entry, opened) = made.unwrap();
        (entry.attr.ino, opened.handle)
    }

    pub(crate) fn open(&self, ino: InodeId) -> HandleId {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        self.volume.open(&caller(), ino, OpenRequest { flags, ..OpenRequest::default() }).unwrap().handle
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<InodeId> {
        Ok(self.volume.lookup(&caller(), InodeId::ROOT, OsStr::new(name))?.attr.ino)
    }

    pub(crate) fn write(&self, handle: HandleId, offset: u64, data: &[u8]) {
        let written = self.volume.write(&caller(), handle, offset, data, WriteFlags::default());
        assert_eq!(written.unwrap(), data.len());
    }

    /// Writes a range at a time, so that each is placed by itself.
    pub(crate) fn write_ranges(&self, handle: HandleId, data: &[u8]) {
        for (at, range) in data.chunks(RANGE as usize).enumerate() {
            self.write(handle, at as u64 * RANGE, range);
        }
    }

    pub(crate) fn read(&self, handle: HandleId, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        let done = self.volume.read(&caller(), handle, offset, &mut buf, false).unwrap();
        buf.truncate(done);
        buf
    }

    pub(crate) fn truncate(&self, ino: InodeId, size: u64) {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.volume.setattr(&caller(), ino, None, &changes).unwrap();
    }

    pub(crate) fn size(&self, ino: InodeId) -> u64 {
        self.volume.getattr(&caller(), ino, None).unwrap().size
    }

    pub(crate) fn close(self) {
        self.volume.shutdown().unwrap();
    }

    /// Drops the volume as a kill of the daemon does: nothing is brought up to
    /// date.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// `len` bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SplitMix::new(seed).fill(&mut data);
    data
}
