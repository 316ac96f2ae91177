//! Every store keeps the promises of the trait.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
mod mounted;
mod planted;
mod zoned_device;

use braid_contract::{Hint, ObjectId, Store, StoreIo};
use braid_stores::cache::{CacheMemory, CacheShare, CacheStore};
use braid_stores::dir::DirStore;
use braid_stores::fault::FaultStore;
use braid_stores::files::FileStore;
use braid_stores::memory::MemoryStore;
use braid_stores::native::open_tier_dir;
use braid_stores::zoned::{EmulatedZones, ZoneEmulator, ZonedSettings, ZonedStore};
use braid_testkit::conformance::store::{AppendOnlyStore, Fresh, cases, run};
use braid_testkit::dir_fs::{Choice, DirFs};
use braid_testkit::sim::{Disk, DiskConfig, Model, SimClock, SimEnvironment, SimZoned, SimZones};
use mounted::Mounted;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// Room for all objects of a case.
const SIZE: u64 = 64 << 20;

/// A directory store in a directory of its own below `place`.
fn in_dir(place: &Path) -> (Arc<DirStore>, tempfile::TempDir) {
    let dir = tempfile::tempdir_in(place).unwrap();
    (Arc::new(DirStore::open(dir.path()).unwrap()), dir)
}

fn dir_store(place: &Path) -> Fresh {
    let (store, dir) = in_dir(place);
    Fresh::new(store, dir)
}

fn on_native(kind: &str) {
    if let Some(mounted) = Mounted::new(kind) {
        run(&format!("directory on {kind}"), &|| dir_store(&mounted.point)).conclude();
        written_data_takes_space_at_once(&mounted.point);
    }
}

/// Also where the file system allocates it later.
fn written_data_takes_space_at_once(place: &Path) {
    let (store, _dir) = in_dir(place);
    let before = store.usage().unwrap().available;
    store.set_label(b"a label").unwrap();
    let object = ObjectId([7; 16]);
    store.create(object).unwrap();
    let data = vec![7; 1 << 20];
    for piece in 0..16 {
        assert_eq!(
            store
                .write_at(
                    object,
                    piece << 20,
                    &[IoSlice::new(&data)],
                    StoreIo { direct: false, hint: Hint::default() }
                )
                .unwrap(),
            data.len()
        );
    }
    let after = store.usage().unwrap().available;
    assert!(after <= before - (16 << 20), "{before} available before 16 MiB, {after} after");
}

#[test]
fn cases_have_names_of_their_own() {
    let names: BTreeSet<_> = cases().collect();
    assert_eq!(names.len(), cases().count());
}

#[test]
fn directory_on_ext4() {
    on_native("ext4");
}

#[test]
fn directory_on_xfs() {
    on_native("xfs");
}

#[test]
fn directory_on_btrfs() {
    on_native("btrfs");
}

#[test]
fn directory_on_tmpfs() {
    run("directory on tmpfs", &|| dir_store(Path::new("/dev/shm"))).conclude();
}

#[test]
fn directory_on_a_simulated_disk() {
    let fresh = || {
        let (name, model) = ("disk".to_owned(), Model::EXT4);
        let disk = Disk::new(DiskConfig { name, capacity: SIZE, device: 1, volatile: false, model });
        disk.set_clock(Arc::new(SimClock::new()));
        Fresh::new(Arc::new(DirStore::new(disk.root()).unwrap()), disk)
    };
    run("directory on a simulated disk", &fresh).conclude();
}

#[test]
fn faults_without_a_fault() {
    let fresh = || {
        let (store, dir) = in_dir(Path::new("/var/tmp"));
        Fresh::new(Arc::new(FaultStore::new(store, Vec::new())), dir)
    };
    run("faults over a directory", &fresh).conclude();
}

