//! Room on tiers, over simulated disks whose clock hardly moves: which space
//! counts as taken, and what happens when there seems to be none.

use crate::common::{Open, caller, pattern};
use braid_contract::{Errno, FallocateMode, FileSystem, HandleId, InodeId, JobKind, JobState, WriteFlags};
use braid_placement::{Condition, PolicyConfig, Reserve, RuleConfig, SettingValue};
use braid_stores::dir::DirStore;
use braid_testkit::sim::{Disk, DiskConfig, Model, SimClock, SimEnvironment};
use braid_volume::{
    HomeConfig, MoverScope, MoversConfig, RangeSize, TierConfig, Volume, VolumeConfig, check,
};
use std::ffi::OsStr;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The tiers, home first.
const NAMES: [&str; 3] = ["fast", "slow", "third"];

/// The policy that puts all files on one tier.
fn all_on(tier: &str) -> PolicyConfig {
    let settings = [
        ("small", SettingValue::Size(0)),
        ("sync", SettingValue::Size(0)),
        ("large", SettingValue::tier(tier)),
    ];
    PolicyConfig::named("size").unwrap().with(settings).unwrap()
}

/// The disks and their environment.
struct Sim {
    disks: Vec<Disk>,
    environment: Arc<SimEnvironment>,
}

impl Sim {
    fn new(capacities: &[u64]) -> Self {
        let clock = Arc::new(SimClock::new());
        let disk = |(at, capacity): (usize, &u64)| {
            let (name, device) = (NAMES[at].to_owned(), at as u64 + 1);
            let config =
                DiskConfig { name, capacity: *capacity, device, volatile: false, model: Model::EXT4 };
            let disk = Disk::new(config);
            disk.set_clock(Arc::clone(&clock));
            disk
        };
        let disks = capacities.iter().enumerate().map(disk).collect();
        Self { disks, environment: Arc::new(SimEnvironment::new(clock, 1)) }
    }

    /// Without rules and movers; everything goes home.
    fn config(&self) -> VolumeConfig {
        let (weight, reserve) = (Some(1.0), Reserve::Bytes(0));
        let tier = |at: usize| TierConfig {
            name: NAMES[at].into(),
            store: Some(Arc::new(DirStore::new(self.disks[at].root()).unwrap())),
            location: NAMES[at].into(),
            weight,
            profile: None,
            reserve,
        };
        let home = HomeConfig {
            name: NAMES[0].into(),
            root: self.disks[0].root(),
            location: NAMES[0].into(),
            weight,
            profile: None,
            reserve,
        };
        VolumeConfig {
            home,
            tiers: (1..self.disks.len()).map(tier).collect(),
            range_size: None,
            policy: all_on(NAMES[0]),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
            heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
            monitor: true,
            movers: MoversConfig::NONE,
            create: true,
            environment: self.environment.clone(),
        }
    }

