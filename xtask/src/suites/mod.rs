//! Suites of tests that go through the `braid` command and real mounts. A
//! suite is one file here with one constant [`Suite`], named in [`ALL`].

mod arena;
mod crash;
mod dbench;
mod differential;
mod faults;
mod fio_verify;
mod fsx;
mod kill9;
mod load;
mod loom;
mod moving;
mod package;
mod pjdfstest;
mod power;
mod programs;
mod report;
mod stamps;
mod stress_ng;
mod tiers;

pub(crate) use power::in_guest;
pub(crate) use report::{Counts, Report};

use crate::error::{Failure, Result, fail};
use crate::test::Options;

/// A suite: its name, what it does, and how to run it.
pub(crate) struct Suite {
    name: &'static str,
    about: &'static str,
    run: fn(&Options, &mut Report) -> Result<()>,
}

/// Every suite, in the order in which they run.
const ALL: &[Suite] = &[
    tiers::SUITE,
    pjdfstest::SUITE,
    fsx::SUITE,
    differential::SUITE,
    fio_verify::SUITE,
    programs::SUITE,
    stress_ng::SUITE,
    dbench::SUITE,
    crash::SUITE,
    loom::SUITE,
    faults::SUITE,
    kill9::SUITE,
    moving::SUITE,
    package::SUITE,
];

/// Suites that take hours: they run only when they are named.
const ON_REQUEST: &[Suite] = &[power::SUITE];

/// Prints the names of the suites.
pub(crate) fn list() {
    for suite in ALL.iter().chain(ON_REQUEST) {
        println!("{:14} {}", suite.name, suite.about);
    }
}

/// Runs the suites that the options name, or all.
pub(crate) fn run(options: &Options) -> Result<Counts> {
    let known = |name: &&String| ALL.iter().chain(ON_REQUEST).any(|suite| suite.name == **name);
    if let Some(unknown) = options.suites.iter().find(|name| !known(name)) {
        return fail(format!("no suite {unknown:?}; `cargo xtask test --list` lists them"));
    }
    let named = |suite: &&Suite| options.suites.iter().any(|name| name == suite.name);
    let usual = ALL.iter().filter(|suite| options.suites.is_empty() || named(suite));
    let wanted = usual.chain(ON_REQUEST.iter().filter(named));
    let mut total = Counts::default();
    for suite in wanted {
        total += run_one(suite, options)?;
    }
    Ok(total)
}

fn run_one(suite: &Suite, options: &Options) -> Result<Counts> {
    println!("== {}: {}", suite.name, suite.about);
    let mut report = Report::new();
    let ended = (suite.run)(options, &mut report);
    crate::sh::uninterrupted()?;
    if let Err(Failure(reason)) = ended {
        report.fail("set-up", &reason);
    }
    let (counts, seconds) = (report.counts(), report.seconds());
    println!("== {}: {counts} in {seconds:.0} s", suite.name);
    Ok(counts)
}
