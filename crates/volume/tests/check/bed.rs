//! A volume of three tiers with files in it, and how states of it are compared.

use braid_contract::{
    Caller, FileSystem, InodeId, OpenFlags, OpenRequest, Result, SetAttr, VolumeId, WriteFlags,
};
use braid_placement::{PolicyConfig, Reserve};
use braid_stores::dir::DirStore;
use braid_stores::native::Machine;
use braid_stores::native::{KernelFd, open_tier_dir};
use braid_testkit::{SplitMix, damage, once_free};
use braid_volume::{
    CheckOptions, CheckReport, HomeConfig, OpenError, Problem, TierConfig, Volume, VolumeConfig, check_with,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const RANGE: usize = 64 << 10;
pub(crate) const TIERS: [&str; 3] = ["fast", "slow", "far"];

/// Contents of files by path; `None` if a file can't be read.
pub(crate) type Contents = BTreeMap<PathBuf, Option<Vec<u8>>>;

pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
}

impl Bed {
    /// A volume with a plain file and four spread ones, unmounted cleanly.
    pub(crate) fn filled() -> Self {
        let bed = Self::empty();
        let volume = bed.mount();
        volume.mkdir(&Caller::root(), InodeId::ROOT, OsStr::new("dir"), 0o755, 0o022).unwrap();
        write(&volume, "plain", &[(0, pattern(1, 1000))]);
        write(&volume, "big", &ranges(2, 12 * RANGE + 100));
        write(&volume, "dir/second", &ranges(3, 9 * RANGE));
        let holes = (0..12).filter(|range| range % 3 != 1);
        let sparse = holes.map(|range| ((range * RANGE) as u64, pattern(range as u64 + 50, RANGE)));
        write(&volume, "sparse", &sparse.collect::<Vec<_>>());
        // The third tier has none of it.
        write(&volume, "dir/few", &ranges(4, 2 * RANGE));
        volume.shutdown().unwrap();
        bed
    }

    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for tier in TIERS {
            std::fs::create_dir(dir.path().join(tier)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dirs(&self) -> damage::Volume {
        damage::Volume { home: self.path("fast"), others: vec![self.path("slow"), self.path("far")] }
    }

    pub(crate) fn config(&self) -> VolumeConfig {
        let store = |name: &str| TierConfig {
            name: name.into(),
            store: Some(Arc::new(once_free(|| DirStore::open(&self.path(name))))),
            location: name.into(),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::default(),
        };
        VolumeConfig {
            home: HomeConfig {
                name: TIERS[0].into(),
                root: once_free(|| open_tier_dir(&self.path(TIERS[0]))),
                location: TIERS[0].into(),
                weight: Some(1.0),
                profile: None,
                reserve: Reserve::default(),
            },
            tiers: TIERS[1..].iter().map(|name| store(name)).collect(),
            range_size: None,
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

    pub(crate) fn mount(&self) -> Arc<Volume> {
        let label = self.path("fast").join(".braid/label").exists();
        let range_size = (!label).then_some(RANGE as u32);
        Volume::open(VolumeConfig { range_size, ..self.config() }).unwrap()
    }

    pub(crate) fn options(&self) -> CheckOptions {
        let root = |name: &&str| {
            let dir = std::fs::File::open(self.path(name)).unwrap();
            ((*name).to_owned(), KernelFd::open(dir.into()))
        };
        CheckOptions { roots: TIERS[1..].iter().map(root).collect(), ..CheckOptions::default() }
    }

    pub(crate) fn try_check(&self, repair: bool) -> std::result::Result<CheckReport, OpenError> {
        let options = CheckOptions { repair, ..self.options() };
        check_with(self.config(), &options, &mut |_| true)
    }

    /// A check that reports legal states too.
    pub(crate) fn try_verbose_check(&self) -> std::result::Result<CheckReport, OpenError> {
        let options = CheckOptions { verbose: true, ..self.options() };
        check_with(self.config(), &options, &mut |_| true)
    }

    pub(crate) fn check(&self, repair: bool) -> Vec<Problem> {
        self.try_check(repair).unwrap().problems
    }

    pub(crate) fn codes(&self, repair: bool) -> Vec<&'static str> {
        self.check(repair).iter().map(|problem| problem.code).collect()
    }

    /// The contents of all files, read through the volume.
    pub(crate) fn contents(&self) -> Contents {
        let volume = self.mount();
        let mut found = Contents::new();
        for path in self.names() {
            found.insert(path.clone(), read(&volume, &path).ok());
        }
        volume.shutdown().unwrap();
        found
    }

    /// The paths of all regular files of the namespace.
    fn names(&self) -> Vec<PathBuf> {
        let home = self.path("fast");
        let all = tree(&home).into_keys().filter(|path| home.join(path).is_file());
        all.filter(|path| !path.starts_with(".braid")).collect()
    }

    /// The state of everything below all tiers' directories.
    pub(crate) fn state(&self) -> BTreeMap<PathBuf, String> {
        tree(self.dir.path())
    }

    /// The path of a file of one tier below `.braid`, by the id of a file.
    pub(crate) fn object(&self, tier: &str, of: &str) -> PathBuf {
        let id = self.id(of);
        let dir = if tier == "fast" { "index" } else { "data" };
        self.path(tier).join(".braid").join(dir).join(&id[..2]).join(&id)
    }

    pub(crate) fn id(&self, of: &str) -> String {
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(self.path("fast").join(of), attr_name(), &mut value[..]).unwrap();
        assert_eq!(len, 64);
        VolumeId(value[8..24].try_into().unwrap()).to_string()
    }
}

pub(crate) fn attr_name() -> &'static str {
    if rustix::process::geteuid().is_root() { "trusted.braid.id" } else { "user.braid.id" }
}

/// The state of the files below `dir`, without access times.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let mut hash = DefaultHasher::new();
            if stat.is_file() {
                std::fs::read(&path).unwrap().hash(&mut hash);
                let mut value = [0; 128];
                let len = rustix::fs::lgetxattr(&path, attr_name(), &mut value[..]).unwrap_or(0);
                value[..len].hash(&mut hash);
            }
            let times = (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec());
            let text =
                format!("{:o} {} {} {times:?} {:x}", stat.mode(), stat.uid(), stat.len(), hash.finish());
            seen.insert(path.strip_prefix(dir).unwrap().to_owned(), text);
            if stat.is_dir() {
                dirs.push(path);
            }
        }
    }
    seen
}

