//! The Debian package: made, installed, looked at and purged.

use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::Result;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "package",
    about: "the Debian package installed in an empty directory, its parts used, and purged",
    on_request: false,
    on_directories: false,
    turn: Turn::Machine,
    trials: |_| vec![Trial::case("install, use, purge", test)],
};

/// The package is of the command that the suites use, and of the library that
/// was built beside it; of a release if they have none.
fn test() -> Result<()> {
    let dist = ["run", "--quiet", "--locked", "--package", "xtask", "--", "dist", "--test"];
    cmd("cargo").args(dist).dir(&paths::root()).quiet()
}
