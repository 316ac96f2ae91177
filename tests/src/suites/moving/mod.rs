//! Tiers come and go, and data moves, while fio, SQLite and RocksDB work; the
//! daemon is restarted and killed in the midst of it. Nothing may be lost, no
//! program may see an error, and a check must find nothing, after each case on
//! the mounted volume and in the end on the tiers.

mod bed;
mod kills;
mod loads;
mod movers;

use crate::arena::ADAPTIVE;
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use bed::Bed;
use braid_tests_support::error::{Result, ensure};
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "moving",
    about: "tiers come and go under fio, SQLite and RocksDB",
    on_request: false,
    on_directories: false,
    turn: Turn::Machine,
    trials,
};

fn trials(options: &Options) -> Vec<Trial> {
    let rounds = options.scale(1, 1, 10);
    let trials = [
        Trial::new("tiers come and go", tiers_come_and_go),
        Trial::new("the daemon is restarted and killed", move |report| restarts_and_kills(rounds, report)),
        Trial::new("movers at work", movers::run),
    ];
    trials.into_iter().map(Trial::by_root).collect()
}

fn tiers_come_and_go(report: &mut Report) -> Result<()> {
    let mut bed = Bed::set_up(&[("home", Kind::Ext4, 512, 100), ("other", Kind::Xfs, 512, 100)], ADAPTIVE)?;
    for (name, kind) in [("third", Kind::Ext4), ("fourth", Kind::Btrfs), ("new-home", Kind::Xfs)] {
        bed.lab.file_system(name, kind, 512)?;
    }
    tiers_change(&mut bed, report)?;
    bed.case(report, "an evacuation is cancelled", |bed| {
        bed.beside_loads(|bed| bed.cancel(bed.begin_slowly(&["tier", "evacuate", "other"])?))
    })?;
    bed.case(report, "a rebalance is cancelled", |bed| {
        bed.beside_loads(|bed| {
            bed.gather_on("third")?;
            bed.cancel(bed.begin_slowly(&["rebalance"])?)
        })
    })?;
    tiers_go(&mut bed, report)?;
    report.case("the check finds nothing", || bed.finish())
}

fn restarts_and_kills(rounds: u64, report: &mut Report) -> Result<()> {
    let tiers = [("home", Kind::Xfs), ("other", Kind::Xfs), ("fourth", Kind::Btrfs)];
    let mut bed = Bed::set_up(&tiers.map(|(name, kind)| (name, kind, 512, 100)), ADAPTIVE)?;
    // The new home.
    bed.lab.file_system("third", Kind::Ext4, 512)?;
    bed.case(report, "the daemon is restarted in the midst of an evacuation", Bed::restart_amid_evacuation)?;
    (1..=rounds).try_for_each(|round| kills::run(&mut bed, round, report))?;
    report.case("the check finds nothing after the kills", || bed.finish())
}

/// Changes made at once, or by jobs that end.
fn tiers_change(bed: &mut Bed, report: &mut Report) -> Result<()> {
    bed.case(report, "a tier is added, and the data rebalanced", |bed| {
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "add", &format!("third={},weight=100", bed.dir("third"))])?;
            bed.braid(&["rebalance"])
        })
    })?;
    bed.case(report, "settings of a tier are changed", |bed| {
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "set", "third", "weight=300", "reserve=5%"])?;
            bed.braid(&["tier", "set", "other", "readonly"])?;
            bed.braid(&["rebalance"])?;
            bed.braid(&["tier", "set", "other", "readonly=no"])
        })
    })?;
    bed.case(report, "files are pinned, moved, promoted and demoted", |bed| bed.beside_loads(move_files))
}

fn move_files(bed: &Bed) -> Result<()> {
    let (fio, sqlite, rocksdb) = (bed.path("fio"), bed.path("sqlite"), bed.path("rocksdb"));
    bed.braid(&["pin", &sqlite, "--recursive"])?;
    bed.braid(&["move", &fio, "--to", "third"])?;
    bed.braid(&["demote", &rocksdb])?;
    bed.braid(&["promote", &fio])?;
    bed.braid(&["unpin", &sqlite, "--recursive"])?;
    bed.braid(&["move", &sqlite, "--to", "other"])
}

/// Tiers that leave.
fn tiers_go(bed: &mut Bed, report: &mut Report) -> Result<()> {
    bed.case(report, "a tier is evacuated and removed, and added again", |bed| {
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "remove", "other"])?;
            bed.braid(&["tier", "add", &format!("other={},weight=100", bed.dir("other"))])?;
            bed.braid(&["rebalance"])
        })
    })?;
    bed.case(report, "a tier that is well is replaced by another", |bed| {
        bed.beside_loads(|bed| {
            bed.gather_on("third")?;
            let by = format!("fourth={},weight=100", bed.dir("fourth"));
            bed.braid(&["tier", "replace", "third", &by])?;
            let names = bed.tier_names()?;
            ensure(names == ["home", "other", "fourth"], || format!("the tiers are {names:?}"))
        })
    })?;
    bed.case(report, "home is replaced by a directory on another file system", |bed| {
        let dir = bed.dir("new-home");
        bed.beside_loads(|bed| bed.braid(&["tier", "replace", "home", &dir]))?;
        let home = bed.home()?;
        ensure(home == dir, || format!("home is at {home}"))
    })
}
