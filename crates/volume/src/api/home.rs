//! Replacing home while the volume is in use, on request.

use crate::jobs::JobStatus;
use crate::rehome::{Bystanders, Held, RehomeProgress, RehomeReport};
use crate::volume::Volume;
use braid_contract::{Errno, Error, Fd, JobKind, RefusalKind, Result};
use braid_home::Home;
use braid_tiers::rate::{IoClass, Pace};

/// The caller that replaces home: a job, or a request that waits for the end.
pub(crate) struct Replacer<'v> {
    pub(crate) volume: &'v Volume,
    pub(crate) job: Option<u64>,
}

impl Bystanders for Replacer<'_> {
    fn hold(&self) -> Box<dyn Held + '_> {
        Box::new((self.volume.jobs.list.hold(self.job), self.volume.movers.rounds.hold()))
    }

    fn io_class(&self) -> IoClass {
        self.job.map_or(IoClass::UnguardedJob, |job| self.volume.jobs.list.io_class(job))
    }

    fn commit(&self) -> bool {
        self.job.is_none_or(|job| self.volume.jobs.list.commit(job))
    }

    fn keep_done(&self, new: &Home) -> Result<()> {
        self.job.map_or(Ok(()), |job| self.volume.jobs.keep_done(job, new))
    }

    fn switched(&self) {
        if let Some(job) = self.job {
            self.volume.jobs.note_switched(job);
        }
    }
}

impl Volume {
    /// Makes the empty directory `root` home, while the volume is in use: names
    /// and data of the present home are copied there, and open files stay open.
    /// `location` names its place in messages, and is how the next mount finds
    /// it. Ends with `ECANCELED` when `tell` answers `false`, unless it is too
    /// late for that.
    ///
    /// # Errors
    /// Then the present home stays home, and the copies are removed. `EBUSY`
    /// beside a check or another replacement, `EOPNOTSUPP` where files can't be
    /// opened by handle, `EEXIST` and `ENOTEMPTY` for a directory that is in
    /// use, `EROFS`, `ENOSPC`; those of both directories.
    pub fn replace_home(
        &self,
        root: &Fd,
        location: &str,
        tell: &mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<RehomeReport> {
        let _alone = self.core.maintenance.try_lock().ok_or_else(not_alone)?;
        let pace = Pace::new(None, &self.throttles.paces);
        let beside = Replacer { volume: self, job: None };
        self.home_replacement.replace(root, location, (&pace, &beside), tell)
    }

    /// Checks a directory that is to become home.
    pub(crate) fn check_new_home(&self, root: &Fd) -> Result<()> {
        let _alone = self.core.maintenance.try_lock().ok_or_else(not_alone)?;
        self.home_replacement.check(root)
    }

    /// Starts a job that makes the empty directory `root` home, as
    /// [`replace_home`](Self::replace_home) does.
    ///
    /// # Errors
    /// `EBUSY` beside a check, `EEXIST` beside another such job; those of
    /// [`replace_home`](Self::replace_home) that are known at once, and of the
    /// home tier.
    pub fn start_replacing_home(
        &self,
        root: Fd,
        location: &str,
        bandwidth: Option<u64>,
    ) -> Result<JobStatus> {
        self.jobs.may_replace_home()?;
        self.check_new_home(&root)?;
        let what = JobKind::ReplaceHome { dir: location.to_owned() };
        self.jobs.begin(what, bandwidth, |id| self.jobs.list.update(id, |job| job.rehome.root = Some(root)))
    }

    /// Checks that no other job keeps home from being replaced.
    ///
    /// # Errors
    /// `EEXIST` if a job replaces home, or removes its copies.
    pub fn may_replace_home(&self) -> Result<()> {
        self.jobs.may_replace_home()
    }
}

fn not_alone() -> Error {
    let what = "a check or another replacement of the home tier is under way: wait for it to end";
    Error::refused(Errno::EBUSY, RefusalKind::Busy, what)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rehome::RehomePhase;
    use crate::{HomeConfig, MoversConfig, VolumeConfig};
    use braid_contract::{Caller, FileSystem, InodeId, OpenFlags, WriteFlags};
    use braid_placement::{EPOCH_NS_DEFAULT, PolicyConfig, Reserve};
    use braid_stores::native::Machine;
    use braid_stores::native::open_tier_dir;
    use std::ffi::OsStr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    /// Pieces of the file, each with a byte of data.
    const PIECES: u64 = 40;

    fn config(root: Fd) -> VolumeConfig {
        VolumeConfig {
            home: HomeConfig {
                name: "home".into(),
                root,
                location: "home".into(),
                weight: None,
                profile: None,
                reserve: Reserve::Bytes(0),
            },
            tiers: Vec::new(),
            range_size: None,
            policy: PolicyConfig::named("weighted").expect("it is in the table"),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: EPOCH_NS_DEFAULT,
            heat_budget: crate::HEAT_BUDGET_DEFAULT,
            monitor: false,
            movers: MoversConfig::NONE,
            create: true,
            environment: Arc::new(Machine),
        }
    }

    #[test]
    fn a_cap_that_applications_are_faster_than_does_not_hold_it_up_for_ever() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let [home, new] = ["home", "new"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            open_tier_dir(&dir.path().join(name)).unwrap()
        });
        let volume = Volume::open(config(home)).unwrap();
        let (caller, flags) = (Caller::root(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let name = OsStr::new("f");
        let made = volume.create(&caller, InodeId::ROOT, name, 0o100_644, 0, true, flags.into()).unwrap();
        let write = |byte: u8| {
            for piece in 0..PIECES {
                let at = piece << 20;
                volume.write(&caller, made.1.handle, at, &[byte], WriteFlags::default()).unwrap();
            }
        };
        write(1);
        let pace = Pace::new(Some((PIECES * 4096 * 2) as f64), &volume.throttles.paces);
        let (mut once, end, (done, is_done)) = (None, AtomicBool::new(false), mpsc::channel::<()>());
        let mut tell = |progress: &RehomeProgress| {
            if progress.phase == RehomePhase::CatchingUp
                && 2 * progress.bytes > 7 * *once.get_or_insert(progress.bytes)
            {
                // Home was copied, and the changes more than twice.
                pace.set_rate(Some(0.0));
            }
            true
        };
        let replaced = std::thread::scope(|scope| {
            scope.spawn(|| (2..=255).cycle().take_while(|_| !end.load(Ordering::Relaxed)).for_each(write));
            let pace = &pace;
            scope.spawn(move || {
                if is_done.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                    pace.stop();
                }
            });
            let replaced = {
                let beside = Replacer { volume: &volume, job: None };
                volume.home_replacement.replace(&new, "new", (pace, &beside), &mut tell)
            };
            end.store(true, Ordering::Relaxed);
            drop(done);
            replaced
        });
        assert!(replaced.is_ok(), "{replaced:?}");
        volume.shutdown().unwrap();
    }
}
