//! The power is cut before every effect of a replacement of the home tier: then
//! exactly one of the two directories is home, and all synced data is there.

use crate::common::{Open, RANGE, caller, machine, pattern};
use braid_contract::{Errno, FileSystem, HandleId, InodeId, JobState, OpenFlags, OpenRequest};
use braid_testkit::sim::{Disk, DiskConfig, Frozen, Model};
use braid_volume::{OpenError, RehomePhase, RehomeProgress, Severity, Volume, check, settle_home};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const OLD: usize = 0;
const NEW: usize = 2;

type Machine = machine::Machine<3>;

fn new(model: Model) -> Machine {
    Machine::new(["old", "tier", "new"], model)
}

/// As the daemon does before it mounts.
fn mount(machine: &Machine, home: usize) -> Result<Open, OpenError> {
    let new = machine.disks[NEW].root();
    settle_home(&machine.disks[home].root(), &mut |place| {
        assert_eq!(place, "new");
        Ok(Arc::clone(&new))
    })?;
    Volume::open(machine.config(home)).map(|volume| Open { volume })
}

/// The state of the disks before one effect.
struct Moment {
    disks: [Frozen; 3],
    what: String,
    /// The synced length of the file `counter`, at least.
    synced: u64,
}

fn content() -> Vec<u8> {
    pattern(7, 5 * RANGE as usize + 99)
}

/// Creates files, some in states that recovery has to handle.
fn fill(open: &Open) -> HandleId {
    let fs = &*open.volume;
    let dir = fs.mkdir(&caller(), InodeId::ROOT, OsStr::new("dir"), 0o755, 0).unwrap().attr.ino;
    let (spread, handle) = open.create("spread");
    open.write_ranges(handle, &content());
    fs.link(&caller(), spread, dir, OsStr::new("link")).unwrap();
    fs.fsync(&caller(), handle, false).unwrap();
    let (_, plain) = open.create("plain");
    open.write(plain, 3, b"plain");
    let (_, gone) = open.create("gone");
    open.write_ranges(gone, &content());
    fs.unlink(&caller(), InodeId::ROOT, OsStr::new("gone")).unwrap();
    let (_, removed) = open.create("removed");
    open.write_ranges(removed, &content());
    fs.release(removed).unwrap();
    fs.sync().unwrap();
    fs.unlink(&caller(), InodeId::ROOT, OsStr::new("removed")).unwrap();
    let (_, counter) = open.create("counter");
    open.write_ranges(counter, &vec![0; 3 * RANGE as usize]);
    fs.fsync(&caller(), counter, false).unwrap();
    let root = fs.open_dir(&caller(), InodeId::ROOT).unwrap();
    fs.sync_dir(&caller(), root).unwrap();
    counter
}

/// Replaces home; answers the moments before each effect of that, and after.
fn record(machine: &Machine) -> Vec<Moment> {
    let open = mount(machine, OLD).unwrap();
    let counter = fill(&open);
    let moments = Arc::new(Mutex::new(Vec::new()));
    let synced = Arc::new(AtomicU64::new(0));
    let disks = machine.disks.clone();
    let note = {
        let (moments, synced) = (Arc::clone(&moments), Arc::clone(&synced));
        move |what: String| {
            let synced = synced.load(Ordering::SeqCst);
            let disks = Machine::freeze(&disks);
            moments.lock().unwrap().push(Moment { disks, what, synced });
        }
    };
    for disk in &machine.disks {
        let note = note.clone();
        disk.set_observer(Some(Arc::new(move |effect| note(effect.to_string()))));
    }
    let count = |progress: &RehomeProgress| {
        if matches!(progress.phase, RehomePhase::Copying | RehomePhase::CatchingUp) {
            let next = synced.load(Ordering::SeqCst) + 1;
            open.write(counter, 2 * RANGE, &next.to_le_bytes());
            open.volume.fsync(&caller(), counter, true).unwrap();
            synced.store(next, Ordering::SeqCst);
        }
        true
    };
    open.volume.replace_home(&machine.disks[NEW].root(), "new", &mut { count }).unwrap();
    open.write(counter, 2 * RANGE, &100_u64.to_le_bytes());
    open.volume.fsync(&caller(), counter, true).unwrap();
    synced.store(100, Ordering::SeqCst);
    note("the end".into());
    machine.disks.iter().for_each(|disk| disk.set_observer(None));
    Arc::try_unwrap(moments)
        .unwrap_or_else(|shared| Mutex::new(std::mem::take(&mut *shared.lock().unwrap())))
        .into_inner()
        .unwrap()
}

