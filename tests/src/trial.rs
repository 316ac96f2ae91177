//! Trials: the units that the test harness runs and names, each of one check or
//! several.

use crate::report::{Report, Verdict};
use braid_testkit::{ALL_TESTS, must_run_all};
use braid_tests_support::counts::Counts;
use braid_tests_support::error::{Failure, Result};
use braid_tests_support::options::Options;
use braid_tests_support::sh::{can_be_root, is_root, uninterrupted};

/// A suite: its name, its description, and its trials.
pub struct Suite {
    /// The name, which the names of its trials begin with.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Whether it takes hours, and runs only when it is named.
    pub on_request: bool,
    /// Whether it can run in a directory instead of a volume.
    pub on_directories: bool,
    /// The trials among which its trials take turns; those of another kind run beside them.
    pub turn: Turn,
    /// Its trials, where it can run.
    pub(crate) trials: fn(&Options) -> Vec<Trial>,
}

impl Suite {
    /// Its trials, as these options want them.
    pub fn trials(&self, options: &Options) -> Vec<Trial> {
        match options.on {
            Some(_) if !self.on_directories => vec![Trial::skipped(self.name, "is about a volume")],
            _ => (self.trials)(options),
        }
    }
}

/// The main need of a suite's trials: two with the same one would wait for one another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Mounts and loads.
    Machine,
    /// A processor: they make no mounts.
    Processor,
    /// Patience: they wait for tiers that hang or fail.
    Waiting,
}

/// A check by its title.
pub(crate) type Case = (&'static str, fn() -> Result<()>);

/// The privileges that a trial needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rights {
    None,
    /// To run programs as the superuser.
    Sudo,
    /// To be the superuser.
    Root,
}

/// Makes checks and reports them; answers an error if it could not go on.
type Checks = dyn FnOnce(&mut Report) -> Result<()> + Send;

/// A part of a suite that can run alone.
pub struct Trial {
    name: String,
    rights: Rights,
    run: Box<Checks>,
}

impl Trial {
    /// A trial of several checks, which make a [`Report`].
    pub(crate) fn new(title: &str, run: impl FnOnce(&mut Report) -> Result<()> + Send + 'static) -> Self {
        Self { name: name_of(title), rights: Rights::None, run: Box::new(run) }
    }

    /// A trial that is one check.
    pub(crate) fn case(title: &str, test: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self::new(title, |report| report.only_case(test))
    }

    /// A trial that can't be carried out with the options given.
    fn skipped(title: &str, reason: &'static str) -> Self {
        Self::new(title, move |report| {
            report.skip_all(reason);
            Ok(())
        })
    }

    /// Marks it as one that only the superuser can carry out.
    #[must_use]
    pub(crate) fn by_root(self) -> Self {
        Self { rights: Rights::Root, ..self }
    }

    /// Marks it as one that makes file systems, and so needs the superuser's
    /// rights, or `sudo`; unless the options name a directory to work in.
    #[must_use]
    pub(crate) fn on_file_systems(self, options: &Options) -> Self {
        let rights = if options.on.is_some() { Rights::None } else { Rights::Sudo };
        Self { rights, ..self }
    }

    /// Its name within the suite.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Carries it out; answers how that ended, and how many checks did.
    pub fn run(self) -> (Verdict, Counts) {
        if let Err(Failure(reason)) = uninterrupted() {
            return skipped(reason);
        }
        if let Some(needs) = self.rights.lacking() {
            return without(needs);
        }
        let mut report = Report::default();
        let ended = (self.run)(&mut report);
        if let Err(Failure(reason)) = uninterrupted().and(ended) {
            report.broke_off(&reason);
        }
        report.verdict()
    }
}

impl Rights {
    fn lacking(self) -> Option<&'static str> {
        match self {
            Self::Root if !is_root() => Some("root"),
            Self::Sudo if !can_be_root() => Some("root, or sudo without a password"),
            _ => None,
        }
    }
}

fn without(needs: &str) -> (Verdict, Counts) {
    if must_run_all() {
        let reason = format!("needs {needs}, and {ALL_TESTS} is set");
        return (Verdict::Failed(reason), Counts { failed: 1, ..Counts::default() });
    }
    skipped(format!("needs {needs}"))
}

fn skipped(reason: String) -> (Verdict, Counts) {
    (Verdict::Skipped(reason), Counts { skipped: 1, ..Counts::default() })
}

/// A title as a name that a command line takes without quotes.
fn name_of(title: &str) -> String {
    let words = title.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_tests_support::error::fail;

    #[test]
    fn a_title_becomes_a_name() {
        assert_eq!(name_of("a tier answers EIO to reads"), "a_tier_answers_eio_to_reads");
        assert_eq!(name_of("ext4 + xfs, home-first"), "ext4_xfs_home-first");
    }

    #[test]
    fn a_trial_fails_if_a_check_does_and_the_others_are_made() {
        let trial = Trial::new("two", |report| {
            report.case("bad", || fail("reason"))?;
            report.case("good", || Ok(()))
        });
        let (verdict, counts) = trial.run();
        assert!(matches!(verdict, Verdict::Failed(text) if text == "bad: reason"));
        assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_trial_of_one_check_counts_as_one() {
        let (verdict, counts) = Trial::case("one", || Ok(())).run();
        assert!(matches!(verdict, Verdict::Passed));
        assert_eq!(counts, Counts { passed: 1, ..Counts::default() });
        let (verdict, counts) = Trial::case("one", || fail("reason")).run();
        assert!(matches!(verdict, Verdict::Failed(text) if text == "reason"));
        assert_eq!(counts, Counts { failed: 1, ..Counts::default() });
    }

    #[test]
    fn a_trial_that_checks_nothing_fails() {
        let (verdict, counts) = Trial::new("none", |_| Ok(())).run();
        assert!(matches!(verdict, Verdict::Failed(_)));
        assert_eq!(counts.failed, 1);
    }

    #[test]
    fn what_is_skipped_as_a_whole_has_not_passed() {
        let (verdict, counts) = Trial::skipped("none", "reason").run();
        assert!(matches!(verdict, Verdict::Skipped(text) if text == "reason"));
        assert_eq!(counts, Counts { skipped: 1, ..Counts::default() });
    }
}
