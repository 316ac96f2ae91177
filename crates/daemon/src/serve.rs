//! The daemon's life: open the volume, mount, answer until unmounted, close. Or take the
//! mount over from another process, and give it to the next.

use crate::beside::{
    Beside, Bound, Front, FuseSession, MountHandler, mount_advice, start_control, tell_manager,
};
use crate::bottom;
use crate::config::{BottomNode, Config};
use crate::control::{Control, VolumeMount};
use crate::guard::{CrashProtection, GuardMessage, Guarded, States};
use crate::handle::VolumeHandle;
use crate::kv::Owner;
use crate::logfs::bottom::OpenLog;
use crate::nice;
use crate::refusal::{Place, Refusal};
pub use crate::serve_error::ServeError;
use crate::upgrade::departure::{Departure, StoppedMount};
use crate::upgrade::{
    self, GuardedState, Launch, PackedState, Predecessor, ProcessState, ReceivedMount, SuspendedMount,
    Suspension,
};
use crate::validate::{self, MountPoint};
use crate::view::bottom::OpenView;
use crate::wire;
use braid_fuse::{Given, OpenKind, Session};
use braid_ipc::Server;
use braid_ipc::protocol::Ended;
use braid_runtime::{Before, FoundSession, GivenSession, SessionKeeper};
use braid_volume::{CrashState, OpenBefore};
use sd_notify::NotifyState;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

/// Creates the volume that `config` describes, without mounting it; returns its
/// id.
///
/// # Errors
/// If it can't be created, or exists already.
pub fn create(config: &Config) -> Result<String, Refusal> {
    let volume = config.stack.need_volume()?;
    validate::create(volume)?;
    Ok(wire::create(volume)?.to_string())
}

/// How a process comes to serve a mount.
#[derive(Debug)]
pub enum Start<'a> {
    /// It mounts at a directory.
    Mount {
        /// The directory.
        mountpoint: &'a Path,
        /// Whether it may hold something.
        nonempty: bool,
        /// The socket to the process that keeps the mount if this one crashes.
        guard: Option<UnixStream>,
    },
    /// It takes the mount of another process over.
    TakeOver(Box<ReceivedMount>),
}

/// The reason why a process does not serve a mount any more.
#[derive(Debug)]
pub enum Outcome {
    /// It is unmounted.
    Unmounted,
    /// This process serves it now.
    GivenTo(Child),
}

/// Mounts the file system that `config` describes, or takes it over, and serves it until it
/// is unmounted or given away. `ready` is called once it can be used, with messages about
/// it.
///
/// # Errors
/// If it can't be mounted, or does not end cleanly.
pub fn run(
    config: &Config,
    launch: &Launch,
    start: Start<'_>,
    ready: impl FnOnce(&[String]),
) -> Result<Outcome, ServeError> {
    nice::apply(&config.mount)?;
    if let Start::Mount { mountpoint, nonempty, .. } = start {
        let at = (mountpoint, nonempty);
        match config.stack.bottom() {
            BottomNode::Log(log) => bottom::serve(config, at, || OpenLog::open(log), ready)?,
            BottomNode::View(view) => bottom::serve(config, at, || OpenView::open(view), ready)?,
            BottomNode::Volume(_) => return serve_volume(config, launch, start, ready),
        }
        return Ok(Outcome::Unmounted);
    }
    serve_volume(config, launch, start, ready)
}

