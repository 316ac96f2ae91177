//! The Debian package: made, installed, looked at and purged.

use super::{Report, Suite};
use crate::error::Result;
use crate::test::Options;
use crate::{dist, paths, setup};

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "package",
    about: "the Debian package installed in an empty directory, its parts used, and purged",
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<()> {
    if options.on.is_some() {
        report.skip("package", "is about a volume");
        return Ok(());
    }
    setup::dist()?;
    report.case("install, use, purge", || dist::in_directory(&dist::build(&paths::braid())?))
}
