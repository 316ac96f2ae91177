//! The requests about the volume, its tiers and its jobs.

use super::Control;
use crate::stack_text::Edit;
use crate::tiers::{self, Settings};
use crate::{check, jobs, rehome, replacement};
use braid_contract::{Errno, JobId};
use braid_ipc::VolumeHandler;
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, HomeReplaced, ImportSurvey, Job,
    JobChange, LearnedStream, LearnedStreams, PinRequest, Pinned, Replaced, Replacing, Reply, StartJob,
    TierAdded, TierRemoved, TierSet,
};
use std::io;
use std::path::Path;
use std::sync::TryLockError;

impl VolumeHandler for Control {
    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply> {
        Ok(self.volume.explain(ino)?)
    }

    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        Ok(self.volume.affected(&mut |file| tell(file).map_err(|_| Errno::EINTR.into()))?)
    }

    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply> {
        self.volume.drill(tier, rules)
    }

    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply> {
        let _changing = self.mount.change()?;
        let replaced = replacement::replace(&self.volume, tier, Path::new(dir), &self.mount.mountpoint)?;
        let saved =
            self.mount.running.change(&[Edit::Set(tier.to_owned(), "dir", replaced.location.clone())]);
        Ok(Replaced { saved, ..replaced })
    }

    fn add_tier(&self, tier: &str, dir: &str, settings: &Settings) -> Result<TierAdded, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let (tier, edit) = tiers::add(&self.volume, tier, Path::new(dir), settings, &self.mount.mountpoint)?;
        Ok(TierAdded { tier, location: dir.to_owned(), saved: self.mount.running.change(&[edit]) })
    }

    fn set_tier(&self, tier: &str, settings: &Settings) -> Result<TierSet, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let edits = tiers::set(&self.volume, tier, settings)?;
        Ok(TierSet { tier: tier.to_owned(), saved: self.mount.running.change(&edits) })
    }

    fn remove_tier(&self, tier: &str, evacuate: bool) -> Result<TierRemoved, ErrorReply> {
        let _changing = self.mount.change()?;
        let removed = tiers::remove(&self.volume, tier, evacuate)?;
        Ok(TierRemoved {
            tier: tier.to_owned(),
            location: removed.location,
            not_cleared: removed.not_cleared,
            saved: self.mount.running.change(&[Edit::Remove(tier.to_owned())]),
        })
    }

    fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply> {
        jobs::survey_import(&self.volume, tier)
    }

    fn learned_streams(&self) -> LearnedStreams {
        let stream = |stream: braid_hint::LearnedStream| LearnedStream {
            name: braid_hint::learned_name(stream.number),
            life: braid_hint::life_of(stream.life_ns).name().to_owned(),
            life_seconds: stream.life_ns / 1_000_000_000,
            told: stream.kinds.iter().map(|kind| u64::from(kind.files)).sum(),
            files: stream.kinds.into_iter().map(|kind| kind.pattern).collect(),
        };
        LearnedStreams { streams: self.volume.volume.learned_streams().into_iter().map(stream).collect() }
    }

    fn start_job(&self, request: &StartJob) -> Result<Job, ErrorReply> {
        jobs::start(&self.volume, request, &self.mount.mountpoint)
    }

    fn jobs(&self) -> Vec<Job> {
        let jobs = jobs::all(&self.volume.volume);
        // A change of tiers may take long.
        if jobs.iter().any(|job| self.is_to_follow(job))
            && let Some(_changing) = self.mount.try_changing()
        {
            self.follow_volume();
        }
        jobs.into_iter().map(|job| self.with_stack_file(job)).collect()
    }

    fn job(&self, id: JobId, change: Option<JobChange>) -> Result<Job, ErrorReply> {
        let job = jobs::one(&self.volume.volume, id, change)?;
        if self.is_to_follow(&job) {
            self.follow();
        }
        Ok(self.with_stack_file(job))
    }

    fn undo_evacuation(&self, tier: &str) -> Result<(), ErrorReply> {
        jobs::undo_evacuation(&self.volume, tier)
    }

    fn pin(&self, request: &PinRequest) -> Result<Pinned, ErrorReply> {
        jobs::pin(&self.volume, request)
    }

    fn replace_home(
        &self,
        dir: &str,
        bandwidth: Option<u64>,
        tell: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        let job = rehome::start(&self.volume, Path::new(dir), bandwidth, &self.mount.mountpoint)?;
        let JobId::Number(id) = job.id else { return Err(ErrorReply::new("the job has no number")) };
        let replaced = rehome::wait(&self.volume, id, tell)?;
        self.follow();
        let saved = self.followed().jobs.get(&job.id).cloned().flatten();
        Ok(HomeReplaced { saved: saved.unwrap_or_default(), ..replaced })
    }

    fn replace_tier_by(
        &self,
        tier: &str,
        by: &str,
        dir: &str,
        settings: &Settings,
        bandwidth: Option<u64>,
    ) -> Result<Replacing, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let (added, edit, job) = tiers::replace_by(
            &self.volume,
            tier,
            (by, Path::new(dir), settings),
            bandwidth,
            &self.mount.mountpoint,
        )?;
        let saved = self.mount.running.change(&[edit]);
        Ok(Replacing { added: TierAdded { tier: added, location: dir.to_owned(), saved }, job })
    }

    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        // Two repairs would interfere with each other.
        let _checking = match self.checking.try_lock() {
            Ok(checking) => checking,
            // A check that panicked is over.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(ErrorReply::new("another check is under way; wait for it to end"));
            }
        };
        let report = check::of_mounted(&self.volume.volume, request, &mut |now| {
            tell(Reply::FsckProgress(now)).is_ok()
        })?;
        for problem in report.problems {
            tell(Reply::FsckProblem(problem)).map_err(|error| ErrorReply::new(error.to_string()))?;
        }
        Ok(report.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{StackFlags, parse};
    use crate::guard::CrashProtection;
    use crate::mount_control::{MountControl, MountSetup};
    use crate::upgrade::Launch;
    use crate::validate::MountPoint;
    use crate::wire;

    #[test]
    fn a_check_that_panicked_does_not_keep_others_from_theirs_and_one_under_way_does() {
        let dir = tempfile::tempdir().unwrap();
        let flags =
            StackFlags { tiers: vec![format!("home={}", dir.path().display())], ..StackFlags::default() };
        let config = parse(&flags).unwrap();
        let volume = wire::open(&config, true).unwrap();
        let (launch, point) = (Launch::default(), MountPoint::of(Path::new("/nowhere")));
        let setup = MountSetup { config: &config, launch: &launch, point: &point };
        let mount = MountControl::new(setup, None, CrashProtection::default());
        let control = Control::new(volume, mount);
        std::thread::scope(|scope| {
            let panics = || {
                let _checking = control.checking.lock().unwrap();
                panic!("meant to");
            };
            assert!(scope.spawn(panics).join().is_err());
        });
        let check = |paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            control.fsck(&FsckRequest { paths, ..FsckRequest::default() }, &mut |_| Ok(()))
        };
        assert_eq!(check(&[]).unwrap(), FsckSummary::default());
        for path in ["..", "../..", "/a/../../b"] {
            let error = check(&[path]).unwrap_err();
            assert_eq!(error.errno, Some(Errno::EINVAL.0), "{error}");
        }
        control.checking.clear_poison();
        let checking = control.checking.lock().unwrap();
        assert!(check(&[]).unwrap_err().message.contains("another check is under way"));
        drop(checking);
        control.volume.shutdown().unwrap();
    }
}
