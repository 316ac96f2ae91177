//! Tiers come and go, and data moves, while fio, SQLite and RocksDB work; the
//! daemon is restarted and killed in the midst of it. Nothing may be lost, no
//! program may see an error, and a check must find nothing.

mod loads;

use super::arena::{RANGE, WEIGHTED};
use super::load::load;
use super::{Report, Suite};
use crate::error::{Result, ensure, fail};
use crate::lab::{Kind, Lab, Mount, Stack, Tier};
use crate::sh::is_root;
use crate::test::Options;
use loads::Load;
use std::path::PathBuf;

/// Named in the list of suites.
pub(super) const SUITE: Suite =
    Suite { name: "moving", about: "tiers come and go under fio, SQLite and RocksDB", run };

/// Rounds of the loads, all together, before something is done and after.
const ROUNDS: (usize, usize) = (3, 6);

fn run(options: &Options, report: &mut Report) -> Result<()> {
    if options.on.is_some() || !is_root() {
        report.skip("moving", "needs a volume of its own and root, to make file systems");
        return Ok(());
    }
    let mut bed = Bed::set_up()?;
    report.case("a tier is added, and the data rebalanced", || {
        let third = bed.third.display().to_string();
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "add", &format!("third={third},weight=100")])?;
            bed.braid(&["rebalance"])
        })
    })?;
    report.case("settings of a tier are changed", || {
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "set", "third", "weight=300", "reserve=5%"])?;
            bed.braid(&["tier", "set", "other", "readonly"])?;
            bed.braid(&["rebalance"])?;
            bed.braid(&["tier", "set", "other", "readonly=no"])
        })
    })?;
    report.case("files are pinned, moved, promoted and demoted", || bed.beside_loads(Bed::move_files))?;
    report.case("an evacuation is cancelled", || {
        bed.beside_loads(|bed| {
            let job = bed.evacuate_slowly()?;
            bed.braid(&["job", "cancel", &job])
        })
    })?;
    report.case("a tier is evacuated and removed, and added again", || {
        bed.beside_loads(|bed| {
            bed.braid(&["tier", "remove", "other"])?;
            let other = bed.other.display().to_string();
            bed.braid(&["tier", "add", &format!("other={other},weight=100")])?;
            bed.braid(&["rebalance"])
        })
    })?;
    report.case("home is replaced by a directory on another file system", || {
        let (point, dir) = (bed.mount.point.display().to_string(), bed.new_home.display().to_string());
        bed.beside_loads(|bed| {
            bed.lab.braid().args(["tier", "replace", &point, "home", &dir]).read().map(drop)
        })
    })?;
    report.case("the daemon is restarted in the midst of an evacuation", || bed.restart())?;
    for round in 1..=options.scale(1, 2, 10) {
        let title = format!("the daemon is killed in the midst of an evacuation, round {round}");
        report.case(&title, || bed.kill())?;
    }
    report.case("the check finds nothing", || bed.finish())
}

struct Bed {
    lab: Lab,
    mount: Mount,
    other: PathBuf,
    third: PathBuf,
    new_home: PathBuf,
    loads: Vec<Load>,
}

impl Bed {
    fn set_up() -> Result<Self> {
        let mut lab = Lab::for_suite("moving")?;
        let home = lab.file_system("home", Kind::Ext4, 1024)?;
        let other = lab.file_system("other", Kind::Xfs, 1024)?;
        let third = lab.file_system("third", Kind::Ext4, 1024)?;
        let new_home = lab.file_system("new-home", Kind::Xfs, 1024)?;
        let tiers = vec![Tier::new("home", &home, 100), Tier::new("other", &other, 100)];
        let stack = Stack { policy: WEIGHTED.into(), range: RANGE.into(), tiers };
        let mount = lab.volume("mnt", &stack)?;
        lab.unmount(&mount)?;
        lab.mount_by_child(&mount)?;
        let loads = Load::all(&mount.point)?;
        Ok(Self { lab, mount, other, third, new_home, loads })
    }

