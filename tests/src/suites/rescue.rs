//! The tests of the rescue script, which are Python's.

use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::counts::Counts;
use braid_tests_support::error::{Result, ensure};
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "rescue",
    about: "the rescue script's own tests",
    on_request: false,
    on_directories: false,
    turn: Turn::Machine,
    trials: |_| vec![Trial::new("test_rescue.py", test)],
};

fn test(report: &mut Report) -> Result<()> {
    let tests = paths::root().join("crates/cli/rescue/test_rescue.py");
    let output = cmd("python3").arg(tests).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let ran = text.lines().find_map(ran_tests).unwrap_or_default();
    ensure(output.status.success() && ran > 0, || text.into_owned())?;
    report.add(Counts { passed: ran, ..Counts::default() });
    Ok(())
}

/// Reads `Ran 25 tests in 0.5s`.
fn ran_tests(line: &str) -> Option<u64> {
    line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok()
}
