//! Marks of files in use, and the records of interrupted operations.

use super::foreign_file;
use crate::findings::{Findings, When};
use crate::report::Problem;
use crate::target::CheckTarget;
use crate::tree::dir_if_there;
use braid_contract::{ObjectId, Result, Shown, counted};
use braid_format::Mark;
use braid_home::{RECORD, copy_begun, names_in};
use std::collections::HashSet;

/// Reads the marks, and answers the ids of marked files. With `is_partial`, only
/// some files are checked, and the directory itself is not.
pub(crate) fn check_marks(
    target: &CheckTarget<'_>,
    is_partial: bool,
    findings: &mut Findings,
) -> Result<HashSet<ObjectId>> {
    let home = &target.home_name;
    let mut marked = HashSet::new();
    match dir_if_there(&*target.braid, "open")? {
        Some(open) => {
            for name in names_in(&*open)? {
                match Mark::parse(&name) {
                    Some(mark) => _ = marked.insert(mark.id),
                    None if is_partial => {}
                    None => _ = findings.found(foreign_file(&format!(".braid/open/{}", name.shown()), home)),
                }
            }
        }
        None if is_partial => {}
        None => {
            let problem = Problem::damage("directory-missing", ".braid/open is missing").tier(home);
            findings.mend(problem.repair("makes it"), When::Unmounted, || target.braid.ensure_dir_at("open"));
        }
    }
    if !marked.is_empty() && !target.is_mounted() {
        let count = counted(marked.len() as u64, "file");
        let what = format!("not unmounted cleanly: {count} in use or being removed");
        let problem = Problem::note("not-clean", what).tier(home);
        findings.found(problem.repair("recovers them, as the next mount does"));
    }
    Ok(marked)
}

/// Reports the operations that were interrupted, or that are unknown to this
/// version.
pub(crate) fn check_intents(target: &CheckTarget<'_>, findings: &mut Findings) -> Result<()> {
    let home = &target.home_name;
    let Some(intents) = dir_if_there(&*target.braid, "intent")? else { return Ok(()) };
    for name in names_in(&*intents)? {
        if name == RECORD
            && let Ok(Some(copy)) = copy_begun(&target.home.root())
        {
            let what = format!("the home tier was being copied to {copy}, and that was not completed");
            let repair = "gives the copy up, as the next mount does";
            findings.found(Problem::note("home-copy", what).tier(home).repair(repair));
            continue;
        }
        let what = format!(".braid/intent/{} tells of an operation that is not known", name.shown());
        let repair = "nothing is done: a later version of Braid may know it";
        findings.found(Problem::note("intent-unknown", what).tier(home).repair(repair));
    }
    Ok(())
}
