//! The daemon is repeatedly killed under a mixed load; data acknowledged as
//! synced must be there after the next mount.
//!
//! The writers are threads of this process and know the acknowledged
//! operations: `kill9/model.rs` has the possible states of a file,
//! `kill9/writer.rs` makes the load.

mod model;
pub(super) mod writer;

use crate::arena::{ADAPTIVE, HOME_FIRST, RANGE, SIZE, WEIGHTED, policy_name};
use crate::load::load;
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Result};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier};
use braid_tests_support::options::Options;
use std::path::Path;
use writer::{BLOCKS, Writer};

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "kill9",
    about: "the daemon is killed under load; nothing synced is lost",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

const WRITERS: u64 = 4;

fn trials(options: &Options) -> Vec<Trial> {
    let seed = options.seed;
    if let Some(on) = options.on.clone() {
        return vec![Trial::case("the load, without a kill", move || native(&on, seed))];
    }
    let rounds = options.iterations.unwrap_or_else(|| options.scale(4, 8, 50));
    let trial = |(policy, at): (&'static str, u64)| {
        let rounds = (rounds + 3 - at) / 4;
        let trial = Trial::new(policy_name(policy), move |report| kill(policy, seed + at, rounds, report));
        (rounds > 0).then(|| trial.by_root())
    };
    [WEIGHTED, ADAPTIVE, SIZE, HOME_FIRST].into_iter().zip(0..).filter_map(trial).collect()
}

fn kill(policy: &str, seed: u64, rounds: u64, report: &mut Report) -> Result<()> {
    let mut killed = Killed::set_up(policy, seed)?;
    (1..=rounds).try_for_each(|round| {
        let title = format!("round {round} of {rounds}, {}", policy_name(policy));
        report.case(&title, || killed.round())
    })
}

/// The load on a plain directory: shows that the checker accepts correct
/// results.
fn native(on: &Path, seed: u64) -> Result<()> {
    let dir = on.join(format!("braid-kill9-{}", std::process::id()));
    std::fs::create_dir_all(&dir).at(&dir)?;
    let mut writers = make_writers(&dir, seed)?;
    let mut random = SplitMix::new(seed);
    let result = (0..5).try_for_each(|_| {
        let enough = 50 + random.below(400) as usize;
        load(&mut writers, Writer::work, (enough, 0), || Ok(()))?;
        writers.iter_mut().try_for_each(Writer::verify)
    });
    std::fs::remove_dir_all(&dir).at(&dir)?;
    result
}

fn make_writers(dir: &Path, seed: u64) -> Result<Vec<Writer>> {
    (0..WRITERS).map(|number| Writer::new(dir, number, BLOCKS, seed * WRITERS + number)).collect()
}

/// A volume that is killed in rounds.
struct Killed {
    lab: Lab,
    mount: Mount,
    writers: Vec<Writer>,
    random: SplitMix,
}

impl Killed {
    fn set_up(policy: &str, seed: u64) -> Result<Self> {
        let mut lab = Lab::for_suite("kill9")?;
        let home = lab.file_system("home", Kind::Ext4, 1024)?;
        let other = lab.file_system("other", Kind::Xfs, 1024)?;
        let tiers = vec![Tier::new("home", &home, 100), Tier::new("other", &other, 100)];
        let stack = Stack::new(policy, RANGE, tiers);
        let mount = lab.volume("mnt", &stack)?;
        let writers = make_writers(&mount.point, seed)?;
        lab.unmount(&mount)?;
        Ok(Self { lab, mount, writers, random: SplitMix::new(seed) })
    }

    /// Mount, load, kill; mount, verify, unmount, check.
    fn round(&mut self) -> Result<()> {
        let Self { lab, mount, writers, random } = self;
        lab.mount_by_child(mount)?;
        let enough = 20 + random.below(400) as usize;
        load(writers, Writer::work, (enough, 0), || lab.kill_daemon())?;
        lab.clear_mount(mount)?;
        lab.mount_by_child(mount).context("mount after the kill")?;
        writers.iter_mut().try_for_each(Writer::verify)?;
        lab.unmount(mount)?;
        let checked = lab.fsck(mount).context("fsck after recovery");
        if checked.is_err() {
            // Each round is judged by itself.
            lab.repair(mount)?;
        }
        checked.map(drop)
    }
}
