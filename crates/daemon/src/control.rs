//! The control socket of a mounted volume: the requests that any mount has; `volume` has those
//! about the volume.

use crate::beside::MountHandler;
use crate::fuse_session::FuseSession;
use crate::handle::VolumeHandle;
use crate::mount_control::MountControl;
use crate::reload::{self, Mounted};
use crate::stack_text::Edit;
use crate::{jobs, modify, tiers, trace};
use braid_contract::{AccessTimes, Caller, Errno, JobId, Renewal, RuntimeStatus};
use braid_ipc::protocol::{
    ErrorReply, Hello, Job, JobKind, JobState, KvAnswer, KvRequest, Modified, ModifyStack, ModuleUpgraded,
    Reloaded, Reply, Saved, StackDump, Status, TraceRequest, Upgrading,
};
use braid_ipc::{Handler, VolumeHandler};
use braid_modules::trace::Traced;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod volume;

/// The state of a mounted volume for the control socket.
pub(crate) struct Control {
    pub(crate) volume: VolumeHandle,
    /// Held while the volume is checked.
    checking: Mutex<()>,
    mount: MountControl,
    followed: Mutex<Followed>,
}

/// How far the stack file reflects completed jobs.
struct Followed {
    /// The location of home in the stack file.
    home: String,
    /// For each completed job, the outcome for the stack file; `None` if the
    /// job was done before the mount, or changed nothing there.
    jobs: BTreeMap<JobId, Option<Saved>>,
}

impl Control {
    pub(crate) fn new(volume: VolumeHandle, mount: MountControl) -> Self {
        let home = volume.volume.status().tiers.into_iter().find(|tier| tier.home);
        let home = home.map_or_else(String::new, |home| home.location);
        let jobs = jobs::all(&volume.volume);
        let jobs = jobs.iter().filter(|job| changed_tiers(job)).map(|job| (job.id, None)).collect();
        Self { volume, followed: Mutex::new(Followed { home, jobs }), checking: Mutex::new(()), mount }
    }

    /// Updates the stack file after completed jobs: a removed tier, or a moved
    /// home.
    pub(crate) fn follow(&self) {
        let _changing = self.mount.changing();
        self.follow_volume();
    }

    /// Notes the end of the mount: later changes of the tiers are not for the
    /// stack file.
    pub(crate) fn end(&self) {
        self.follow();
        self.mount.running.end();
    }

    fn follow_volume(&self) {
        // Before the tiers, so that these are in the state after the completed
        // jobs.
        let jobs = jobs::all(&self.volume.volume);
        let status = self.volume.volume.status();
        let names = status.tiers.iter().map(|tier| tier.name.as_str());
        // A tier that was left out may be in the file on purpose.
        let names: Vec<&str> = names.chain(status.left_out_tiers.iter().map(String::as_str)).collect();
        for gone in self.mount.running.missing(&names) {
            tiers::let_go(&self.volume, &gone);
            let saved = self.mount.running.change(&[Edit::Remove(gone.clone())]);
            self.followed().note(&jobs, saved, |what| what.removed_tier() == Some(&gone));
        }
        let known = self.followed().home.clone();
        if let Some(home) = status.tiers.iter().find(|tier| tier.home && tier.location != known) {
            let saved =
                self.mount.running.change(&[Edit::Set(home.name.clone(), "dir", home.location.clone())]);
            let mut followed = self.followed();
            followed.home.clone_from(&home.location);
            let came = |what: &JobKind| matches!(what, JobKind::ReplaceHome { dir } if *dir == home.location);
            followed.note(&jobs, saved, came);
        }
        let mut followed = self.followed();
        followed.jobs.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        for job in jobs.iter().filter(|job| changed_tiers(job)) {
            followed.jobs.entry(job.id).or_default();
        }
    }

    /// Adds the outcome for the stack file.
    fn with_stack_file(&self, job: Job) -> Job {
        let stack_file = self.followed().jobs.get(&job.id).cloned().flatten();
        Job { stack_file, ..job }
    }

