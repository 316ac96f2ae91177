//! A file system other than a volume keeps the promises of the trait, and one
//! that breaks a promise is detected.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_testkit::conformance::file_system::{Fresh, Part, cases, run};
use braid_testkit::dir_fs::{Choice, DirFs, Violation};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn fresh(make: impl Fn(&Path) -> DirFs) -> Fresh {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    Fresh::new(Arc::new(make(dir.path())), dir)
}

#[test]
fn cases_have_names_of_their_own() {
    for part in [Part::Namespace, Part::Data] {
        let names: Vec<_> = cases().filter(|(of, _)| *of == part).map(|(_, name)| name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}

#[test]
fn a_directory() {
    for choice in [Choice::Cached, Choice::Passthrough] {
        let make = || fresh(|dir| DirFs::new(dir, choice));
        run(&format!("a directory, {choice:?}"), &[Part::Namespace, Part::Data], &make).conclude();
    }
}

#[test]
fn planted_violations_fail_the_suite() {
    let planted = [
        (Violation::LosesRename, Part::Namespace, "a renamed file is what it was"),
        (Violation::ReplacesAnyway, Part::Namespace, "what must not be replaced is not"),
        (Violation::IgnoresUmask, Part::Namespace, "modes are masked and owners are the caller's"),
        (Violation::ListsAgain, Part::Namespace, "each name is listed once, however many are taken"),
        (Violation::TrustsCallers, Part::Namespace, "what is looked up is forgotten beside its removal"),
        (Violation::LosesUnlinked, Part::Data, "a file that is open outlives its name"),
        (Violation::PunchesNothing, Part::Data, "a punched hole reads as zeros"),
    ];
    for (violation, part, case) in planted {
        let report = run("a broken file system", &[part], &|| fresh(|dir| DirFs::breaking(dir, violation)));
        assert!(report.has_failed(case), "{violation:?}: {:?}", report.failed);
    }
}
