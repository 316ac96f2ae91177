//! The job files in `.braid/jobs`.

use super::{BraidDir, foreign_file};
use crate::findings::{Findings, When};
use crate::report::Problem;
use crate::tree::{dir_if_there, look};
use braid_contract::{FileKind, Result, Shown};
use braid_home::job_files::{DIR, Wrong, problem_of};
use braid_home::names_in;

/// Checks that each job file can be read.
pub(crate) fn check_jobs(braid: &BraidDir<'_>, findings: &mut Findings) -> Result<()> {
    let Some(dir) = dir_if_there(&**braid.fd, DIR)? else { return Ok(()) };
    for name in names_in(&*dir)? {
        let shown = format!(".braid/{DIR}/{}", name.shown());
        let Some((fd, stat)) = look(&*dir, &name)? else { continue };
        if stat.attr.kind != FileKind::Regular {
            findings.found(foreign_file(&shown, braid.tier));
            continue;
        }
        braid.guard(&fd, &stat, &shown, findings);
        match problem_of(&*dir, &name)? {
            None => {}
            Some(Wrong::Foreign) => {
                findings.found(foreign_file(&shown, braid.tier));
            }
            Some(Wrong::Temporary) => braid.temporary(&dir, &name, &shown, findings),
            Some(Wrong::Damaged(why)) => {
                let what = format!("{shown}, which describes a job, is damaged: {why}");
                let problem = Problem::damage("job-damaged", what).tier(braid.tier);
                let problem =
                    problem.repair("removes it: the job does not go on, and no data is lost by that");
                findings.mend(problem, When::Unmounted, || dir.remove_at(&name, false));
            }
        }
    }
    Ok(())
}