#[test]
fn a_cache_over_a_directory() {
    let fresh = || {
        let (store, dir) = in_dir(Path::new("/var/tmp"));
        let memory = CacheMemory::new(4096);
        memory.set_budget(64 << 10);
        memory.set_shares([("tier".to_owned(), CacheShare::Part(1.0))].into());
        Fresh::new(Arc::new(CacheStore::new(&memory, "tier", store)), dir)
    };
    run("a cache over a directory", &fresh).conclude();
}

#[test]
fn files_on_a_file_system() {
    if !rustix::process::geteuid().is_root() {
        // The label is an attribute that only root may set there.
        return;
    }
    let fresh = || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let fs = DirFs::new(dir.path(), Choice::Cached);
        Fresh::new(Arc::new(FileStore::new(Arc::new(fs), 1)), dir)
    };
    run("files on a file system", &fresh).conclude();
}

#[test]
fn objects_are_made_while_others_are_synced() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = FileStore::new(Arc::new(DirFs::new(dir.path(), Choice::Cached)), 1);
    store.set_label(b"label").unwrap();
    let (store, (ended, end)) = (Arc::new(store), std::sync::mpsc::channel());
    for thread in 0..4_u128 {
        let (store, ended) = (Arc::clone(&store), ended.clone());
        std::thread::spawn(move || {
            for number in 0..500 {
                let id = ObjectId((thread * 1000 + number).to_ne_bytes());
                store.create(id).unwrap();
                store.sync(&[id], true).unwrap();
            }
            ended.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        let patience = std::time::Duration::from_secs(120);
        end.recv_timeout(patience).expect("no thread waits for another one for ever");
    }
}

#[test]
fn memory() {
    run("memory", &|| Fresh::new(Arc::new(MemoryStore::new(SIZE)), ())).conclude();
}

#[test]
fn append_only_over_memory() {
    let fresh = |seek_data| {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(SIZE));
        Fresh::new(Arc::new(AppendOnlyStore::over(inner, seek_data)), ())
    };
    run("append-only over memory", &|| fresh(true)).conclude();
    run("append-only over memory, holes unknown", &|| fresh(false)).conclude();
}

#[test]
fn append_only_over_a_directory() {
    let fresh = || {
        let (store, dir) = in_dir(Path::new("/var/tmp"));
        Fresh::new(Arc::new(AppendOnlyStore::over(store, true)), dir)
    };
    run("append-only over a directory", &fresh).conclude();
}

pub(crate) fn zoned_settings() -> [ZonedSettings; 3] {
    let usual = ZonedSettings::default();
    [
        ZonedSettings { memory: 8 << 20, ..usual },
        ZonedSettings { extent: 64 << 10, memory: 128 << 10, write_through: false, gc: 0 },
        ZonedSettings { extent: 4 << 10, memory: 64 << 10, write_through: true, gc: 0 },
    ]
}

#[test]
fn zoned_on_an_emulated_device() {
    for settings in zoned_settings() {
        for conventional in [0, 1, 3] {
            let fresh = || {
                let dir = tempfile::tempdir_in("/var/tmp").unwrap();
                let root = open_tier_dir(dir.path()).unwrap();
                let shape =
                    EmulatedZones { zones: 40, conventional, capacity: 4 << 20, open_max: 5, active_max: 6 };
                ZoneEmulator::make(&root, shape).unwrap();
                let device = Arc::new(ZoneEmulator::open(root).unwrap());
                let environment = Arc::new(braid_stores::native::Machine);
                Fresh::new(Arc::new(ZonedStore::open(device, settings, environment).unwrap()), dir)
            };
            run(&format!("zoned, {conventional} conventional zones, {settings:?}"), &fresh).conclude();
        }
    }
}

#[test]
fn zoned_on_a_simulated_device() {
    for settings in zoned_settings() {
        let fresh = || {
            let shape = SimZones { zones: 40, conventional: 0, capacity: 4 << 20, active_max: 6 };
            let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
            let store = ZonedStore::open(Arc::new(SimZoned::new(shape)), settings, environment).unwrap();
            Fresh::new(Arc::new(store), ())
        };
        run(&format!("zoned on a simulated device, {settings:?}"), &fresh).conclude();
    }
}
