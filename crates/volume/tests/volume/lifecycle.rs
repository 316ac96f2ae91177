//! Adding and removing tiers while files are in use.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{Errno, FileSystem, InodeId, JobKind, JobState, ObjectId};
use braid_placement::{PolicyConfig, Reserve, SettingValue};
use braid_stores::dir::DirStore;
use braid_testkit::sim::{
    AllKept, AllLost, Chooser, Disk, DiskConfig, Frozen, Model, Seeded, SimClock, SimEnvironment,
};
use braid_volume::{TierChange, TierConfig, Volume, VolumeConfig, check};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The tiers `fast` and `slow`, and these.
fn config(bed: &Bed, more: &[&str]) -> VolumeConfig {
    let mut config = bed.config();
    config.tiers.extend(more.iter().map(|name| bed.tier(name)));
    config
}

/// `fast` and these.
fn only(bed: &Bed, tiers: &[&str]) -> VolumeConfig {
    VolumeConfig { tiers: tiers.iter().map(|name| bed.tier(name)).collect(), ..bed.config() }
}

fn open(config: VolumeConfig) -> Open {
    Open { volume: Volume::open(config).unwrap() }
}

#[track_caller]
fn is_well(config: VolumeConfig) {
    let report = check(config, false, &mut |_| {}).unwrap();
    // After a crash the volume is not clean.
    let problems = report.problems.iter().filter(|problem| problem.code != "not-clean");
    let said: Vec<String> = problems.map(|problem| format!("{}: {}", problem.code, problem.what)).collect();
    assert_eq!(said, Vec::<String>::new());
}

fn ranges(open: &Open, name: &str) -> u64 {
    open.volume.status().tiers.iter().find(|tier| tier.name == name).unwrap().ranges
}

fn state(open: &Open, name: &str) -> &'static str {
    open.volume.status().tiers.iter().find(|tier| tier.name == name).unwrap().state.name()
}

fn empty(open: &Open, ino: InodeId, ranges: u64) {
    (0..ranges).for_each(|range| open.volume.move_range(ino, range * RANGE, "fast", &mut || {}).unwrap());
}

/// Starts a job that is not carried out.
fn start_emptying(open: &Open) -> u64 {
    let what = JobKind::Evacuate { tier: "slow".into(), then_remove: false };
    open.volume.start_job(what, None).unwrap().record.id
}