/// The same, with a volume at the bottom.
fn serve_volume(
    config: &Config,
    launch: &Launch,
    start: Start<'_>,
    ready: impl FnOnce(&[String]),
) -> Result<Outcome, ServeError> {
    let (point, received, guard) = match start {
        Start::Mount { mountpoint, nonempty, guard } => {
            let failed = |error: io::Error| ServeError::Failed(error.to_string());
            let guard = guard.map(Guarded::begin).transpose().map_err(failed)?;
            (validate::mount(config, mountpoint, nonempty)?, None, guard)
        }
        Start::TakeOver(received) => (MountPoint::of(&launch.mountpoint), Some(*received), None),
    };
    braid_sys::set_up_allocator();
    // One descriptor per open file of each application, on each tier.
    let open_files_max = braid_sys::raise_open_files();
    tracing::debug!(open_files_max, "starting");
    wire::prepare_to_write_back(config);
    let mut ready = Some(ready);
    let mut ready = move |notices: &[String]| ready.take().into_iter().for_each(|ready| ready(notices));
    let received = received.map(|received| (received.predecessor, received.suspended));
    let (mut predecessor, mut suspended) = received.unzip();
    let mut present = None;
    loop {
        let mount = VolumeMount { config: present.as_ref().unwrap_or(config), launch, point: &point };
        let server = VolumeServer { mount };
        let served = match suspended.take() {
            None => server.mount(guard.clone(), &mut ready),
            Some(suspended) => server.take_over(suspended, predecessor.take(), &mut ready),
        };
        let Some(departure) = served? else { return Ok(Outcome::Unmounted) };
        match departure.leave() {
            Ok(child) => {
                tell_manager(&[NotifyState::MainPid(child.id())]);
                return Ok(Outcome::GivenTo(child));
            }
            Err(returned) => {
                // Tiers may have come and gone since.
                let launch = returned.launch;
                present = launch.map(|launch| stack_of(&launch, config)).transpose()?.or(present);
                suspended = Some(returned.suspended);
            }
        }
    }
}

/// The present stack, mounted as `config` says.
fn stack_of(launch: &Launch, config: &Config) -> Result<Config, Refusal> {
    Ok(Config { mount: config.mount.clone(), ..launch.stack()? })
}

/// Changes the generic options of the mount at `point`.
///
/// # Errors
/// Those of the system call.
pub fn remount(point: &Path, options: &[String]) -> io::Result<()> {
    braid_fuse::remount(point, options)
}

/// What the servers beside a session begin with.
struct BesideSetup {
    bound: Bound,
    protection: CrashProtection,
    /// The sessions of a process before.
    before: Before,
}

/// A mount that this process serves.
struct RunningMount {
    session: Session,
    beside: Beside<Control>,
    volume: VolumeHandle,
}

/// Serves a mount with a volume.
struct VolumeServer<'a> {
    mount: VolumeMount<'a>,
}

/// Tells the guard, if there is one, that this process serves the mount.
///
/// # Errors
/// The reason why no other process could.
fn tell_guard(beside: &Beside<Control>, session: &Session) -> Result<(), String> {
    let Some(guard) = beside.control.guard() else { return Ok(()) };
    let front = session.state().ok_or("the kernel can't send requests again, which came with Linux 6.9")?;
    let given = session.device().and_then(|device| Ok((device, beside.server.socket()?)));
    let (device, (path, listener)) = given.map_err(|error| error.to_string())?;
    guard.link.serves(&PackedState::for_guard(front, path), &[device.as_fd(), listener.as_fd()]);
    Ok(())
}

/// Has the guard keep the states of the modules, from now on.
fn keep_states(mut beside: Beside<Control>, volume: &VolumeHandle) -> Beside<Control> {
    let guard = beside.control.guard().filter(|guard| guard.keeps_states && guard.link.outlives());
    beside.states = guard.and_then(|guard| {
        let modules = Arc::clone(&volume.modules);
        let begun = States::begin(Arc::clone(&guard.link), move || modules.present());
        begun.inspect_err(|error| tracing::error!(%error, "after a crash, modules begin anew")).ok()
    });
    beside.states.iter().for_each(|states| volume.modules.tell_exchanges(states.exchanged()));
    beside
}