fn after(moment: &Moment, seed: u64) -> Machine {
    Machine::after(&moment.disks, seed)
}

fn read(open: &Open, ino: InodeId, len: usize) -> Vec<u8> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let handle =
        open.volume.open(&caller(), ino, OpenRequest { flags, ..OpenRequest::default() }).unwrap().handle;
    let found = open.read(handle, 0, len);
    open.volume.release(handle).unwrap();
    found
}

/// Examines the mounted volume, unmounts it, and checks it.
fn examine(machine: &Machine, open: Open, home: usize, moment: &Moment, context: &str) {
    let spread = open.lookup("spread").unwrap();
    assert!(read(&open, spread, 1 << 20) == content(), "{context}: the spread file differs");
    let dir = open.lookup("dir").unwrap();
    let link = open.volume.lookup(&caller(), dir, OsStr::new("link")).unwrap().attr;
    assert_eq!((link.ino, link.nlink), (spread, 2), "{context}");
    assert_eq!(read(&open, open.lookup("plain").unwrap(), 100), b"\0\0\0plain", "{context}");
    assert!(open.lookup("gone").is_err(), "{context}: a file without a name has one");
    let counter = read(&open, open.lookup("counter").unwrap(), 1 << 20);
    let found = u64::from_le_bytes(counter[2 * RANGE as usize..][..8].try_into().unwrap());
    assert!(found >= moment.synced, "{context}: {found} found, {} was synced", moment.synced);
    open.volume.tick();
    open.close();
    let report = check(machine.config(home), false, &mut |_| {}).unwrap();
    let damage: Vec<_> = report
        .problems
        .iter()
        .filter(|problem| problem.severity == Severity::Damage)
        .map(|problem| &problem.what)
        .collect();
    assert!(damage.is_empty(), "{context}: {damage:?}");
}

