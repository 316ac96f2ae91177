//! Which files are reported as having ranges on a tier that can't be relied on.

use crate::common::{Bed, Open, RANGE, caller, faulty, pattern};
use braid_contract::TierState;
use braid_contract::{Errno, FileSystem, ObjectId};
use braid_stores::fault::{FaultControl, FaultKind, FaultOp, FaultRule};
use braid_volume::{AffectedFile, FileLayout, Volume};
use std::collections::BTreeMap;

/// A volume whose other tier fails on request.
fn open(bed: &Bed) -> (Open, FaultControl) {
    let mut config = bed.config();
    let control = faulty(&mut config);
    (Open { volume: Volume::open(config).unwrap() }, control)
}

fn everything_fails(control: &FaultControl) {
    let rule = FaultRule::each(FaultOp::All, FaultKind::Fail(Errno::EIO));
    control.set(vec![rule]);
}

/// Offset, length, and the tier's state.
type Runs = Vec<(u64, u64, String)>;

/// By path, the stretches with the tier's state; `None` if the index can't be
/// read.
fn affected(open: &Open) -> BTreeMap<String, Option<Runs>> {
    let mut files = BTreeMap::new();
    open.volume
        .affected(&mut |AffectedFile { path, runs }| {
            let runs = runs
                .ok()
                .map(|runs| runs.iter().map(|run| (run.offset, run.len, run.state.clone())).collect());
            files.insert(path.display().to_string(), runs);
            Ok(())
        })
        .unwrap();
    files
}

/// The ranges of the file on the other tier, as `explain` reports them.
fn on_slow(open: &Open, name: &str, state: &str) -> Runs {
    let explained = open.volume.explain(open.lookup(name).unwrap()).unwrap();
    let runs = explained.runs.iter().filter(|run| run.tier.as_ref().is_some_and(|tier| tier.id.0 == 1));
    runs.map(|run| (run.offset, run.len, state.to_owned())).collect()
}

fn id_of(open: &Open, name: &str) -> ObjectId {
    match open.volume.explain(open.lookup(name).unwrap()).unwrap().layout {
        FileLayout::Spread { id } | FileLayout::Whole { id } => id,
        FileLayout::Plain => panic!("{name} is plain"),
    }
}

fn make(open: &Open, name: &str, len: u64) {
    let (_, handle) = open.create(name);
    open.write_ranges(handle, &pattern(len, len as usize));
    open.volume.release(handle).unwrap();
}

#[test]
fn exactly_the_files_on_a_failing_tier_and_their_bytes_are_told() {
    let bed = Bed::new();
    let (open, control) = open(&bed);
    open.volume.mkdir(&caller(), braid_contract::InodeId::ROOT, "dir".as_ref(), 0o755, 0).unwrap();
    make(&open, "plain", 1000);
    make(&open, "spread", 7 * RANGE + 100);
    assert!(affected(&open).is_empty());

    everything_fails(&control);
    let handle = open.open(open.lookup("spread").unwrap());
    let (offset, ..) = on_slow(&open, "spread", "")[0];
    let read = open.volume.read(&caller(), handle, offset, &mut [0; 10], true);
    assert_eq!(read.unwrap_err().errno(), Errno::EIO);
    let tiers = open.volume.status().tiers;
    assert_eq!(tiers.last().map(|tier| tier.state), Some(TierState::Failing));
    let expected = on_slow(&open, "spread", "failing");
    assert_eq!(affected(&open), BTreeMap::from([("spread".into(), Some(expected))]));

    // When the tier answers again, nothing is affected.
    open.volume.release(handle).unwrap();
    control.clear();
    open.wait_until_online();
    assert!(affected(&open).is_empty());
    open.close();
}

#[test]
fn a_file_whose_index_is_damaged_is_told_as_unknown() {
    let bed = Bed::new();
    let (open, _) = open(&bed);
    make(&open, "a", 5 * RANGE);
    make(&open, "b", 5 * RANGE);
    let (expected, id) = (on_slow(&open, "b", "absent"), id_of(&open, "a").to_string());
    open.close();
    let index = bed.path("home").join(".braid/index").join(&id[..2]).join(&id);
    std::fs::write(&index, [0xff; 8192]).unwrap();

    let mut config = bed.config();
    config.tiers[0].store = None;
    let open = Open { volume: Volume::open(config).unwrap() };
    assert_eq!(affected(&open), BTreeMap::from([("a".into(), None), ("b".into(), Some(expected))]));
    open.close();
}
