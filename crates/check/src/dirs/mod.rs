//! The `.braid` directories of tiers: their permissions, and names that do not
//! belong there.

pub(crate) mod counts;
pub(crate) mod jobs;
pub(crate) mod listings;
pub(crate) mod marks;
pub(crate) mod shards;

use crate::findings::{Findings, When};
use crate::report::Problem;
use crate::tree::look;
use braid_contract::{Access, Fd, FileKind, NativeStat, Result, Shown};
use braid_home::{TEMPORARIES, names_in};
use std::ffi::OsStr;

/// Permissions of others than the owner: all of them, and those to write.
const OTHERS: u16 = 0o077;
const OTHERS_WRITE: u16 = 0o022;

/// The `.braid` directory of a tier.
pub(crate) struct BraidDir<'d> {
    pub(crate) fd: &'d Fd,
    pub(crate) tier: &'d str,
    /// The user to whom all of it has to belong.
    pub(crate) owner: u32,
    pub(crate) is_mounted: bool,
}

impl BraidDir<'_> {
    /// Checks the directory itself, and the names in it.
    pub(crate) fn check(&self, known: &[&str], findings: &mut Findings) -> Result<()> {
        self.guard_by(OTHERS, self.fd, &self.fd.stat()?, ".braid", findings);
        // Names are read by a descriptor of their own, which has a position.
        let dir = self.fd.open_at(OsStr::new("."), Access::Directory)?;
        for name in names_in(&*dir)? {
            let Some((fd, stat)) = look(&**self.fd, &name)? else { continue };
            let shown = format!(".braid/{}", name.shown());
            if known.iter().any(|known| name == *known) {
                self.guard(&fd, &stat, &shown, findings);
            } else if TEMPORARIES.iter().any(|temporary| name == *temporary) {
                self.temporary(self.fd, &name, &shown, findings);
            } else {
                findings.found(foreign_file(&shown, self.tier));
            }
        }
        Ok(())
    }

    /// Reports a file or directory that others than the owner can change.
    pub(crate) fn guard(&self, fd: &Fd, stat: &NativeStat, shown: &str, findings: &mut Findings) {
        self.guard_by(OTHERS_WRITE, fd, stat, shown, findings);
    }

    fn guard_by(&self, mask: u16, fd: &Fd, stat: &NativeStat, shown: &str, findings: &mut Findings) {
        let (attr, owner) = (&stat.attr, self.owner);
        if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return;
        }
        if attr.uid != owner {
            let what = format!("{shown} belongs to user {} and not to {owner}", attr.uid);
            let problem = Problem::damage("owner", what).tier(self.tier).repair("gives it to the right user");
            findings.mend(problem, When::Now, || fd.set_owner(Some(owner), None));
        }
        if attr.mode & mask != 0 {
            let what = format!("{shown} has mode {:04o}: others than its owner get at it", attr.mode);
            let problem = Problem::damage("mode", what).tier(self.tier).repair("takes that permission away");
            findings.mend(problem, When::Now, || fd.set_mode(u32::from(attr.mode & !mask)));
        }
    }

    /// Reports a file that was to replace another one when the system crashed.
    pub(crate) fn temporary(&self, dir: &Fd, name: &OsStr, shown: &str, findings: &mut Findings) {
        // On a mounted volume, it may be about to replace the file.
        if self.is_mounted {
            return;
        }
        let problem = Problem::note("temporary", format!("{shown} was left by a crash"));
        let problem = problem.tier(self.tier).repair("removes it");
        findings.mend(problem, When::Unmounted, || dir.remove_at(name, false));
    }
}

/// The problem of a file in `.braid` that is not Braid's.
pub(crate) fn foreign_file(shown: &str, tier: &str) -> Problem {
    let problem = Problem::note("foreign-file", format!("{shown} is not Braid's"));
    problem.tier(tier).repair("nothing is done: remove it by hand")
}