impl VolumeServer<'_> {
    fn refuse_restart(&self, why: &str) -> Refusal {
        let place = self
            .mount
            .config
            .mount
            .restart
            .as_ref()
            .map_or_else(|| self.place(), |restart| restart.place.clone());
        place.refuse(
            format!("no process could go on after a crash: {why}"),
            "leave it out, or see docs/restart.md",
        )
    }

    fn place(&self) -> Place {
        Place::flag(format!("mount point {}", self.mount.point.given.to_string_lossy()))
    }

    /// Mounts, and serves the mount.
    fn mount(
        &self,
        guard: Option<Guarded>,
        ready: &mut dyn FnMut(&[String]),
    ) -> Result<Option<Departure>, ServeError> {
        let bound = Bound::of(&self.mount.config.mount)?;
        let volume = wire::open(self.mount.config, self.mount.config.create)?;
        let begun = self.begin_mount(&volume, bound, guard);
        let (session, beside) = begun.inspect_err(|_| {
            // The volume was never used; an error of closing it does not matter.
            let _ = volume.shutdown();
        })?;
        self.start_jobs(&volume);
        let notices: Vec<String> = volume.volume.strays().iter().map(ToString::to_string).collect();
        notices.iter().for_each(|notice| tracing::warn!("{notice}"));
        ready(&notices);
        tell_manager(&[NotifyState::Ready]);
        RunningMount { session, beside, volume }.serve()
    }

    fn start_jobs(&self, volume: &VolumeHandle) {
        let settings = self.mount.config.stack.volume();
        let parallel = settings.and_then(|volume| volume.jobs.as_ref()).map(|jobs| jobs.value);
        if let Err(error) = volume.volume.start_jobs(parallel) {
            tracing::error!(%error, "no job runs: there is no thread for them");
        }
    }

    fn begin_mount(
        &self,
        volume: &VolumeHandle,
        bound: Bound,
        guard: Option<Guarded>,
    ) -> Result<(Session, Beside<Control>), Refusal> {
        bound.look(&Owner::of_files(volume.file_system()))?;
        if let (Some(_), Some(why)) = (&guard, volume.ends_with_process()) {
            return Err(self.refuse_restart(&why));
        }
        let ledger = guard.as_ref().map(|guard| Arc::clone(&guard.ledger));
        let session = wire::mount(volume.file_system(), &self.mount.point.path, self.mount.config, ledger)
            .map_err(|error| {
                self.place().refuse(format!("can't be mounted: {error}"), mount_advice(&error))
            })?;
        let protection = CrashProtection { guard, restarts: None };
        let setup = BesideSetup { bound, protection, before: Before::default() };
        let beside = self.begin_beside(volume, &session, setup, |control| {
            let _ = control.last_upgrade().set(None);
            start_control(&self.mount.point.path, control)
        });
        match beside {
            Ok(beside) => match tell_guard(&beside, &session) {
                Err(why) => {
                    let _ = session.unmounter().unmount();
                    Err(self.refuse_restart(&why))
                }
                Ok(()) => Ok((session, keep_states(beside, volume))),
            },
            Err(error) => {
                let advice =
                    "without its control socket a mount could not be asked or ended; make room for it";
                let _ = session.unmounter().unmount();
                Err(self.place().refuse(format!("no control socket: {error}"), advice))
            }
        }
    }

    /// Begins all servers beside a session.
    fn begin_beside(
        &self,
        volume: &VolumeHandle,
        session: &Session,
        setup: BesideSetup,
        start: impl FnOnce(Arc<Control>) -> io::Result<Server>,
    ) -> io::Result<Beside<Control>> {
        let BesideSetup { bound, protection, before } = setup;
        if let Some(guard) = &protection.guard {
            volume.volume.set_keeper(guard.link.clone());
        }
        volume.volume.set_front_cache(Arc::new(session.cache()), self.mount.config.mount.inodes_max());
        let keeper = protection.guard.as_ref().map(|guard| guard.link.clone() as Arc<dyn SessionKeeper>);
        let control = Control::new(volume.clone(), &self.mount, Some(FuseSession::of(session)), protection);
        control.tell_stack();
        let front = Front {
            session,
            mount: &self.mount.config.mount,
            point: &self.mount.point.path,
            top: volume.file_system(),
            owner: Owner::of_files(volume.file_system()),
        };
        Beside::begin(front, control, bound, Before { keeper, ..before }, start)
    }

    /// Goes on with the mount of another process, or with this one's own, which another
    /// process did not want.
    fn take_over(
        &self,
        mut suspended: SuspendedMount,
        predecessor: Option<Predecessor>,
        ready: &mut dyn FnMut(&[String]),
    ) -> Result<Option<Departure>, ServeError> {
        let begun = self.begin_again(&suspended);
        let (running, predecessor) = match (begun, predecessor) {
            (Ok(running), None) => (running, None),
            (Ok(running), Some(mut predecessor)) => {
                // The other process would go on.
                if let Err(error) = predecessor.serves() {
                    let _ = running.beside.control.last_upgrade().set(None);
                    running.session.leave();
                    return Err(ServeError::Failed(format!("the process before is gone: {error}")));
                }
                (running, Some(predecessor))
            }
            (Err(refusal), None) => return Err(refusal.into()),
            (Err(refusal), Some(predecessor)) => {
                predecessor.refuse(&refusal.to_string());
                return Err(refusal.into());
            }
        };
        self.start_jobs(&running.volume);
        ready(&[]);
        suspended.note_end_of_pause();
        let found = match &suspended.suspension {
            Suspension::Upgrade { .. } => None,
            Suspension::Crash(crash) => Some(crash.nameless.iter().map(|(ino, _)| *ino).collect()),
        };
        upgrade::settle(predecessor, suspended, running.beside.control.last_upgrade());
        // The guard, which is told of each, listens from now on.
        found.into_iter().for_each(|found| running.volume.volume.settle_found(found));
        running.serve()
    }

    /// Opens the volume that another process left.
    fn open_again(&self, suspended: &SuspendedMount) -> Result<VolumeHandle, Refusal> {
        match &suspended.suspension {
            Suspension::Upgrade { state, .. } => {
                wire::open_taken(self.mount.config, &state.live, &state.modules)
            }
            Suspension::Crash(crash) => {
                let crashes =
                    suspended.mount.protection.restarts.as_ref().map_or(0, |restarts| restarts.count);
                self.open_after_crash(crash, crashes)
            }
        }
    }

    fn open_after_crash(&self, crash: &GuardedState, crashes: u64) -> Result<VolumeHandle, Refusal> {
        tracing::warn!(open = crash.open.len(), "the process before crashed; going on with what was open");
        let open = crash.open.iter().map(|record| OpenBefore {
            handle: record.handle,
            ino: record.ino,
            flags: (record.kind != OpenKind::Directory).then_some(record.flags),
            passthrough: matches!(record.kind, OpenKind::Passthrough(_)),
            opener: record.opener,
        });
        let in_sessions = crash.sessions.sessions.iter().flat_map(FoundSession::open);
        let in_sessions = in_sessions.map(|file| OpenBefore {
            handle: file.handle,
            ino: file.ino,
            flags: file.flags,
            passthrough: false,
            opener: file.opener,
        });
        let stack = &self.mount.config.stack;
        let open = open
            .chain(in_sessions)
            .map(|file| OpenBefore { flags: file.flags.map(|flags| stack.flags_below(flags)), ..file });
        let open = open.collect();
        let crashed = CrashState { open, nameless: crash.nameless.clone(), crashes };
        wire::open_after_crash(self.mount.config, &crashed, &crash.modules)
    }

    fn begin_again(&self, suspended: &SuspendedMount) -> Result<RunningMount, Refusal> {
        let volume = self.open_again(suspended)?;
        let failed = |error: io::Error| self.place().refuse(error.to_string(), "the log may say more");
        let given = suspended.mount.front.try_clone().map_err(failed)?;
        let guard = suspended.mount.protection.guard.as_ref();
        let ledger = guard.map(|guard| Arc::clone(&guard.ledger));
        let session =
            wire::resume(volume.file_system(), &self.mount.point.path, self.mount.config, given, ledger)
                .map_err(failed)?;
        let setup = BesideSetup {
            bound: Bound::again(&self.mount.config.mount),
            protection: suspended.protection(),
            before: sessions_of(&suspended.suspension).map_err(failed)?,
        };
        let beside = self.begin_beside(&volume, &session, setup, |control| match &suspended.mount.control {
            Some((path, listener)) => Server::resume(path, listener.try_clone()?, control),
            None => start_control(&self.mount.point.path, control),
        });
        match beside {
            Ok(beside) => {
                if let Some(why) = volume.ends_with_process().or_else(|| tell_guard(&beside, &session).err())
                {
                    beside.control.guard().into_iter().for_each(|guard| guard.link.is_alone(why.clone()));
                }
                let beside = keep_states(beside, &volume);
                Ok(RunningMount { session, beside, volume })
            }
            Err(error) => {
                session.leave();
                Err(failed(error))
            }
        }
    }
}

