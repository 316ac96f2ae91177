//! Jobs of a volume over directories: the ranges they move, how they end, and
//! refused ones.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{Errno, FileSystem, InodeId, JobKind, JobState, SpeedBasis};
use braid_placement::{Condition, Reserve, RuleConfig};
use braid_stores::dir::DirStore;
use braid_testkit::sim::{Disk, DiskConfig, Model};
use braid_volume::{JobStatus, TierConfig, Volume, VolumeConfig};
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};

/// Ranges of the test file.
const RANGES: u64 = 8;
/// So slow that the second range is never moved while a test lasts.
const STUCK: Option<u64> = Some(1);

fn third(bed: &Bed, weight: f64) -> TierConfig {
    TierConfig { weight: Some(weight), ..bed.tier("third") }
}

fn open(config: VolumeConfig) -> Open {
    let volume = Volume::open(config).unwrap();
    volume.start_jobs(None).unwrap();
    Open { volume }
}

/// A volume with a spread file `name` of [`RANGES`].
fn with_file(bed: &Bed, name: &str) -> (Open, InodeId, Vec<u8>) {
    let open = open(bed.config());
    let data = pattern(1, (RANGES * RANGE) as usize);
    let (ino, handle) = open.create(name);
    open.write_ranges(handle, &data);
    open.volume.release(handle).unwrap();
    (open, ino, data)
}

/// Ranges of a file on the tier of this name.
fn on(open: &Open, ino: InodeId, tier: &str) -> u64 {
    let runs = open.volume.explain(ino).unwrap().runs;
    let on = |run: &&braid_contract::PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
    runs.iter().filter(on).map(|run| run.ranges).sum()
}