    /// Whether the stack file does not reflect the completed job yet.
    fn is_to_follow(&self, job: &Job) -> bool {
        changed_tiers(job) && !self.followed().jobs.contains_key(&job.id)
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        // Each change is a single call or assignment.
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    /// Notes the outcome for the stack file of the last such job.
    fn note(&mut self, jobs: &[Job], saved: Saved, is_such: impl Fn(&JobKind) -> bool) {
        if let Some(job) = jobs.iter().rfind(|job| job.what.as_ref().is_some_and(&is_such)) {
            self.jobs.insert(job.id, Some(saved));
        }
    }
}

/// Whether the completed job changed the tiers.
fn changed_tiers(job: &Job) -> bool {
    let changes =
        |what: &JobKind| what.removed_tier().is_some() || matches!(what, JobKind::ReplaceHome { .. });
    job.what.as_ref().is_some_and(changes) && job.state == JobState::Done
}

impl MountHandler for Control {
    fn mount(&self) -> &MountControl {
        &self.mount
    }
}

impl Handler for Control {
    fn hello(&self) -> Hello {
        self.mount.hello()
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        // Requests that change tiers do so too.
        if let Some(_changing) = self.mount.try_changing() {
            self.follow_volume();
        }
        let mut status = self.volume.status(&self.mount.identity());
        self.mount.tell(&mut status);
        Ok(status)
    }

    fn volume(&self) -> Result<&dyn VolumeHandler, ErrorReply> {
        Ok(self)
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        self.mount.sync(&*self.volume.file_system())
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        self.mount.kv(caller, request, value)
    }

    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply> {
        let Some(times) = braid_fuse::access_times(options) else { return Ok(()) };
        let usual = AccessTimes { renewal: Renewal::Relative, directories: true };
        match self.volume.volume.set_access_times(times) {
            Err(error) if error.errno() == Errno::EOPNOTSUPP && times == usual => Ok(()),
            Err(error) if error.errno() == Errno::EOPNOTSUPP => {
                let message = "access times are renewed as the home tier's file system is mounted, since this \
                               mount began without an option for them, or not as root: unmount, and mount \
                               with the option";
                Err(ErrorReply { errno: Some(error.errno().0), message: message.into() })
            }
            result => Ok(result?),
        }
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let mounted = Mounted {
            handle: &self.volume,
            running: &self.mount.running,
            mountpoint: &self.mount.mountpoint,
        };
        reload::reload(&mounted, dry_run)
    }

    fn upgrade(&self, program: &str) -> Result<Upgrading, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let may = || match self.mount.running.absent() {
            Some(tier) => Err(ErrorReply::new(format!(
                "it was mounted without tier {tier}: unmount, and mount with the program"
            ))),
            None => self.volume.may_be_given(),
        };
        self.mount.upgrade(program, may, || {
            self.volume.volume.save_knowledge();
            self.volume.modules.prepare_to_give();
            Ok(())
        })
    }

    fn may_modify(&self, uid: u32) -> bool {
        self.mount.running.may_modify(uid)
    }

    fn modify_stack(&self, request: &ModifyStack) -> Result<Modified, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        let (modified, came) = modify::modify(
            &self.mount.stack(&self.volume.modules),
            (&request.name, &request.text),
            request.dry_run,
        )?;
        if came && !request.dry_run {
            self.mount.session.iter().for_each(FuseSession::look_up_anew);
        }
        Ok(modified)
    }

    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        let _changing = self.mount.change()?;
        self.follow_volume();
        modify::upgrade(&self.mount.stack(&self.volume.modules), module, file.map(Path::new))
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        self.follow();
        let range_size = self.volume.volume.status().range_size;
        Ok(StackDump { text: self.mount.running.dump(Some((range_size, &self.volume.drills))) })
    }

    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply> {
        self.mount.runtime_status()
    }

    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        let status = self.volume.volume.status();
        let traced =
            Traced { volume: status.id.to_string(), range: status.range_size, policy: status.policy };
        self.mount.record_trace(&self.volume.trace, traced, request, tell)
    }

    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply> {
        trace::stop(&self.volume.trace, id)
    }
}