fn is_clear(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_tier_that_is_added_takes_ranges_at_once_and_is_there_at_the_next_mount() {
    let bed = Bed::new();
    let data = pattern(1, 30 * RANGE as usize);
    let first = bed.open();
    let (_, handle) = first.create("f");
    first.write_ranges(handle, &data[..6 * RANGE as usize]);
    first.volume.add_tier(bed.tier("new")).unwrap();
    for (at, range) in data.chunks(RANGE as usize).enumerate().skip(6) {
        first.write(handle, at as u64 * RANGE, range);
    }
    assert!(ranges(&first, "new") > 0);
    assert!(first.read(handle, 0, data.len()) == data);
    first.kill();
    let second = open(config(&bed, &["new"]));
    let handle = second.open(second.lookup("f").unwrap());
    assert!(second.read(handle, 0, data.len()) == data);
    assert_eq!(second.volume.status().tiers.len(), 3);
    second.close();
    is_well(config(&bed, &["new"]));
    // The table is authoritative: without the tier there is no mount.
    let said = Volume::open(bed.config()).err().unwrap().to_string();
    assert!(said.contains("`new`") && said.contains("new: { dir: DIRECTORY }"), "{said}");
}

#[test]
fn what_can_not_be_a_tier_is_refused_and_nothing_changes() {
    let bed = Bed::new();
    let first = bed.open();
    let refused = |config: TierConfig| {
        let error = first.volume.add_tier(config).unwrap_err();
        (error.errno(), error.to_string())
    };
    let (errno, said) = refused(TierConfig { name: "slow".into(), ..bed.tier("x") });
    assert!(errno == Errno::EEXIST && said.contains("a tier slow already"), "{said}");
    assert!(is_clear(&bed.path("x")));

    let other = Bed::new();
    other.open().close();
    let foreign = TierConfig { name: "y".into(), ..other.tier("slow") };
    let (errno, said) = refused(foreign);
    assert!(errno == Errno::EEXIST && said.contains("of another volume"), "{said}");

    std::fs::create_dir_all(bed.path("copy/.braid")).unwrap();
    std::fs::copy(bed.path("slow/.braid/label"), bed.path("copy/.braid/label")).unwrap();
    let (errno, said) = refused(TierConfig { name: "z".into(), ..bed.tier("copy") });
    assert!(errno == Errno::EEXIST && said.contains("is tier slow of this volume"), "{said}");
    std::fs::write(bed.path("copy/.braid/label"), "rubbish").unwrap();
    let (errno, said) = refused(TierConfig { name: "z".into(), ..bed.tier("copy") });
    assert!(errno == Errno::EEXIST && said.contains("can't be read"), "{said}");
    assert_eq!(first.volume.status().tiers.len(), 2);
    first.close();
    is_well(bed.config());
}

#[test]
fn a_tier_goes_when_it_is_empty_and_its_directory_can_be_used_anew() {
    let bed = Bed::new();
    let data = pattern(2, 8 * RANGE as usize);
    let first = bed.open();
    let (ino, handle) = first.create("f");
    first.write_ranges(handle, &data);
    let error = first.volume.remove_tier("slow").unwrap_err();
    assert_eq!(error.errno(), Errno::ENOTEMPTY);
    assert!(error.to_string().contains(&format!("{} ranges", ranges(&first, "slow"))), "{error}");
    assert_eq!(first.volume.remove_tier("fast").unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(first.volume.remove_tier("nope").unwrap_err().errno(), Errno::ENOENT);
    // The tier works as before.
    assert_eq!(state(&first, "slow"), "online");
    start_emptying(&first);
    empty(&first, ino, 8);
    first.write(handle, 8 * RANGE, &data);
    assert_eq!((ranges(&first, "slow"), state(&first, "slow")), (0, "draining"));
    let mtime = first.volume.getattr(&caller(), ino, None).unwrap().mtime;
    first.volume.fsync(&caller(), handle, false).unwrap();
    let removed = first.volume.remove_tier("slow").unwrap();
    assert_eq!(removed.not_cleared, None);
    assert!(is_clear(&bed.path("slow")));
    assert_eq!(first.volume.status().tiers.len(), 1);
    first.write(handle, 16 * RANGE, &data[..RANGE as usize]);
    first.volume.fsync(&caller(), handle, false).unwrap();
    assert!(first.read(handle, 0, data.len()) == data);
    first.kill();
    is_well(only(&bed, &[]));
    // An outdated configuration still names it.
    let second = bed.open();
    assert_eq!(second.volume.status().left_out_tiers, ["slow"]);
    assert!(is_clear(&bed.path("slow")));
    let ino = second.lookup("f").unwrap();
    assert!(second.volume.getattr(&caller(), ino, None).unwrap().mtime >= mtime);
    let handle = second.open(ino);
    assert!(second.read(handle, 8 * RANGE, data.len()) == data);
    // The directory and the name can be reused.
    second.volume.add_tier(bed.tier("slow")).unwrap();
    assert_eq!(second.volume.status().left_out_tiers, Vec::<String>::new());
    second.write(handle, 17 * RANGE, &data);
    second.write_ranges(second.create("g").1, &data);
    assert!(ranges(&second, "slow") > 0);
    second.close();
    // The job that emptied an earlier tier of that name has no effect.
    let third = bed.open();
    assert_eq!(state(&third, "slow"), "online");
    third.close();
    is_well(bed.config());
}

#[test]
fn a_job_of_an_earlier_tier_does_not_fall_on_the_next_one_of_that_name() {
    let bed = Bed::new();
    let kept = |id: u64| bed.path(&format!("home/.braid/jobs/{id}"));
    let first = bed.open();
    let empty = start_emptying(&first);
    // A directory in its place makes the write fail: as after a crash, the
    // saved job is older than the removal.
    std::fs::create_dir(kept(empty).with_extension("new")).unwrap();
    first.volume.remove_tier("slow").unwrap();
    // It would be emptied, too.
    let refused = first.volume.add_tier(bed.tier("slow")).unwrap_err();
    assert!(refused.to_string().contains(&format!("job {empty} ")), "{refused}");
    assert_eq!(refused.errno(), Errno::EBUSY);
    assert!(is_clear(&bed.path("slow")));
    std::fs::remove_dir(kept(empty).with_extension("new")).unwrap();
    first.kill();

    let second = open(only(&bed, &[]));
    let record = second.volume.job(empty).unwrap().record;
    assert!(record.state == JobState::Failed && !record.holds, "{record:?}");
    second.volume.add_tier(bed.tier("slow")).unwrap();
    assert_eq!(state(&second, "slow"), "online");
    let what = JobKind::Evacuate { tier: "slow".into(), then_remove: true };
    let remove = second.volume.start_job(what, None).unwrap().record.id;
    std::fs::create_dir(kept(remove).with_extension("new")).unwrap();
    second.volume.remove_tier("slow").unwrap();
    std::fs::remove_dir(kept(remove).with_extension("new")).unwrap();
    second.kill();

    let third = open(only(&bed, &[]));
    let record = third.volume.job(remove).unwrap().record;
    assert!(record.state == JobState::Done && !record.holds, "{record:?}");
    third.volume.add_tier(bed.tier("slow")).unwrap();
    third.close();
    let fourth = bed.open();
    assert_eq!(state(&fourth, "slow"), "online");
    fourth.close();
    is_well(bed.config());
}

/// Whether the saved record of the job that emptied a tier still holds.
fn kept_holds(bed: &Bed, id: u64) -> bool {
    let kept = std::fs::read_to_string(bed.path(&format!("home/.braid/jobs/{id}"))).unwrap();
    kept.contains(r#""holds": true"#)
}

#[test]
fn a_tier_that_could_not_be_replaced_stays_drained() {
    let bed = Bed::new();
    let first = bed.open();
    let id = start_emptying(&first);
    first.volume.start_jobs(None).unwrap();
    while !first.volume.job(id).unwrap().record.state.is_final() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    first.close();
    let mut absent = bed.config();
    absent.tiers[0].store = None;
    let new = || TierConfig { name: "slow".into(), ..bed.tier("new") };
    let second = open(absent);
    // A directory in its place makes the write fail.
    let blocked = bed.path(&format!("home/.braid/jobs/{id}.new"));
    std::fs::create_dir(&blocked).unwrap();
    assert!(second.volume.replace_tier(new()).is_err());
    std::fs::remove_dir(&blocked).unwrap();
    assert!(kept_holds(&bed, id) && is_clear(&bed.path("new")));
    // Nor may something else take its place.
    let other = bed.tier("other");
    other.store.as_ref().unwrap().set_label(&[7; 512]).unwrap();
    let refused = second.volume.replace_tier(TierConfig { name: "slow".into(), ..other }).unwrap_err();
    assert_eq!(refused.errno(), Errno::EEXIST);
    assert!(kept_holds(&bed, id) && second.volume.job(id).unwrap().record.holds);
    second.volume.replace_tier(new()).unwrap();
    assert!(!kept_holds(&bed, id));
    assert_eq!(state(&second, "slow"), "online");
    second.close();
}

const HOME: usize = 0;
const OLD: usize = 1;
const NEW: usize = 2;

/// Home, a tier and its replacement, on simulated disks.
struct Simulated {
    disks: [Disk; 3],
    environment: Arc<SimEnvironment>,
}

impl Simulated {
    fn of(disks: [Disk; 3], seed: u64) -> Self {
        let clock = Arc::new(SimClock::new());
        disks.iter().for_each(|disk| disk.set_clock(Arc::clone(&clock)));
        Self { disks, environment: Arc::new(SimEnvironment::new(clock, seed)) }
    }

    fn after(frozen: &[Frozen; 3], seed: u64) -> Self {
        let disks = std::array::from_fn(|at| {
            let mut chooser: Box<dyn Chooser> = match seed {
                0 => Box::new(AllLost),
                1 => Box::new(AllKept),
                2 => return frozen[at].after_process_crash(),
                seed => Box::new(Seeded::new(seed * 3 + at as u64)),
            };
            frozen[at].after_power_loss(&mut *chooser)
        });
        Self::of(disks, seed + 5)
    }

    /// The tier `slow` on a disk, or on none.
    fn slow(&self, disk: Option<usize>) -> TierConfig {
        let store = |disk: usize| Arc::new(DirStore::new(self.disks[disk].root()).unwrap());
        TierConfig {
            name: "slow".into(),
            store: disk.map(|disk| store(disk) as Arc<dyn braid_contract::Store>),
            location: "slow".into(),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::Bytes(0),
        }
    }

    fn open(&self, slow: Option<usize>) -> Result<Open, braid_volume::OpenError> {
        let config = VolumeConfig {
            home: braid_volume::HomeConfig {
                name: "fast".into(),
                root: self.disks[HOME].root(),
                location: "fast".into(),
                weight: Some(1.0),
                profile: None,
                reserve: Reserve::Bytes(0),
            },
            tiers: vec![self.slow(slow)],
            range_size: Some(RANGE as u32),
            policy: PolicyConfig::named("weighted").unwrap(),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
            heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
            monitor: true,
            movers: braid_volume::MoversConfig::NONE,
            create: true,
            environment: self.environment.clone(),
        };
        Volume::open(config).map(|volume| Open { volume })
    }
}

/// Empties a tier, loses it and replaces it; answers the moments before each
/// effect of that.
fn record_replacement(model: Model) -> Vec<(String, [Frozen; 3])> {
    let disk = |at: usize| {
        let (name, device) = (["home", "old", "new"][at].to_owned(), at as u64 + 1);
        Disk::new(DiskConfig { name, capacity: 64 << 20, device, volatile: false, model })
    };
    let machine = Simulated::of([disk(HOME), disk(OLD), disk(NEW)], 1);
    let first = machine.open(Some(OLD)).unwrap();
    let (_, handle) = first.create("f");
    first.write_ranges(handle, &pattern(1, 6 * RANGE as usize));
    start_emptying(&first);
    first.volume.tick();
    assert_eq!((state(&first, "slow"), ranges(&first, "slow")), ("draining", 0));
    first.volume.release(handle).unwrap();
    first.close();
    let second = machine.open(None).unwrap();
    let moments = Arc::new(Mutex::new(Vec::new()));
    for disk in &machine.disks {
        let (moments, disks) = (Arc::clone(&moments), machine.disks.clone());
        let freeze = move |what: String| {
            moments.lock().unwrap().push((what, std::array::from_fn(|at| disks[at].freeze())));
        };
        disk.set_observer(Some(Arc::new(move |effect| freeze(effect.to_string()))));
    }
    second.volume.replace_tier(machine.slow(Some(NEW))).unwrap();
    machine.disks.iter().for_each(|disk| disk.set_observer(None));
    assert_eq!(state(&second, "slow"), "online");
    let mut moments = std::mem::take(&mut *moments.lock().unwrap());
    moments.push(("the end".to_owned(), std::array::from_fn(|at| machine.disks[at].freeze())));
    moments
}

#[test]
fn a_tier_in_the_place_of_one_that_was_emptied_takes_ranges_whenever_a_crash_comes() {
    for model in [Model::EXT4, Model::WORST] {
        let moments = record_replacement(model);
        let (mut on_old, mut on_new) = (0, 0);
        for (at, (what, disks)) in moments.iter().enumerate() {
            for seed in 0..6 {
                let context = format!("moment {at}, before {what}, seed {seed}");
                match Simulated::after(disks, seed).open(Some(NEW)) {
                    Ok(open) => {
                        assert_eq!(state(&open, "slow"), "online", "{context}");
                        on_new += 1;
                    }
                    Err(_) => {
                        let old = Simulated::after(disks, seed).open(None);
                        old.map(drop).unwrap_or_else(|error| panic!("{context}: {error}"));
                        on_old += 1;
                    }
                }
            }
        }
        assert!(on_old > 10 && on_new > 3, "{on_old} {on_new}");
    }
}

#[test]
fn a_policy_that_names_a_tier_keeps_it() {
    let bed = Bed::new();
    let policy = PolicyConfig::named("size").unwrap().with([("large", SettingValue::tier("slow"))]).unwrap();
    let first = open(VolumeConfig { policy, ..bed.config() });
    let error = first.volume.remove_tier("slow").unwrap_err();
    assert!(error.errno() == Errno::EBUSY && error.to_string().contains("policy names"), "{error}");
    first.close();
}

#[test]
fn what_was_removed_does_not_keep_a_tier_and_what_is_open_without_a_name_does() {
    let bed = Bed::new();
    let data = pattern(3, 8 * RANGE as usize);
    let first = bed.open();
    let (_, handle) = first.create("f");
    first.write_ranges(handle, &data);
    first.volume.unlink(&caller(), InodeId::ROOT, std::ffi::OsStr::new("f")).unwrap();
    assert_eq!(first.volume.remove_tier("slow").unwrap_err().errno(), Errno::ENOTEMPTY);
    assert!(first.read(handle, 0, data.len()) == data);
    first.volume.release(handle).unwrap();
    first.volume.remove_tier("slow").unwrap();
    first.close();
    is_well(only(&bed, &[]));
}

/// It may be all that there is of a file that a walk of all names overlooked.
#[test]
fn an_object_that_no_index_explains_keeps_a_tier_until_a_check_has_looked() {
    let bed = Bed::new();
    bed.open().close();
    let config = bed.config();
    config.tiers[0].store.as_ref().unwrap().create(ObjectId([7; 16])).unwrap();
    let open = Open { volume: Volume::open(config).unwrap() };
    let error = open.volume.remove_tier("slow").unwrap_err();
    assert_eq!(error.errno(), Errno::ENOTEMPTY);
    assert!(error.to_string().contains("1 object that no index explains"), "{error}");
    open.close();
    check(bed.config(), true, &mut |_| {}).unwrap();
    let open = bed.open();
    open.volume.remove_tier("slow").unwrap();
    open.close();
}

#[test]
fn a_tier_can_be_removed_while_files_are() {
    let bed = Bed::new();
    let open = bed.open();
    let (stop, unlinked) = (AtomicBool::new(false), AtomicU64::new(0));
    let data = pattern(9, 2 * RANGE as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                let name = format!("f{}", turn % 7);
                let (_, handle) = open.create(&name);
                open.write_ranges(handle, &data);
                open.volume.release(handle).unwrap();
                open.volume.unlink(&caller(), InodeId::ROOT, std::ffi::OsStr::new(&name)).unwrap();
                unlinked.store(turn + 1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // Files are removed between any two steps of some of these.
        for turn in 0.. {
            let name = format!("t{}", turn % 3);
            let full = Reserve::Percent(100.0);
            open.volume.add_tier(TierConfig { reserve: full, ..bed.tier(&name) }).unwrap();
            let removed = open.volume.remove_tier(&name);
            let is_last = turn >= 29 && unlinked.load(Ordering::Relaxed) > 20;
            if is_last || removed.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            removed.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
            if is_last {
                break;
            }
        }
    });
    open.close();
    is_well(bed.config());
}

#[test]
fn a_tier_that_is_being_emptied_stays_drained_over_mounts_until_that_is_cancelled() {
    let bed = Bed::new();
    let first = bed.open();
    let id = start_emptying(&first);
    first.kill();
    let second = bed.open();
    assert_eq!(state(&second, "slow"), "draining");
    let (_, handle) = second.create("f");
    second.write_ranges(handle, &pattern(4, 8 * RANGE as usize));
    assert_eq!(ranges(&second, "slow"), 0);
    second.volume.cancel_job(id).unwrap();
    second.close();
    let third = bed.open();
    assert_eq!(state(&third, "slow"), "online");
    third.write_ranges(third.create("g").1, &pattern(4, 8 * RANGE as usize));
    assert!(ranges(&third, "slow") > 0);
    third.close();
}

#[test]
fn what_is_written_to_a_tier_that_is_set_to_read_only_goes_elsewhere() {
    let bed = Bed::new();
    let data = pattern(5, 8 * RANGE as usize);
    let first = bed.open();
    let (ino, handle) = first.create("f");
    first.write_ranges(handle, &data);
    let before = ranges(&first, "slow");
    let readonly = |yes| TierChange { readonly: Some(yes), ..TierChange::default() };
    first.volume.set_tier("slow", readonly(true)).unwrap();
    assert_eq!(first.volume.set_tier("fast", readonly(true)).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(state(&first, "slow"), "read-only");
    assert!(first.read(handle, 0, data.len()) == data);
    assert_eq!(ranges(&first, "slow"), before);
    for range in 0..8 {
        first.write(handle, range * RANGE + 5, b"changed");
    }
    first.write(handle, 8 * RANGE, &data);
    assert_eq!(ranges(&first, "slow"), 0);
    let mut expected = data.clone();
    (0..8).for_each(|range| expected[range * RANGE as usize + 5..][..7].copy_from_slice(b"changed"));
    assert!(first.read(handle, 0, expected.len()) == expected);
    assert_eq!(first.volume.move_range(ino, 0, "slow", &mut || {}).unwrap_err().errno(), Errno::ENOSPC);
    first.volume.set_tier("slow", readonly(false)).unwrap();
    first.volume.move_range(ino, 0, "slow", &mut || {}).unwrap();
    first.close();
    is_well(bed.config());
}

#[test]
fn weight_and_reserve_count_from_now_on() {
    let bed = Bed::new();
    let first = bed.open();
    let change = TierChange { weight: Some(Some(1000.0)), ..TierChange::default() };
    first.volume.set_tier("slow", change).unwrap();
    let (_, handle) = first.create("f");
    first.write_ranges(handle, &pattern(6, 20 * RANGE as usize));
    assert!(ranges(&first, "slow") >= 18);
    let change = TierChange { reserve: Some(Reserve::Percent(100.0)), ..TierChange::default() };
    first.volume.set_tier("slow", change).unwrap();
    assert_eq!(state(&first, "slow"), "full");
    let error = first.volume.set_tier("nope", change).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOENT);
    first.close();
}

#[test]
fn numbers_are_given_again_when_nothing_can_name_them() {
    let bed = Bed::new();
    let data = pattern(7, 4 * RANGE as usize);
    let first = bed.open();
    let (ino, handle) = first.create("f");
    // Before there are others that the policy might choose.
    first.write_ranges(handle, &data);
    for turn in 0..130_u64 {
        let name = format!("t{turn}");
        first.volume.add_tier(bed.tier(&name)).unwrap();
        first.write(handle, 0, &data);
        first.volume.move_range(ino, turn % 4 * RANGE, &name, &mut || {}).unwrap();
        first.volume.fsync(&caller(), handle, false).unwrap();
        assert_eq!(ranges(&first, &name), 1);
        assert!(first.read(handle, 0, data.len()) == data, "turn {turn}");
        assert_eq!(first.volume.remove_tier(&name).unwrap_err().errno(), Errno::ENOTEMPTY);
        first.volume.move_range(ino, turn % 4 * RANGE, "fast", &mut || {}).unwrap();
        first.volume.remove_tier(&name).unwrap();
    }
    first.close();
    is_well(bed.config());
}
