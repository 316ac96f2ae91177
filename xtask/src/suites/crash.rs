//! The crash explorer (`testkit::crash`): bugs on purpose have to be found, and
//! nothing else.

use super::{Report, Suite};
use crate::error::Result;
use crate::paths;
use crate::sh::cmd;
use crate::test::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite =
    Suite { name: "crash", about: "power is lost at any moment, on simulated disks", run };

/// With this one, all that are planted are found soon; with others it takes
/// minutes. Whether they are found does not depend on it.
const PLANTED_SEED: &str = "2";

fn run(options: &Options, report: &mut Report) -> Result<()> {
    if options.on.is_some() {
        report.skip("crash", "is about a volume");
        return Ok(());
    }
    let planted = || {
        explore(&["--features", "braid-volume/failpoints"], &["--states", "1000000", "--seed", PLANTED_SEED])
    };
    report.case("each planted bug is found", planted)?;
    let states = options.iterations.unwrap_or_else(|| options.scale(20_000, 100_000, 1_000_000)).to_string();
    let seed = options.seed.to_string();
    // Building with all optimisations pays for a long search only.
    let build: &[&str] = if options.long { &["--release"] } else { &[] };
    report.case(&format!("{states} crash states or more, seed {seed}"), || {
        explore(build, &["--states", &states, "--seed", &seed])
    })
}

/// Runs the explorer. What it finds, it prints, with the way to repeat it.
fn explore(build: &[&str], arguments: &[&str]) -> Result<()> {
    // As a part of all tests: what they are made of is built once.
    let test = ["test", "--quiet", "--workspace", "--locked", "--test", "crash"];
    cmd("cargo").args(test).args(build).arg("--").args(arguments).dir(&paths::root()).run()
}