/// Polls until the job is as `wanted`.
fn until(open: &Open, id: u64, wanted: impl Fn(&JobStatus) -> bool) -> JobStatus {
    loop {
        let job = open.volume.job(id).unwrap();
        if wanted(&job) {
            return job;
        }
        assert!(!job.record.state.is_final(), "{job:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn ended(open: &Open, id: u64) -> JobStatus {
    until(open, id, |job| job.record.state.is_final())
}

fn done(open: &Open, what: JobKind) -> JobStatus {
    let id = open.volume.start_job(what, None).unwrap().record.id;
    let job = ended(open, id);
    assert_eq!(job.record.state, JobState::Done, "{job:?}");
    job
}

fn refused(open: &Open, what: JobKind) -> (Errno, String) {
    let error = open.volume.start_job(what, None).unwrap_err();
    (error.errno(), error.to_string())
}

fn move_to(path: &str, to: &str) -> JobKind {
    JobKind::Move { path: path.into(), to: to.into() }
}

fn evacuate(tier: &str) -> JobKind {
    JobKind::Evacuate { tier: tier.into(), then_remove: false }
}

fn content(open: &Open, ino: InodeId) -> Vec<u8> {
    let handle = open.open(ino);
    let data = open.read(handle, 0, open.size(ino) as usize);
    open.volume.release(handle).unwrap();
    data
}

fn is_clean(bed: &Bed) {
    let report = braid_volume::check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn promotion_and_demotion_agree_with_a_policy_that_puts_home_first() {
    let bed = Bed::new();
    let (first, ino, data) = with_file(&bed, "a");
    first.close();
    // Home is slower than the other tier, by its weight and by what was found.
    let mut config = bed.config();
    config.policy = braid_placement::PolicyConfig::named("home-first").unwrap();
    (config.home.weight, config.tiers[0].weight) = (Some(44.0), Some(66.0));
    let open = open(config);
    assert_eq!(open.lookup("a").unwrap(), ino);
    open.volume.believe_speed("slow", [(400e6, 1); 2], SpeedBasis::Measured);
    done(&open, JobKind::Promote { path: "a".into() });
    assert_eq!((on(&open, ino, "slow"), content(&open, ino) == data), (0, true));
    done(&open, JobKind::Demote { path: "a".into() });
    assert_eq!((on(&open, ino, "slow"), content(&open, ino) == data), (RANGES, true));
    open.close();
}

#[test]
fn what_was_found_of_a_tier_counts_and_not_its_weight_where_the_faster_one_is_meant() {
    let bed = Bed::new();
    let (open, ino, _) = with_file(&bed, "a");
    for (tier, rate) in [("fast", 20e6), ("slow", 60e6)] {
        open.volume.believe_speed(tier, [(rate, 1); 2], SpeedBasis::Measured);
    }
    done(&open, JobKind::Promote { path: "a".into() });
    assert_eq!(on(&open, ino, "slow"), RANGES);
    open.close();
}

#[test]
fn a_file_moves_and_a_tree() {
    let bed = Bed::new();
    let (open, ino, data) = with_file(&bed, "a");
    assert!(on(&open, ino, "fast") > 0 && on(&open, ino, "slow") > 0);
    let job = done(&open, move_to("a", "slow"));
    assert_eq!(on(&open, ino, "slow"), RANGES);
    assert_eq!((job.record.done.ranges, job.record.done.files), (RANGES / 2, 1));
    assert_eq!(job.record.total, Some(job.record.done));

    open.volume.mkdir(&caller(), InodeId::ROOT, OsStr::new("d"), 0o755, 0).unwrap();
    let dir = open.lookup("d").unwrap();
    let flags = braid_contract::OpenFlags { read: true, write: true, ..Default::default() };
    let made = open.volume.create(&caller(), dir, OsStr::new("p"), 0o100_644, 0, true, flags.into()).unwrap();
    open.write(made.1.handle, 0, b"plain");
    open.volume.release(made.1.handle).unwrap();
    done(&open, move_to("d", "slow"));
    assert_eq!(on(&open, made.0.attr.ino, "slow"), 1);
    assert_eq!(content(&open, made.0.attr.ino), b"plain");

    done(&open, move_to("", "fast"));
    assert_eq!((on(&open, ino, "fast"), on(&open, made.0.attr.ino, "fast")), (RANGES, 1));
    assert!(content(&open, ino) == data);
    open.close();
    is_clean(&bed);
}

#[test]
fn promotion_and_demotion_follow_the_weights() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.home.weight = Some(2.0);
    config.tiers.push(third(&bed, 3.0));
    let open = open(config);
    let (ino, handle) = open.create("a");
    open.write_ranges(handle, &pattern(2, (RANGES * RANGE) as usize));
    open.volume.release(handle).unwrap();
    done(&open, JobKind::Demote { path: "a".into() });
    assert_eq!(on(&open, ino, "slow"), RANGES);
    done(&open, JobKind::Promote { path: "a".into() });
    assert_eq!(on(&open, ino, "third"), RANGES);
    open.close();

    let equal = Bed::new();
    let (open, ..) = with_file(&equal, "a");
    let (errno, said) = refused(&open, JobKind::Promote { path: "a".into() });
    assert!(errno == Errno::EINVAL && said.contains("faster than another"), "{said}");
    open.close();
}

#[test]
fn a_new_tier_gets_its_share_and_a_second_run_moves_nothing() {
    let bed = Bed::new();
    let (open1, ino, data) = with_file(&bed, "a");
    let (plain, handle) = open1.create("small");
    open1.write(handle, 0, b"small");
    open1.volume.release(handle).unwrap();
    open1.close();
    let mut config = bed.config();
    config.tiers.push(third(&bed, 2.0));
    let open = open(config);
    assert_eq!(open.lookup("a").unwrap(), ino);
    open.lookup("small").unwrap();
    done(&open, JobKind::Rebalance {});
    // The order of tiers begins elsewhere for each file.
    for (tier, share) in [("fast", 2), ("slow", 2), ("third", 4_u64)] {
        assert!(on(&open, ino, tier).abs_diff(share) <= 1, "{tier}: {}", on(&open, ino, tier));
    }
    assert_eq!(open.volume.explain(plain).unwrap().layout, braid_volume::FileLayout::Plain);
    assert_eq!(done(&open, JobKind::Rebalance {}).record.done.ranges, 0);
    assert!(content(&open, ino) == data);
    open.close();
}

#[test]
fn an_evacuated_tier_is_empty_and_stays_so() {
    let bed = Bed::new();
    let (open1, ino, data) = with_file(&bed, "a");
    done(&open1, evacuate("slow"));
    assert_eq!((on(&open1, ino, "slow"), on(&open1, ino, "fast")), (0, RANGES));
    let slow =
        |open: &Open| open.volume.status().tiers.iter().find(|tier| tier.name == "slow").unwrap().ranges;
    assert_eq!(slow(&open1), 0);
    let (errno, said) = refused(&open1, move_to("a", "slow"));
    assert!(errno == Errno::EBUSY && said.contains("takes no new ranges"), "{said}");
    open1.close();

    // The same holds after the next mount.
    let open2 = open(bed.config());
    let (_, handle) = open2.create("b");
    open2.write_ranges(handle, &data);
    open2.volume.release(handle).unwrap();
    assert_eq!(slow(&open2), 0);
    open2.volume.undo_evacuation("slow").unwrap();
    assert_eq!(open2.volume.undo_evacuation("slow").unwrap_err().errno(), Errno::EINVAL);
    let (_, handle) = open2.create("c");
    open2.write_ranges(handle, &data);
    open2.volume.release(handle).unwrap();
    assert!(slow(&open2) > 0);
    open2.lookup("a").unwrap();
    assert!(content(&open2, ino) == data);
    open2.close();
    is_clean(&bed);
}

#[test]
fn files_without_a_name_leave_an_evacuated_tier_too() {
    let bed = Bed::new();
    let (open, ino, data) = with_file(&bed, "a");
    let handle = open.open(ino);
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("a")).unwrap();
    done(&open, evacuate("slow"));
    assert_eq!(on(&open, ino, "slow"), 0);
    assert!(open.read(handle, 0, data.len()) == data);
    open.volume.release(handle).unwrap();
    open.close();
    is_clean(&bed);
}

#[test]
fn a_job_is_paused_goes_on_and_is_cancelled() {
    let bed = Bed::new();
    let (open, ino, data) = with_file(&bed, "a");
    let id = open.volume.start_job(evacuate("slow"), STUCK).unwrap().record.id;
    until(&open, id, |job| job.record.done.ranges == 1);
    assert_eq!(open.volume.pause_job(id).unwrap().record.state, JobState::Paused);
    assert_eq!(open.volume.pause_job(id).unwrap_err().errno(), Errno::EINVAL);
    let (errno, said) = refused(&open, evacuate("slow"));
    assert!(errno == Errno::EEXIST && said.contains(&format!("job {id} evacuates")), "{said}");
    open.volume.resume_job(id).unwrap();
    until(&open, id, |job| job.record.done.ranges == 2);
    let cancelled = open.volume.cancel_job(id).unwrap().record;
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert!(on(&open, ino, "slow") > 0);
    // The tier takes new ranges again.
    let (b, handle) = open.create("b");
    open.write_ranges(handle, &data);
    open.volume.release(handle).unwrap();
    assert!(on(&open, b, "slow") > 0);
    for errno in
        [open.volume.resume_job(id), open.volume.cancel_job(id), open.volume.set_job_bandwidth(id, None)]
    {
        assert_eq!(errno.unwrap_err().errno(), Errno::EINVAL);
    }
    assert_eq!(open.volume.job(id + 1).unwrap_err().errno(), Errno::ENOENT);
    assert!(content(&open, ino) == data);
    open.close();
    is_clean(&bed);
}

#[test]
fn a_job_goes_on_after_the_volume_was_closed() {
    let bed = Bed::new();
    let (open1, ino, data) = with_file(&bed, "a");
    let id = open1.volume.start_job(move_to("a", "slow"), STUCK).unwrap().record.id;
    let other = open1.volume.start_job(move_to("a", "fast"), STUCK).unwrap().record.id;
    open1.volume.pause_job(other).unwrap();
    until(&open1, id, |job| job.record.done.ranges > 0);
    open1.close();

    // Nothing runs before it may.
    let volume = Volume::open(bed.config()).unwrap();
    assert_eq!(volume.job(id).unwrap().record.state, JobState::Running);
    let open2 = Open { volume };
    assert_eq!(open2.lookup("a").unwrap(), ino);
    open2.volume.set_job_bandwidth(id, None).unwrap();
    open2.volume.start_jobs(Some(1)).unwrap();
    let job = ended(&open2, id);
    assert_eq!((job.record.state, job.record.bandwidth), (JobState::Done, None));
    assert_eq!(on(&open2, ino, "slow"), RANGES);
    assert_eq!(open2.volume.job(other).unwrap().record.state, JobState::Paused);
    open2.volume.cancel_job(other).unwrap();
    assert_eq!(open2.volume.start_job(move_to("a", "slow"), None).unwrap().record.id, other + 1);
    assert!(content(&open2, ino) == data);
    open2.close();
    is_clean(&bed);
}

#[test]
fn what_can_not_be_done_is_refused_with_the_reason() {
    let bed = Bed::new();
    let (open, ..) = with_file(&bed, "a");
    for (what, errno, said) in [
        (move_to("a", "fats"), Errno::ENOENT, "there is no tier fats"),
        (move_to("missing", "slow"), Errno::ENOENT, "missing"),
        (move_to("../a", "slow"), Errno::EINVAL, "below the volume's root"),
        (move_to(".braid/volume", "slow"), Errno::EINVAL, "below the volume's root"),
        (evacuate("fast"), Errno::EINVAL, "is home"),
        (evacuate("none"), Errno::ENOENT, "there is no tier none"),
    ] {
        let (found, text) = refused(&open, what.clone());
        assert!(found == errno && text.contains(said), "{what}: {text}");
    }
    assert!(open.volume.jobs().is_empty());
    assert!(!bed.path("home/.braid/jobs").exists(), "something was made");
    open.close();
}

#[test]
fn too_little_room_is_refused_with_the_numbers() {
    let bed = Bed::new();
    let (open1, ino, _) = with_file(&bed, "a");
    open1.close();
    let mut config = bed.config();
    config.home.reserve = Reserve::Percent(100.0);
    let open2 = open(config);
    open2.lookup("a").unwrap();
    let (errno, said) = refused(&open2, evacuate("slow"));
    assert!(errno == Errno::ENOSPC && said.contains("tier slow holds 262144 bytes"), "{said}");
    assert!(said.contains("room for 0 bytes (fast 0 bytes)"), "{said}");
    let (errno, said) = refused(&open2, move_to("a", "fast"));
    assert!(errno == Errno::ENOSPC && said.contains("room for 0 bytes, and a has 262144 bytes"), "{said}");
    // For a tree, this is known after the count.
    let id = open2.volume.start_job(move_to("", "fast"), None).unwrap().record.id;
    let job = ended(&open2, id).record;
    assert_eq!(job.state, JobState::Failed);
    assert!(job.message.unwrap().contains("262144 bytes in 1 file"), "numbers");
    assert_eq!(on(&open2, ino, "slow"), RANGES / 2);
    open2.close();
}

#[test]
fn pinned_files_stay_where_they_are() {
    let bed = Bed::new();
    let (open1, ino, data) = with_file(&bed, "a");
    assert_eq!(open1.volume.pin("a", None, false).unwrap().changed, 1);
    assert_eq!(open1.volume.pin("a", None, false).unwrap().changed, 0);
    let pinned = |open: &Open| open.volume.explain(ino).unwrap().pin;
    assert_eq!(pinned(&open1), Some(None));
    let (errno, said) = refused(&open1, move_to("a", "slow"));
    assert!(errno == Errno::EBUSY && said.contains("a is pinned"), "{said}");
    let job = done(&open1, move_to("", "slow")).record;
    assert_eq!((job.done.ranges, job.skipped.get("pinned")), (0, Some(&1)));
    // The job can neither be seen nor changed.
    let names = open1.volume.listxattr(&caller(), ino).unwrap();
    assert!(!String::from_utf8(names).unwrap().contains("braid"));
    open1.close();

    let open2 = open(bed.config());
    open2.lookup("a").unwrap();
    assert_eq!(pinned(&open2), Some(None));
    assert_eq!(open2.volume.pin("", None, false).unwrap_err().errno(), Errno::EISDIR);
    assert_eq!(open2.volume.pin("", Some("slow"), true).unwrap().changed, 1);
    assert_eq!(pinned(&open2), Some(Some("slow".into())));
    done(&open2, move_to("a", "slow"));
    assert_eq!(on(&open2, ino, "slow"), RANGES);
    assert_eq!(refused(&open2, move_to("a", "fast")).0, Errno::EBUSY);
    // A tier that leaves takes no file with it.
    done(&open2, evacuate("slow"));
    assert_eq!(on(&open2, ino, "slow"), 0);
    open2.volume.unpin("a", false).unwrap();
    assert_eq!(pinned(&open2), None);
    assert!(content(&open2, ino) == data);
    open2.close();
    is_clean(&bed);
}

#[test]
fn files_that_a_rule_pins_leave_a_tier_that_goes_too() {
    for tiers in [vec!["slow".to_owned()], Vec::new()] {
        let bed = Bed::new();
        let named = !tiers.is_empty();
        let rule = RuleConfig {
            when: Condition::parse("true").unwrap(),
            stream: None,
            tiers,
            policy: None,
            pin: true,
            range_size: None,
        };
        let open = open(VolumeConfig { rules: vec![rule], ..bed.config() });
        let data = pattern(8, (RANGES * RANGE) as usize);
        let (ino, handle) = open.create("a");
        open.write_ranges(handle, &data);
        open.volume.release(handle).unwrap();
        assert!(on(&open, ino, "slow") > 0);
        let job = done(&open, move_to("", "fast")).record;
        assert_eq!((job.done.ranges, job.skipped.get("pinned")), (0, Some(&1)));
        // A tier that a rule names can't be removed.
        done(&open, JobKind::Evacuate { tier: "slow".into(), then_remove: !named });
        assert_eq!(on(&open, ino, "fast"), RANGES);
        assert_eq!(open.volume.status().tiers.len(), if named { 2 } else { 1 });
        assert!(content(&open, ino) == data);
        open.close();
    }
}

#[test]
fn a_job_that_removes_its_tier_by_now_is_not_ended() {
    let bed = Bed::new();
    let disk = Disk::new(DiskConfig {
        name: "slow".into(),
        capacity: 64 << 20,
        device: 1,
        volatile: false,
        model: Model::EXT4,
    });
    let mut config = bed.config();
    config.tiers[0].store = Some(Arc::new(DirStore::new(disk.root()).unwrap()));
    let open = open(config);
    let (ino, handle) = open.create("a");
    open.write_ranges(handle, &pattern(9, (RANGES * RANGE) as usize));
    open.volume.release(handle).unwrap();
    let what = JobKind::Evacuate { tier: "slow".into(), then_remove: true };
    let id = open.volume.start_job(what, STUCK).unwrap().record.id;
    let (volume, (tell, told)) = (Arc::clone(&open.volume), mpsc::channel());
    disk.set_observer(Some(Arc::new(move |effect| {
        // The tier is out of the volume, and its directory is cleared.
        if effect.to_string().contains("label") {
            let paused = volume.pause_job(id).map(|job| job.record.state);
            tell.send(paused.map_err(|error| (error.errno(), error.to_string()))).unwrap();
        }
    })));
    open.volume.set_job_bandwidth(id, None).unwrap();
    assert_eq!(ended(&open, id).record.state, JobState::Done);
    disk.set_observer(None);
    let (errno, said) = told.recv().unwrap().unwrap_err();
    assert!(errno == Errno::EBUSY && said.contains("too late"), "{said}");
    assert_eq!(on(&open, ino, "fast"), RANGES);
    assert_eq!(open.volume.status().tiers.len(), 1);
    open.close();
}

#[test]
fn a_store_that_could_not_be_cleared_is_told_of_by_the_job_that_removed_its_tier() {
    use braid_stores::fault::{FaultKind, FaultOp, FaultRule};
    let bed = Bed::new();
    let mut config = bed.config();
    let control = crate::common::faulty(&mut config);
    let open = open(config);
    control.set(vec![FaultRule::each(FaultOp::Label, FaultKind::Fail(Errno::EPERM))]);
    let job = done(&open, JobKind::Evacuate { tier: "slow".into(), then_remove: true }).record;
    let said = job.message.unwrap();
    assert!(said.contains("could not be cleared") && said.contains("remove its .braid directory"), "{said}");
    assert_eq!(open.volume.status().tiers.len(), 1);
    open.close();
}

#[test]
fn what_can_not_be_kept_is_as_it_was_and_can_be_tried_again() {
    let bed = Bed::new();
    let (open1, ..) = with_file(&bed, "a");
    let draining = |open: &Open| {
        open.volume.status().tiers.iter().find(|tier| tier.name == "slow").unwrap().state.name() == "draining"
    };
    let id = open1.volume.start_job(evacuate("slow"), STUCK).unwrap().record.id;
    until(&open1, id, |job| job.record.done.ranges == 1);
    // A directory in its place makes the write fail.
    let way = bed.path(&format!("home/.braid/jobs/{id}.new"));
    std::fs::create_dir(&way).unwrap();
    assert!(open1.volume.cancel_job(id).is_err() && open1.volume.pause_job(id).is_err());
    let record = open1.volume.job(id).unwrap().record;
    assert!(!record.state.is_final() && record.ended_ns.is_none() && record.holds, "{record:?}");
    assert!(draining(&open1));
    std::fs::remove_dir(&way).unwrap();
    assert_eq!(open1.volume.cancel_job(id).unwrap().record.state, JobState::Cancelled);
    assert!(!draining(&open1));

    let id = done(&open1, evacuate("slow")).record.id;
    open1.close();
    let way = bed.path(&format!("home/.braid/jobs/{id}.new"));
    std::fs::create_dir(&way).unwrap();
    // The obstacle does not keep the jobs from being read.
    let open2 = open(bed.config());
    assert!(draining(&open2) && open2.volume.job(id).unwrap().record.holds);
    open2.volume.undo_evacuation("slow").unwrap_err();
    assert!(draining(&open2));
    std::fs::remove_dir(&way).unwrap();
    open2.volume.undo_evacuation("slow").unwrap();
    assert!(!draining(&open2));
    open2.close();
    let open3 = open(bed.config());
    assert!(!draining(&open3));
    open3.close();
}

#[test]
fn damaged_jobs_are_passed_over_and_told() {
    let bed = Bed::new();
    let (open1, ..) = with_file(&bed, "a");
    for _ in 0..2 {
        done(&open1, move_to("a", "slow"));
    }
    open1.close();
    let file = bed.path("home/.braid/jobs/2");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"done\"", "\"dome\"")).unwrap();
    std::fs::write(bed.path("home/.braid/jobs/3.new"), "half").unwrap();
    let report = braid_volume::check(bed.config(), false, &mut |_| {}).unwrap();
    let codes: Vec<&str> = report.problems.iter().map(|problem| problem.code).collect();
    assert!(codes.contains(&"job-damaged") && codes.contains(&"temporary"), "{codes:?}");

    let open2 = open(bed.config());
    assert_eq!(open2.volume.jobs().len(), 1);
    // The number is not reused.
    assert_eq!(done(&open2, move_to("a", "fast")).record.id, 3);
    open2.close();
    let report = braid_volume::check(bed.config(), true, &mut |_| {}).unwrap();
    assert!(report.problems.iter().all(|problem| problem.repaired), "{:?}", report.problems);
    is_clean(&bed);
}

