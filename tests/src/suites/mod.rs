//! The suites, through the `braid` command and real mounts. A suite is one file
//! here with one constant [`Suite`], named in [`ALL`].

mod crash;
mod dbench;
mod differential;
mod faults;
mod fio_verify;
mod fsx;
mod kill9;
mod loom;
mod moving;
mod package;
mod pjdfstest;
mod power;
mod programs;
mod rescue;
mod stress_ng;
mod tiers;

pub use power::guest::run as in_power_guest;

use crate::trial::Suite;
use braid_tests_support::error::{Result, fail};

/// Every suite, in the order in which they run.
pub const ALL: &[Suite] = &[
    rescue::SUITE,
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
    power::SUITE,
];

/// The suites of these names; of none, all.
pub fn named(names: &[String]) -> Result<Vec<&'static Suite>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|suite| suite.name != **name)) {
        return fail(format!("no suite {unknown:?}; `cargo xtask test --list` lists them"));
    }
    let wanted = |suite: &&Suite| names.is_empty() || names.iter().any(|name| name == suite.name);
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_tests_support::options::Options;
    use std::collections::BTreeSet;

    #[test]
    fn every_suite_has_trials_with_names_of_their_own() {
        for options in [Options::default(), Options { on: Some("/x".into()), ..Options::default() }] {
            for suite in ALL {
                let trials = suite.trials(&options);
                let names: BTreeSet<_> = trials.iter().map(|trial| trial.name().to_owned()).collect();
                assert!(!names.is_empty() && names.len() == trials.len(), "{}: {names:?}", suite.name);
            }
        }
    }

    #[test]
    fn a_suite_is_found_by_its_name() {
        let found = named(&["kill9".into(), "fsx".into()]).unwrap();
        assert_eq!(found.iter().map(|suite| suite.name).collect::<Vec<_>>(), ["fsx", "kill9"]);
        assert_eq!(named(&[]).unwrap().len(), ALL.len());
        assert!(named(&["fsy".into()]).is_err());
    }
}