impl RunningMount {
    /// Serves until the file system is unmounted, or is given away.
    fn serve(self) -> Result<Option<Departure>, ServeError> {
        let Self { session, beside, volume } = self;
        match session.run() {
            Ok(Some(given)) => return Ok(Some(depart(given, beside, volume))),
            Ok(None) => end(Ok(()), beside, &volume),
            Err(error) => end(Err(error), beside, &volume),
        }
        .map(|()| None)
    }
}

/// Ends all use of the volume in this process.
fn depart(front: Given, beside: Beside<Control>, volume: VolumeHandle) -> Departure {
    let Beside { control, server, metrics, kv, signals, runtime, states } = beside;
    drop(states);
    let sessions = runtime.map(|runtime| runtime.give()).unwrap_or_default();
    drop((metrics, kv));
    volume.stop_recording();
    control.mount().await_recording();
    let protection = control.protection().clone();
    let request = control.take_departure();
    let socket = server.give();
    drop(signals);
    drop(control);
    let (live, modules) = volume.give();
    drop(volume);
    let state = ProcessState { live, modules, sessions };
    Departure::new(request, StoppedMount { front, control: socket, protection, state })
}

/// The sessions of another process, which keeps them in case that this one fails.
fn sessions_of(suspension: &Suspension) -> io::Result<Before> {
    match suspension {
        Suspension::Upgrade { state, .. } => {
            let given = state.sessions.iter().map(GivenSession::try_clone).collect::<io::Result<_>>()?;
            Ok(Before { given, ..Before::default() })
        }
        Suspension::Crash(GuardedState { sessions, .. }) => Ok(Before {
            found: sessions.sessions.iter().map(FoundSession::try_clone).collect::<io::Result<_>>()?,
            listener: sessions.listener.as_ref().map(OwnedFd::try_clone).transpose()?,
            refuse: sessions.refuse,
            ..Before::default()
        }),
    }
}

fn end(served: io::Result<()>, beside: Beside<Control>, volume: &VolumeHandle) -> Result<(), ServeError> {
    let Beside { control, server, metrics, kv, signals, runtime, states } = beside;
    drop(states);
    tracing::info!("unmounted; closing the volume");
    runtime.iter().for_each(|runtime| runtime.stop());
    tell_manager(&[NotifyState::Stopping]);
    drop((metrics, kv));
    control.end();
    let closed = volume.shutdown();
    // No job does anything any more.
    control.follow();
    control.mount().await_recording();
    drop(signals);
    let error = match (served, closed) {
        (Err(error), _) => Some(format!("the connection to the kernel failed: {error}")),
        (_, Err(error)) => Some(format!("the volume was not closed cleanly: {error}")),
        (Ok(()), Ok(())) => None,
    };
    server.finish(Ended { error: error.clone() });
    control.guard().into_iter().for_each(|guard| guard.link.tell(&GuardMessage::Ended, &[]));
    match error {
        None => Ok(()),
        Some(error) => {
            tracing::error!("{error}");
            Err(ServeError::Failed(error))
        }
    }
}