    fn assert_sound(&self) {
        let report = check(self.config(), false, &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

fn open(config: VolumeConfig) -> Open {
    Open { volume: Volume::open(config).unwrap() }
}

fn rule(when: &str, tier: Option<&str>, range: u64) -> RuleConfig {
    RuleConfig {
        when: Condition::parse(when).unwrap(),
        stream: None,
        tiers: tier.map(str::to_owned).into_iter().collect(),
        policy: None,
        pin: false,
        range_size: RangeSize::new(range as u32),
    }
}

/// Ranges of a file on the tier of this name.
fn on(open: &Open, ino: InodeId, tier: &str) -> u64 {
    let runs = open.volume.explain(ino).unwrap().runs;
    let on = |run: &&braid_contract::PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
    runs.iter().filter(on).map(|run| run.ranges).sum()
}

fn try_write(open: &Open, handle: HandleId, offset: u64, data: &[u8]) -> Result<usize, Errno> {
    let written = open.volume.write(&caller(), handle, offset, data, WriteFlags::default());
    written.map_err(|error| error.errno())
}

/// Carries a job out.
fn run(open: &Open, what: JobKind) {
    let id = open.volume.start_job(what, None).unwrap().record.id;
    open.volume.tick();
    let job = open.volume.job(id).unwrap().record;
    assert_eq!(job.state, JobState::Done, "{job:?}");
}

#[test]
fn small_files_with_long_ranges_take_no_more_room_than_they_have() {
    let sim = Sim::new(&[GIB, GIB]);
    let open = open(VolumeConfig { rules: vec![rule("true", Some("slow"), 64 * MIB)], ..sim.config() });
    let data = pattern(1, 4096);
    let make = |at: u64| {
        let (ino, handle) = open.create(&format!("f{at}"));
        open.write(handle, 0, &data);
        open.volume.release(handle).unwrap();
        ino
    };
    let files: Vec<InodeId> = (0..64).map(make).collect();
    assert!(files.iter().all(|ino| on(&open, *ino, "slow") == 1), "a rule was not followed");
    run(&open, JobKind::Evacuate { tier: "slow".into(), then_remove: false });
    assert!(files.iter().all(|ino| on(&open, *ino, "fast") == 1));
    open.volume.undo_evacuation("slow").unwrap();
    run(&open, JobKind::Move { path: String::new(), to: "slow".into() });
    assert!(files.iter().all(|ino| on(&open, *ino, "slow") == 1));
    open.close();
    sim.assert_sound();
}

#[test]
fn a_large_file_takes_whole_ranges_before_they_are_filled() {
    let sim = Sim::new(&[64 * MIB, 64 * MIB]);
    let mut config = sim.config();
    config.policy = all_on("slow");
    config.tiers[0].reserve = Reserve::Bytes(48 * MIB);
    let open = open(config);
    let handles: Vec<_> = (0..12).map(|at| open.create(&format!("f{at}"))).collect();
    for (_, handle) in &handles {
        open.write(*handle, 0, &vec![1; 2 * MIB as usize]);
        open.write(*handle, 2 * MIB, &[2]);
    }
    // There is room for seven ranges and a little: the first bytes of more of
    // them would be written to a tier that takes no more of the rest.
    let slow: u64 = handles.iter().map(|(ino, _)| on(&open, *ino, "slow")).sum();
    assert!((6..=7).contains(&slow), "{slow} ranges");
}

/// Fills a disk from outside the volume, which notices.
fn fill(sim: &Sim, disk: usize) {
    let other = sim.disks[disk].root().create_at(OsStr::new("other"), 0o600).unwrap();
    let (mut at, mut len) = (0, sim.disks[disk].config().capacity);
    while len >= 4 * KIB {
        match other.allocate(FallocateMode::Allocate { keep_size: false }, at, len) {
            Ok(()) => at += len,
            Err(_) => len /= 2,
        }
    }
    sim.environment.clock().advance(1_000_000_000);
}

/// Frees that space again, unnoticed by the volume.
fn free(sim: &Sim, disk: usize) {
    sim.disks[disk].root().remove_at(OsStr::new("other"), false).unwrap();
}

#[test]
fn a_tier_is_asked_again_before_there_is_said_to_be_no_room() {
    let sim = Sim::new(&[64 * MIB, 64 * MIB]);
    let mut config = sim.config();
    config.home.reserve = Reserve::Percent(100.0);
    let open = open(config);
    let (ino, handle) = open.create("f");
    open.write(handle, 0, b"f");
    fill(&sim, 1);
    assert_eq!(try_write(&open, handle, 2 * MIB, b"f"), Err(Errno::ENOSPC));
    free(&sim, 1);
    assert_eq!(try_write(&open, handle, 2 * MIB, b"f"), Ok(1));
    assert_eq!(on(&open, ino, "slow"), 2);

    let allocate = || {
        let mode = FallocateMode::Allocate { keep_size: false };
        open.volume.fallocate(&caller(), handle, 4 * MIB, 4 * MIB, mode).map_err(|error| error.errno())
    };
    fill(&sim, 1);
    assert_eq!(allocate(), Err(Errno::ENOSPC));
    free(&sim, 1);
    assert_eq!(allocate(), Ok(()));
    open.volume.release(handle).unwrap();
    open.close();
    sim.assert_sound();
}

#[test]
fn a_tier_is_asked_again_before_a_job_is_refused() {
    let sim = Sim::new(&[64 * MIB, 64 * MIB]);
    let open = open(sim.config());
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(2, 5 * MIB as usize));
    open.volume.release(handle).unwrap();
    let what = || JobKind::Move { path: "f".into(), to: "slow".into() };
    fill(&sim, 1);
    assert_eq!(open.volume.start_job(what(), None).unwrap_err().errno(), Errno::ENOSPC);
    free(&sim, 1);
    run(&open, what());
    assert_eq!(on(&open, ino, "slow"), 3);

    let what = || JobKind::Evacuate { tier: "slow".into(), then_remove: false };
    fill(&sim, 0);
    assert_eq!(open.volume.start_job(what(), None).unwrap_err().errno(), Errno::ENOSPC);
    free(&sim, 0);
    run(&open, what());
    assert_eq!(on(&open, ino, "fast"), 3);
    open.close();
    sim.assert_sound();
}

#[test]
fn a_file_that_can_not_be_spread_stays_on_home_while_that_has_room() {
    let sim = Sim::new(&[64 * MIB, 64 * MIB]);
    let open = open(VolumeConfig { policy: PolicyConfig::named("weighted").unwrap(), ..sim.config() });
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(3, 2 * MIB as usize));
    sim.disks[0].refuse(Some(("set xattr of", Errno::ENOSPC)));
    for _ in 0..3 {
        assert_eq!(try_write(&open, handle, 2 * MIB, b"more"), Ok(4));
    }
    sim.disks[0].refuse(None);
    open.write(handle, 4 * MIB, b"more");
    assert_eq!((on(&open, ino, "fast"), on(&open, ino, "slow")), (2, 1));
    open.volume.release(handle).unwrap();
    open.close();
    sim.assert_sound();
}

/// Three tiers of these weights; `slow` has room for 1 MiB, which is less than
/// a range, but more than one of files that there are none of.
fn with_little_room(sim: &Sim, weights: [f64; 3], movers: MoversConfig) -> Open {
    let mut config = sim.config();
    config.home.weight = Some(weights[0]);
    config.tiers.iter_mut().zip(&weights[1..]).for_each(|(tier, weight)| tier.weight = Some(*weight));
    config.tiers[0].reserve = Reserve::Bytes(63 * MIB);
    config.rules = vec![rule(r#"path.matches("*.never")"#, None, 64 * KIB)];
    config.movers = MoversConfig { watermark_high: 0.5, watermark_low: 0.3, bandwidth: Some(GIB), ..movers };
    open(config)
}

fn round(sim: &Sim, open: &Open) {
    sim.environment.clock().advance(3_000_000_000);
    open.volume.tick();
}

#[test]
fn a_full_tier_is_relieved_past_one_that_has_no_room_for_a_range() {
    let sim = Sim::new(&[64 * MIB; 3]);
    let movers = MoversConfig { demote: MoverScope::All, ..MoversConfig::NONE };
    let open = with_little_room(&sim, [3.0, 2.0, 1.0], movers);
    let (ino, handle) = open.create("f");
    (0..20).for_each(|at| open.write(handle, at * 2 * MIB, &pattern(at, 2 * MIB as usize)));
    open.volume.release(handle).unwrap();
    (0..3).for_each(|_| round(&sim, &open));
    assert!(on(&open, ino, "third") >= 10, "{:?}", open.volume.explain(ino));
    assert_eq!(on(&open, ino, "slow"), 0);
    open.close();
    sim.assert_sound();
}

#[test]
fn what_is_in_use_goes_to_the_next_tier_if_the_fastest_has_no_room_for_a_range() {
    let sim = Sim::new(&[64 * MIB; 3]);
    let movers = MoversConfig { promote: MoverScope::All, ..MoversConfig::NONE };
    let open = with_little_room(&sim, [1.0, 4.0, 2.0], movers);
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(4, 8 * MIB as usize));
    for _ in 0..6 {
        open.read(handle, 0, MIB as usize);
        round(&sim, &open);
    }
    assert_eq!((on(&open, ino, "third"), on(&open, ino, "slow")), (4, 0));
    open.volume.release(handle).unwrap();
    open.close();
    sim.assert_sound();
}