fn flags() -> OpenFlags {
    OpenFlags { read: true, write: true, ..OpenFlags::default() }
}

pub(crate) fn lookup(volume: &Volume, path: &Path) -> Result<InodeId> {
    let mut ino = InodeId::ROOT;
    for name in path {
        ino = volume.lookup(&Caller::root(), ino, name)?.attr.ino;
    }
    Ok(ino)
}

/// Creates a file, writes piece by piece, and closes it synced.
pub(crate) fn write(volume: &Volume, path: &str, pieces: &[(u64, Vec<u8>)]) {
    let (caller, path) = (Caller::root(), Path::new(path));
    let parent = lookup(volume, path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap();
    let (_, opened) = volume.create(&caller, parent, name, 0o100_644, 0o022, true, flags().into()).unwrap();
    for (offset, data) in pieces {
        volume.write(&caller, opened.handle, *offset, data, WriteFlags::default()).unwrap();
    }
    volume.fsync(&caller, opened.handle, false).unwrap();
    volume.release(opened.handle).unwrap();
}

/// Creates a file, appends the pieces, and syncs after each, as a database does
/// with its log. Answers what the file holds.
pub(crate) fn write_in_syncs(volume: &Volume, name: &str, pieces: &[Vec<u8>]) -> Vec<u8> {
    let caller = Caller::root();
    let name = OsStr::new(name);
    let created = volume.create(&caller, InodeId::ROOT, name, 0o100_644, 0o022, true, flags().into());
    let (handle, mut all) = (created.unwrap().1.handle, Vec::new());
    for piece in pieces {
        volume.write(&caller, handle, all.len() as u64, piece, WriteFlags::default()).unwrap();
        volume.fsync(&caller, handle, true).unwrap();
        all.extend(piece);
    }
    all
}

pub(crate) fn read(volume: &Volume, path: &Path) -> Result<Vec<u8>> {
    let (caller, ino) = (Caller::root(), lookup(volume, path)?);
    let request = OpenRequest { flags: flags(), ..OpenRequest::default() };
    let handle = volume.open(&caller, ino, request)?.handle;
    let mut buf = vec![0; 2 << 20];
    let done = volume.read(&caller, handle, 0, &mut buf, false);
    volume.release(handle)?;
    buf.truncate(done?);
    Ok(buf)
}

pub(crate) fn truncate(volume: &Volume, path: &str, size: u64) {
    let ino = lookup(volume, Path::new(path)).unwrap();
    let changes = SetAttr { size: Some(size), ..SetAttr::default() };
    volume.setattr(&Caller::root(), ino, None, &changes).unwrap();
}

/// `len` bytes in pieces of a range each.
pub(crate) fn ranges(seed: u64, len: usize) -> Vec<(u64, Vec<u8>)> {
    let data = pattern(seed, len);
    data.chunks(RANGE).enumerate().map(|(at, piece)| ((at * RANGE) as u64, piece.to_vec())).collect()
}

/// `len` bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SplitMix::new(seed).fill(&mut data);
    data.iter_mut().for_each(|byte| *byte |= 1);
    data
}
