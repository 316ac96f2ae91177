//! The Debian package: made, installed, looked at and purged.

use crate::trial::{Suite, Trial};
use braid_tests_support::error::Result;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;
use braid_tests_support::tools::build_braid;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "package",
    about: "the Debian package installed in an empty directory, its parts used, and purged",
    on_request: false,
    on_directories: false,
    only_computes: false,
    trials: |_| vec![Trial::case("install, use, purge", test)],
};

/// The package is of the `braid` command that all suites use.
fn test() -> Result<()> {
    build_braid()?;
    let dist = ["run", "--quiet", "--locked", "--package", "xtask", "--", "dist", "--test"];
    cmd("cargo").args(dist).env("BRAID", paths::braid()).dir(&paths::root()).quiet()
}