#[test]
fn only_so_many_jobs_that_have_ended_are_kept() {
    let bed = Bed::new();
    let (open1, ..) = with_file(&bed, "a");
    for _ in 0..40 {
        done(&open1, move_to("a", "slow"));
    }
    let ids = |open: &Open| open.volume.jobs().iter().map(|job| job.record.id).collect::<Vec<_>>();
    assert_eq!(ids(&open1), (9..=40).collect::<Vec<_>>());
    open1.close();
    let open2 = open(bed.config());
    assert_eq!(ids(&open2), (9..=40).collect::<Vec<_>>());
    open2.close();
}

#[test]
fn files_move_while_they_are_written_and_read() {
    const ROUNDS: u64 = 12;
    let bed = Bed::new();
    let (open, ino, mut data) = with_file(&bed, "a");
    let handle = open.open(ino);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 0..ROUNDS {
                done(&open, move_to("a", if round % 2 == 0 { "slow" } else { "fast" }));
            }
            done(&open, evacuate("slow"));
        });
        let mut round = 0;
        while !mover.is_finished() {
            round += 1;
            // Within a range, across a boundary, and at the end.
            for at in [round * 7919 % (RANGES * RANGE), RANGE * (round % RANGES), data.len() as u64] {
                let piece = pattern(round, 5000);
                open.write(handle, at, &piece);
                let end = at as usize + piece.len();
                data.resize(data.len().max(end), 0);
                data[at as usize..end].copy_from_slice(&piece);
                assert!(open.read(handle, at, piece.len()) == piece, "round {round} at {at}");
            }
            if data.len() > 4 * (RANGES * RANGE) as usize {
                open.truncate(ino, RANGES * RANGE);
                data.truncate((RANGES * RANGE) as usize);
            }
        }
        mover.join().unwrap();
    });
    assert!(content(&open, ino) == data, "the contents changed");
    assert_eq!(on(&open, ino, "slow"), 0);
    open.volume.release(handle).unwrap();
    open.close();
    is_clean(&bed);
}