    /// Does `what` while the loads run, each of which must see nothing of it.
    fn beside_loads(&mut self, what: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let mut loads = std::mem::take(&mut self.loads);
        let work = |load: &mut Load, done: &_, phase: &_| load.work(done, phase, false);
        let result = super::load::load(&mut loads, work, ROUNDS, || what(self));
        self.loads = loads;
        result
    }

    /// A command about the mounted volume.
    fn braid(&self, words: &[&str]) -> Result<()> {
        self.braid_reads(words).map(drop)
    }

    fn braid_reads(&self, words: &[&str]) -> Result<String> {
        let command = self.lab.braid().args(words);
        match words {
            ["job", ..] => command.arg("--mount").arg(&self.mount.point).read(),
            ["move" | "promote" | "demote" | "pin" | "unpin", ..] => command.read(),
            _ => command.arg(&self.mount.point).read(),
        }
    }

    fn move_files(&self) -> Result<()> {
        let path = |name: &str| self.mount.point.join(name).display().to_string();
        let (fio, sqlite, rocksdb) = (path("fio"), path("sqlite"), path("rocksdb"));
        self.braid(&["pin", &sqlite, "--recursive"])?;
        self.braid(&["move", &fio, "--to", "third"])?;
        self.braid(&["demote", &rocksdb])?;
        self.braid(&["promote", &fio])?;
        self.braid(&["unpin", &sqlite, "--recursive"])?;
        self.braid(&["move", &sqlite, "--to", "other"])
    }

    /// Starts to empty a tier so slowly that it is not done soon; answers the
    /// job's number.
    fn evacuate_slowly(&self) -> Result<String> {
        let evacuate = ["tier", "evacuate", "other", "--bandwidth", "256KiB/s", "--background", "--json"];
        let text = self.braid_reads(&evacuate)?;
        let id = text.split("\"id\":").nth(1).map(str::trim_start);
        let id = id.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        id.filter(|id| !id.is_empty()).map_or_else(|| fail(format!("no job in {text}")), Ok)
    }

    /// The job goes on by itself, and ends when it is let.
    fn finish_evacuation(&mut self, job: &str) -> Result<()> {
        self.beside_loads(|bed| {
            bed.braid(&["job", "set", job, "bandwidth=none"])?;
            bed.braid(&["job", "wait", job])
        })?;
        let text = self.braid_reads(&["tier", "list"])?;
        ensure(text.contains("draining"), || format!("tier other is not empty:\n{text}"))?;
        self.braid(&["tier", "evacuate", "other", "--undo"])?;
        self.beside_loads(|bed| bed.braid(&["rebalance"]))
    }

    fn restart(&mut self) -> Result<()> {
        let mut job = String::new();
        self.beside_loads(|bed| {
            job = bed.evacuate_slowly()?;
            Ok(())
        })?;
        self.lab.unmount(&self.mount)?;
        self.lab.mount_by_child(&self.mount)?;
        self.loads.iter().try_for_each(Load::verify)?;
        self.finish_evacuation(&job)
    }

    fn kill(&mut self) -> Result<()> {
        let mut job = String::new();
        self.beside_loads(|bed| {
            job = bed.evacuate_slowly()?;
            Ok(())
        })?;
        let Self { lab, mount, loads, .. } = self;
        let work = |load: &mut Load, done: &_, phase: &_| load.work(done, phase, true);
        load(loads, work, (ROUNDS.0, 0), || lab.kill_daemon())?;
        lab.clear_mount(mount)?;
        self.lab.mount_by_child(&self.mount)?;
        self.loads.iter().try_for_each(Load::verify)?;
        self.finish_evacuation(&job)
    }

    fn finish(&mut self) -> Result<()> {
        self.lab.unmount(&self.mount)?;
        self.lab.fsck(&self.mount).map(drop)
    }
}
