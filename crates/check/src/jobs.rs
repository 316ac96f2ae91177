//! The jobs that are kept in `.braid/jobs`.

use super::report::Problem;
use super::shelves::OTHERS_WRITE;
use super::tree::{dir_if_there, look};
use super::{Check, When};
use braid_contract::{Fd, FileKind, Result, Shown};
use braid_home::job_files::{DIR, Wrong, problem_of};
use braid_home::names_in;

impl Check<'_> {
    /// Whether each of them can be read.
    pub(super) fn jobs(&mut self, braid: &Fd, owner: u32, home: &str) -> Result<()> {
        let Some(dir) = dir_if_there(&**braid, DIR)? else { return Ok(()) };
        for name in names_in(&*dir)? {
            let shown = format!(".braid/{DIR}/{}", name.shown());
            let Some((fd, stat)) = look(&*dir, &name)? else { continue };
            if stat.attr.kind != FileKind::Regular {
                self.foreign(&shown, home);
                continue;
            }
            self.guard(&fd, &stat, OTHERS_WRITE, owner, &shown, home);
            match problem_of(&*dir, &name)? {
                None => {}
                Some(Wrong::Foreign) => self.foreign(&shown, home),
                Some(Wrong::Temporary) => self.temporary(&dir, &name, &shown, home),
                Some(Wrong::Damaged(why)) => {
                    let what = format!("{shown}, which describes a job, is damaged: {why}");
                    let problem = Problem::damage("job-damaged", what).tier(home);
                    let problem =
                        problem.repair("removes it: the job does not go on, and no data is lost by that");
                    self.mend(problem, When::Unmounted, |_| dir.remove_at(&name, false));
                }
            }
        }
        Ok(())
    }
}