#[test]
fn as_many_jobs_run_at_a_time_as_is_set() {
    let bed = Bed::new();
    let (open1, ino, _) = with_file(&bed, "a");
    open1.volume.start_jobs(Some(1)).unwrap();
    let first = open1.volume.start_job(move_to("a", "slow"), STUCK).unwrap().record.id;
    let second = open1.volume.start_job(move_to("a", "fast"), None).unwrap().record.id;
    until(&open1, first, |job| job.record.done.ranges == 1);
    assert_eq!(open1.volume.job(second).unwrap().record.state, JobState::Queued);
    open1.volume.cancel_job(first).unwrap();
    assert_eq!(ended(&open1, second).record.state, JobState::Done);
    assert_eq!(on(&open1, ino, "fast"), RANGES);
    open1.close();
}

#[test]
fn what_a_tier_in_trouble_holds_is_told_in_the_end() {
    use braid_stores::fault::{FaultKind, FaultOp, FaultRule};
    let bed = Bed::new();
    let (open1, ..) = with_file(&bed, "a");
    open1.close();
    let mut config = bed.config();
    let control = crate::common::faulty(&mut config);
    let open2 = open(config);
    control.set(vec![FaultRule::each(FaultOp::Read, FaultKind::Fail(Errno::EIO))]);
    let id = open2.volume.start_job(evacuate("slow"), None).unwrap().record.id;
    let job = ended(&open2, id).record;
    assert_eq!((job.state, job.errors), (JobState::Failed, RANGES / 2));
    let said = job.message.unwrap();
    assert!(said.starts_with("4 could not be moved; the first: a: offset "), "{said}");
    // The tier takes new data again, as soon as it is healthy.
    control.clear();
    assert_eq!(open2.volume.undo_evacuation("slow").unwrap_err().errno(), Errno::EINVAL);
    open2.close();
}
