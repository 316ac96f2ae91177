//! The crash explorer (`testkit::crash`): planted bugs have to be found, and
//! nothing else.

use crate::trial::{Suite, Trial};
use braid_tests_support::error::Result;
use braid_tests_support::options::Options;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "crash",
    about: "power is lost at any moment, on simulated disks",
    on_request: false,
    on_directories: false,
    trials,
};

/// With this seed, all planted bugs are found soon; with others it takes
/// minutes. Whether they are found does not depend on it.
const PLANTED_SEED: &str = "2";

fn trials(options: &Options) -> Vec<Trial> {
    let planted = Trial::case("each planted bug is found", || {
        explore(&["--features", "braid-volume/failpoints"], &["--states", "1000000", "--seed", PLANTED_SEED])
    });
    let states = options.iterations.unwrap_or_else(|| options.scale(20_000, 100_000, 1_000_000));
    let seed = options.seed.to_string();
    // Full optimisation only pays for a long search.
    let build: &[&str] = if options.long { &["--release"] } else { &[] };
    let search = Trial::new("nothing else is found", move |report| {
        let title = format!("{states} crash states or more, seed {seed}");
        report.case(&title, || explore(build, &["--states", &states.to_string(), "--seed", &seed]))
    });
    vec![planted, search]
}

/// Runs the explorer, which prints its findings, with the way to repeat them.
fn explore(build: &[&str], arguments: &[&str]) -> Result<()> {
    // As part of all tests, so that shared crates are built once.
    let test = ["test", "--quiet", "--workspace", "--locked", "--test", "crash"];
    cmd("cargo").args(test).args(build).arg("--").args(arguments).dir(&paths::root()).run()
}