fn survives(model: Model) {
    let moments = record(&new(model));
    assert!(moments.len() > 100, "{}", moments.len());
    let (mut on_old, mut on_new, mut undecided) = (0, 0, 0);
    for (at, moment) in moments.iter().enumerate() {
        for seed in 0..5 {
            let context = format!("moment {at}, before {}, seed {seed}", moment.what);
            let decided = decides_alone(&after(moment, seed), &context);
            undecided += u32::from(decided.is_none());
            let machine = after(moment, seed);
            match mount(&machine, OLD) {
                Ok(open) => {
                    assert_ne!(decided, Some(false), "{context}");
                    examine(&machine, open, OLD, moment, &context);
                    on_old += 1;
                    // The other one is not taken too.
                    assert!(Volume::open(after(moment, seed).config(NEW)).is_err(), "{context}: both");
                }
                Err(OpenError::HomeMoved { to, .. }) if to == "new" => {
                    assert_ne!(decided, Some(true), "{context}: taken without a look at the other one");
                    let open = mount(&machine, NEW).map_err(|error| format!("{context}: {error}")).unwrap();
                    examine(&machine, open, NEW, moment, &context);
                    on_new += 1;
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
    }
    assert!(on_old > 100 && on_new > 5 && undecided > 0, "{on_old} {on_new} {undecided}");
}

/// Whether the old home is mounted where the new one can't be reached; `None`
/// if the mount says that it can't decide.
fn decides_alone(machine: &Machine, context: &str) -> Option<bool> {
    let unreachable = &mut |_: &str| Err(Errno::ENOENT.into());
    assert!(settle_home(&machine.disks[OLD].root(), unreachable).unwrap().is_none());
    match Volume::open(machine.config(OLD)) {
        Ok(_) => Some(true),
        Err(OpenError::HomeMoved { .. }) => Some(false),
        Err(OpenError::HomeUndecided { to, .. }) if to == "new" => None,
        Err(error) => panic!("{context}: {error}"),
    }
}

#[test]
fn a_home_without_room_is_refused_with_the_numbers() {
    let mut machine = new(Model::EXT4);
    let config = DiskConfig { capacity: 256 << 10, ..machine.disks[NEW].config().clone() };
    machine.disks[NEW] = Disk::new(config);
    let open = mount(&machine, OLD).unwrap();
    let (_, handle) = open.create("large");
    open.write_ranges(handle, &pattern(1, 40 * RANGE as usize));
    let refused = open.volume.replace_home(&machine.disks[NEW].root(), "new", &mut |_| true).unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOSPC);
    let said = refused.to_string();
    assert!(said.contains("bytes in 1 file, and the new one room for "), "{said}");
    open.write(handle, 0, b"goes on");
    open.close();
    assert!(Volume::open(machine.config(NEW)).is_err());
    mount(&machine, OLD).unwrap();
}

#[test]
fn nothing_is_held_up_for_the_rest_if_that_is_much() {
    let machine = new(Model::EXT4);
    let open = mount(&machine, OLD).unwrap();
    let (_, handle) = open.create("large");
    // Every other range is on the home tier.
    let change = |byte: u8| (0..300).for_each(|piece| open.write(handle, piece << 20, &[byte]));
    change(1);
    let mut tries = 0;
    let mut tell = |progress: &RehomeProgress| {
        if progress.phase == RehomePhase::Switching {
            tries += 1;
            change(2);
        }
        true
    };
    let refused = open.volume.replace_home(&machine.disks[NEW].root(), "new", &mut tell).unwrap_err();
    assert!(refused.to_string().contains("faster than it can be copied"), "{refused}");
    assert_eq!(refused.errno(), Errno::EBUSY);
    assert!(tries > 1);
    assert_eq!(open.read(handle, 299 << 20, 2), [2]);
    open.close();
    assert!(Volume::open(machine.config(NEW)).is_err());
    mount(&machine, OLD).unwrap().close();
}

#[test]
fn once_it_has_switched_a_job_is_done_whatever_comes() {
    let machine = new(Model::EXT4);
    let open = mount(&machine, OLD).unwrap();
    fill(&open);
    let id = open.volume.start_replacing_home(machine.disks[NEW].root(), "new", None).unwrap().record.id;
    let moments = Arc::new(Mutex::new(Vec::new()));
    let observe = |disk: &Disk| {
        let (volume, clock) = (Arc::clone(&open.volume), Arc::clone(machine.environment.clock()));
        let (moments, disks) = (Arc::clone(&moments), machine.disks.clone());
        let observer = move |what: String| match volume.job(id).unwrap().phase {
            // Its progress was not saved for a while.
            Some(RehomePhase::Switching) => clock.advance(1_000_000_000),
            Some(RehomePhase::CleaningUp) => {
                let disks = Machine::freeze(&disks);
                moments.lock().unwrap().push(Moment { disks, what, synced: 0 });
            }
            _ => {}
        };
        disk.set_observer(Some(Arc::new(move |effect| observer(effect.to_string()))));
    };
    machine.disks.iter().for_each(observe);
    open.volume.tick();
    machine.disks.iter().for_each(|disk| disk.set_observer(None));
    assert_eq!(open.volume.job(id).unwrap().record.state, JobState::Done);
    let moments = std::mem::take(&mut *moments.lock().unwrap());
    assert!(moments.len() > 3, "{}", moments.len());
    for (at, moment) in moments.iter().enumerate() {
        for seed in 0..5 {
            let machine = after(moment, seed);
            assert!(mount(&machine, OLD).is_err());
            let open = mount(&machine, NEW).unwrap();
            let record = open.volume.job(id).unwrap().record;
            let context = format!("moment {at}, before {}, seed {seed}: {record:?}", moment.what);
            assert_eq!(record.state, JobState::Done, "{context}");
        }
    }
}

#[test]
fn with_a_journal() {
    survives(Model::EXT4);
}

#[test]
fn without_an_order() {
    survives(Model::WORST);
}
