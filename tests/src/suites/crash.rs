//! The crash explorer (`testkit::crash`): planted bugs have to be found, and
//! nothing else; and those of the zoned store and of the log file system.

use crate::trial::{Suite, Trial, Turn};
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
    turn: Turn::Processor,
    trials,
};

/// With this seed, all planted bugs are found soon; with others it takes
/// minutes. Whether they are found does not depend on it.
const PLANTED_SEED: &str = "2";

fn trials(options: &Options) -> Vec<Trial> {
    let planted = Trial::case("each planted bug is found", || {
        let build = ["--features", "braid-volume/failpoints,braid-log/failpoints"];
        explore("crash", &build, &["--states", "1000000", "--seed", PLANTED_SEED])?;
        // Without arguments, it looks for its own first.
        explore("log_crash", &build, &[])
    });
    let states = options.iterations.unwrap_or_else(|| options.scale(10_000, 20_000, 1_000_000));
    let seed = options.seed.to_string();
    // Full optimisation only pays for a long search.
    let build: &[&str] = if options.long { &["--release"] } else { &[] };
    let search = |name, target| {
        let seed = seed.clone();
        Trial::new(name, move |report| {
            let title = format!("{states} crash states or more, seed {seed}");
            report
                .case(&title, || explore(target, build, &["--states", &states.to_string(), "--seed", &seed]))
        })
    };
    if options.suites.is_empty() {
        // Among all tests, the explorers search by themselves.
        return vec![planted];
    }
    vec![
        planted,
        search("nothing else is found", "crash"),
        search("nothing is found on zoned devices", "zoned_crash"),
    ]
}

/// Runs an explorer, which prints its findings, with the way to repeat them.
fn explore(target: &str, build: &[&str], arguments: &[&str]) -> Result<()> {
    // As part of all tests, so that shared crates are built once.
    let test = ["test", "--quiet", "--workspace", "--locked", "--test", target];
    cmd("cargo").args(test).args(build).arg("--").args(arguments).dir(&paths::root()).run()
}
