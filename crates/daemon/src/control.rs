//! Answers the control socket on behalf of a volume.

use crate::beside::{Answers, Served};
use crate::clock::now_ns;
use crate::config::Config;
use crate::guard::Guarded;
use crate::handle::VolumeHandle;
use crate::kv::{self, Buckets};
use crate::modify::{self, Stack};
use crate::reload::{self, Mounted};
use crate::running::Running;
use crate::stack_text::Edit;
use crate::tiers::Settings;
use crate::upgrade::{Giver, Launch, departure};
use crate::{check, jobs, rehome, replacement, tiers, trace};
use braid_contract::{AccessTimes, Caller, Errno, JobId, Renewal, RuntimeStatus};
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeReplaced,
    ImportSurvey, Job, JobChange, JobKind, JobState, KvAnswer, KvRequest, LearnedStream, LearnedStreams,
    Modified, ModifyStack, ModuleUpgraded, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply,
    Restarts, Saved, StackDump, StartJob, Status, TierAdded, TierRemoved, TierSet, TraceRequest, Upgrade,
    Upgrading,
};
use braid_modules::trace::Traced;
use braid_runtime::{Gate, Runtime};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

/// How long an upgrade waits for operations under way, before it is given up.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

/// The state of a mounted volume for the control socket.
pub(crate) struct Control {
    pub(crate) volume: VolumeHandle,
    hello: Hello,
    mountpoint: PathBuf,
    /// Held while the volume is checked.
    checking: Mutex<()>,
    running: Running,
    /// Held while tiers change, so that changes of the stack file keep their
    /// order.
    changing: Mutex<()>,
    /// Held during a sync of everything: every user may request one, and one at
    /// a time is enough.
    syncing: Mutex<()>,
    /// Held while operations are recorded.
    recording: RwLock<()>,
    followed: Mutex<Followed>,
    /// `None` where nothing is mounted.
    session: Option<Served>,
    /// How the mount was begun.
    launch: Launch,
    /// The outcome of the last upgrade, once it is known.
    upgrade: Arc<OnceLock<Option<Upgrade>>>,
    /// The process that waits for the mount.
    departure: Mutex<Option<departure::Request>>,
    /// The guard, which outlives this process, if there is one.
    guard: Option<Guarded>,
    restarts: Option<Restarts>,
    /// The runtime that serves sessions, while it does.
    runtime: OnceLock<Weak<Runtime>>,
    /// Directories as keys and values, where something is mounted.
    buckets: OnceLock<Arc<Buckets>>,
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
    pub(crate) fn new(
        volume: VolumeHandle,
        mountpoint: &Path,
        (config, launch): (&Config, &Launch),
        session: Option<Served>,
        (guard, restarts): (Option<Guarded>, Option<Restarts>),
    ) -> Self {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: mountpoint.to_string_lossy().into_owned(),
            serving: true,
            upgrade: None,
        };
        let home = volume.volume.status().tiers.into_iter().find(|tier| tier.home);
        let home = home.map_or_else(String::new, |home| home.location);
        let jobs = jobs::all(&volume.volume);
        let jobs = jobs.iter().filter(|job| changed_tiers(job)).map(|job| (job.id, None)).collect();
        Self {
            volume,
            hello,
            followed: Mutex::new(Followed { home, jobs }),
            mountpoint: mountpoint.to_owned(),
            checking: Mutex::new(()),
            running: Running::of(config),
            changing: Mutex::new(()),
            syncing: Mutex::new(()),
            recording: RwLock::new(()),
            session,
            launch: launch.clone(),
            upgrade: Arc::default(),
            departure: Mutex::default(),
            guard,
            restarts,
            runtime: OnceLock::new(),
            buckets: OnceLock::new(),
        }
    }

    fn sessions(&self) -> Option<Arc<Runtime>> {
        self.runtime.get().and_then(Weak::upgrade)
    }

    /// Has the guard follow the stack, from now on.
    pub(crate) fn tell_stack(&self) {
        let Some(guard) = &self.guard else { return };
        let (link, launch, point) = (Arc::clone(&guard.link), self.launch.clone(), self.mountpoint.clone());
        self.running.follow(move |running| link.stack_is(&launch.of(running, &point)));
    }

    /// The guard, and the crashes until now.
    pub(crate) fn guard(&self) -> (Option<Guarded>, Option<Restarts>) {
        (self.guard.clone(), self.restarts.clone())
    }

    /// The place for the outcome of the last upgrade, if there was one: until it is set, clients
    /// that ask for it wait.
    pub(crate) fn last_upgrade(&self) -> Arc<OnceLock<Option<Upgrade>>> {
        Arc::clone(&self.upgrade)
    }

    /// The process that waits for the mount.
    pub(crate) fn take_departure(&self) -> Option<departure::Request> {
        self.departure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has the session give the mount to a process that waits for it.
    fn depart(&self, served: &Served, giver: Giver, launch: Launch) -> Result<Upgrading, ErrorReply> {
        let upgrading = Upgrading { pid: giver.pid(), version: giver.version.clone() };
        let before = self.upgrade.wait().as_ref().map_or(0, |last| last.count);
        let request = departure::Request { giver, launch, paused_at_ns: now_ns(), before };
        *self.departure.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        // First the sources whose requests may cause requests of the kernel.
        let (runtime, gate) = (self.sessions(), self.buckets.get().map(|buckets| buckets.gate()));
        let quiet = runtime.as_ref().is_none_or(|runtime| runtime.pause(DRAINED_WITHIN));
        let closed = quiet && gate.is_none_or(|gate| gate.pause(Instant::now() + DRAINED_WITHIN));
        if closed && served.holder.hold_up(DRAINED_WITHIN) {
            return Ok(upgrading);
        }
        gate.into_iter().filter(|_| closed).for_each(Gate::resume);
        runtime.iter().filter(|_| quiet).for_each(|runtime| runtime.resume());
        if let Some(request) = self.take_departure() {
            request.giver.give_up();
        }
        let message = "operations under way do not end, perhaps since a tier hangs: braid status tells";
        Err(ErrorReply::new(format!("nothing is changed: {message}")))
    }

    /// Waits until an ended recording is sent completely, as long as its client
    /// reads.
    pub(crate) fn await_recording(&self) {
        drop(self.recording.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Updates the stack file after completed jobs: a removed tier, or a moved
    /// home.
    pub(crate) fn follow(&self) {
        let _changing = self.changing();
        self.follow_volume();
    }

    /// Notes the end of the mount: later changes of the tiers are not for the
    /// stack file.
    pub(crate) fn end(&self) {
        self.follow();
        self.running.end();
    }

    fn follow_volume(&self) {
        // Before the tiers, so that these are in the state after the completed
        // jobs.
        let jobs = jobs::all(&self.volume.volume);
        let status = self.volume.volume.status();
        let names = status.tiers.iter().map(|tier| tier.name.as_str());
        // A tier that was left out may be in the file on purpose.
        let names: Vec<&str> = names.chain(status.left_out_tiers.iter().map(String::as_str)).collect();
        for gone in self.running.missing(&names) {
            tiers::let_go(&self.volume, &gone);
            let saved = self.running.change(&[Edit::Remove(gone.clone())]);
            self.followed().note(&jobs, saved, |what| what.removed_tier() == Some(&gone));
        }
        let known = self.followed().home.clone();
        if let Some(home) = status.tiers.iter().find(|tier| tier.home && tier.location != known) {
            let saved = self.running.change(&[Edit::Set(home.name.clone(), "dir", home.location.clone())]);
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

    fn stack(&self) -> Stack<'_> {
        Stack { modules: &self.volume.modules, running: &self.running }
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        // Each change is a single call or assignment.
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        // It guards no state of its own.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Answers for Control {
    fn set_buckets(&self, buckets: &Arc<Buckets>) {
        let _ = self.buckets.set(Arc::clone(buckets));
    }

    fn serves_sessions(&self, runtime: &Arc<Runtime>) {
        // It is noted once, when the mount begins.
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }
}

impl braid_ipc::Handler for Control {
    fn hello(&self) -> Hello {
        let serving = self.session.as_ref().is_none_or(|session| !session.unmounter.is_over());
        let upgrade = self.upgrade.wait().clone();
        Hello { serving, upgrade, ..self.hello.clone() }
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        // Requests that change tiers do so too.
        if let Ok(_changing) = self.changing.try_lock() {
            self.follow_volume();
        }
        let mut status = self.volume.status(&self.hello);
        if let Some(session) = &self.session {
            (status.cache, status.transport) = (session.cache.to_owned(), session.transport().to_owned());
        }
        status.outlives_crash = self.guard.as_ref().is_some_and(|guard| guard.link.outlives());
        status.restarts.clone_from(&self.restarts);
        status.runtime = self.sessions().map(|runtime| runtime.status());
        Ok(status)
    }

    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply> {
        Ok(self.volume.explain(ino)?)
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.volume.file_system().sync()?)
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        let buckets = self.buckets.get().ok_or_else(|| ErrorReply::new("nothing is mounted"))?;
        kv::answer(buckets, caller, request, value)
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

    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        Ok(self.volume.affected(&mut |file| tell(file).map_err(|_| Errno::EINTR.into()))?)
    }

    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply> {
        self.volume.drill(tier, rules)
    }

    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply> {
        let _changing = self.changing();
        let replaced = replacement::replace(&self.volume, tier, Path::new(dir), &self.mountpoint)?;
        let saved = self.running.change(&[Edit::Set(tier.to_owned(), "dir", replaced.location.clone())]);
        Ok(Replaced { saved, ..replaced })
    }

    fn add_tier(&self, tier: &str, dir: &str, settings: &Settings) -> Result<TierAdded, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        let (tier, edit) = tiers::add(&self.volume, tier, Path::new(dir), settings, &self.mountpoint)?;
        Ok(TierAdded { tier, location: dir.to_owned(), saved: self.running.change(&[edit]) })
    }

    fn set_tier(&self, tier: &str, settings: &Settings) -> Result<TierSet, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        let edits = tiers::set(&self.volume, tier, settings)?;
        Ok(TierSet { tier: tier.to_owned(), saved: self.running.change(&edits) })
    }

    fn remove_tier(&self, tier: &str, evacuate: bool) -> Result<TierRemoved, ErrorReply> {
        let _changing = self.changing();
        let removed = tiers::remove(&self.volume, tier, evacuate)?;
        Ok(TierRemoved {
            tier: tier.to_owned(),
            location: removed.location,
            not_cleared: removed.not_cleared,
            saved: self.running.change(&[Edit::Remove(tier.to_owned())]),
        })
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        let mounted = Mounted { handle: &self.volume, running: &self.running, mountpoint: &self.mountpoint };
        reload::reload(&mounted, dry_run)
    }

    fn upgrade(&self, program: &str) -> Result<Upgrading, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        let served = self.session.as_ref().filter(|served| !served.unmounter.is_over());
        let served = served.ok_or_else(|| ErrorReply::new("nothing is mounted"))?;
        if !served.unmounter.is_mounted() {
            let message = "it is not mounted there any more, or another mount covers it";
            return Err(ErrorReply::new(message));
        }
        if let Some(tier) = self.running.absent() {
            let message = format!("it was mounted without tier {tier}: unmount, and mount with the program");
            return Err(ErrorReply::new(message));
        }
        self.volume.may_be_given()?;
        let launch = self.launch.of(&self.running, &self.mountpoint);
        let giver = Giver::start(Path::new(program), &launch).map_err(ErrorReply::new)?;
        self.volume.volume.save_knowledge();
        self.depart(served, giver, launch)
    }

    fn may_modify(&self, uid: u32) -> bool {
        self.running.may_modify(uid)
    }

    fn modify_stack(&self, request: &ModifyStack) -> Result<Modified, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        let (modified, came) =
            modify::modify(&self.stack(), (&request.name, &request.text), request.dry_run)?;
        if came && !request.dry_run {
            self.session.iter().for_each(Served::look_up_anew);
        }
        Ok(modified)
    }

    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        let _changing = self.changing();
        self.follow_volume();
        modify::upgrade(&self.stack(), module, file.map(Path::new))
    }

    fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply> {
        jobs::survey_import(&self.volume, tier)
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        self.follow();
        let range_size = self.volume.volume.status().range_size;
        Ok(StackDump { text: self.running.dump(Some((range_size, &self.volume.drills))) })
    }

    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply> {
        let off = "applications can't have sessions here\n  help: mount with --runtime, or with \
                   'runtime: true' below 'mount:'";
        self.sessions().map(|runtime| runtime.status()).ok_or_else(|| ErrorReply::new(off))
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
        jobs::start(&self.volume, request, &self.mountpoint)
    }

    fn jobs(&self) -> Vec<Job> {
        let jobs = jobs::all(&self.volume.volume);
        // A change of tiers may take long.
        if jobs.iter().any(|job| self.is_to_follow(job))
            && let Ok(_changing) = self.changing.try_lock()
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
        let job = rehome::start(&self.volume, Path::new(dir), bandwidth, &self.mountpoint)?;
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
        let _changing = self.changing();
        self.follow_volume();
        let (added, edit, job) = tiers::replace_by(
            &self.volume,
            tier,
            (by, Path::new(dir), settings),
            bandwidth,
            &self.mountpoint,
        )?;
        let saved = self.running.change(&[edit]);
        Ok(Replacing { added: TierAdded { tier: added, location: dir.to_owned(), saved }, job })
    }

    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        let status = self.volume.volume.status();
        let traced =
            Traced { volume: status.id.to_string(), range: status.range_size, policy: status.policy };
        trace::record(&self.volume.trace, traced, request, tell)
    }

    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply> {
        trace::stop(&self.volume.trace, id)
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
    use crate::wire;
    use braid_ipc::Handler;

    #[test]
    fn a_check_that_panicked_does_not_keep_others_from_theirs_and_one_under_way_does() {
        let dir = tempfile::tempdir().unwrap();
        let flags =
            StackFlags { tiers: vec![format!("home={}", dir.path().display())], ..StackFlags::default() };
        let config = parse(&flags).unwrap();
        let volume = wire::open(&config, true).unwrap();
        let control =
            Control::new(volume, Path::new("/nowhere"), (&config, &Launch::default()), None, (None, None));
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
