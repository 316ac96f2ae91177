//! The life of a mount, whatever is at the bottom of its stack: open it, mount, answer until it is
//! unmounted, close. Or take the mount over from another process, and give it to the next.
//!
//! A [`Stack`] is a file system with its modules that is open, and an [`Opener`] opens one.

use crate::beside::{Beside, Bound, Front, MountHandler, mount_advice, start_control, tell_manager};
use crate::config::{Config, MountSettings};
use crate::fuse_session::FuseSession;
use crate::guard::{CrashProtection, GuardMessage, Guarded, States};
use crate::kv::Owner;
use crate::modules::Modules;
use crate::mount_control::{MountControl, MountSetup};
use crate::refusal::{Place, Refusal};
use crate::serve_error::ServeError;
use crate::upgrade::departure::{Departure, StoppedMount};
use crate::upgrade::{
    self, BottomState, GuardedState, Launch, PackedState, Predecessor, ProcessState, ReceivedMount,
    SuspendedMount, Suspension,
};
use crate::validate::{self, MountPoint};
use crate::wire;
use braid_contract::{FileSystem, InodeId, Result as FsResult};
use braid_fuse::{Given, Session};
use braid_ipc::Server;
use braid_ipc::protocol::Ended;
use braid_runtime::{Before, FoundSession, GivenSession, SessionKeeper};
use sd_notify::NotifyState;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

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

/// A file system with the modules on top of it, open to be mounted. Clones are the same one.
pub(crate) trait Stack: Clone {
    /// Handles requests at the control socket of its mount.
    type Control: MountHandler + 'static;

    /// The whole stack as a file system.
    fn file_system(&self) -> Arc<dyn FileSystem>;

    /// Its modules.
    fn modules(&self) -> &Arc<Modules>;

    /// The owner of the directories that are served as keys and values.
    fn owner(&self) -> Owner;

    /// The reason why no process could go on after a crash of this one; `None` if one could.
    fn ends_with_process(&self) -> Option<String>;

    /// Connects it with the session that shows it to the kernel, and with a guard.
    fn connect(&self, session: &Session, settings: &MountSettings, guard: Option<&Guarded>);

    /// The handler of requests for its mount.
    fn control(&self, mount: MountControl) -> Self::Control;

    /// Begins its work in the background.
    fn begin(&self, config: &Config);

    /// Messages about it for the user who mounts it.
    fn notices(&self) -> Vec<String>;

    /// Forgets the inodes that a crash left and nothing uses; these have no name.
    fn settle_found(&self, nameless: Vec<InodeId>);

    /// Ends the recording of operations, whatever holds them up, and the stack's own use of modules.
    fn stop_recording(&self);

    /// Ends its use in this process, for another one. No operation is under way, and none comes any
    /// more.
    ///
    /// # Errors
    /// If no process can go on, not even this one.
    fn give(&self) -> FsResult<BottomState>;

    /// Closes one that nothing uses.
    ///
    /// # Errors
    /// If it is not as it should be.
    fn close(&self) -> FsResult<()>;

    /// Closes it at the end of its mount.
    ///
    /// # Errors
    /// If it is not as it should be.
    fn end(&self, _control: &Self::Control) -> FsResult<()> {
        self.close()
    }
}

/// Opens the file systems of one kind.
pub(crate) trait Opener {
    /// An open one.
    type Stack: Stack;

    /// Opens what `config` describes; the guard, if there is one, gets what outlives the process.
    ///
    /// # Errors
    /// The reason why it can't be.
    fn open(&self, config: &Config, guard: Option<&Guarded>) -> Result<Self::Stack, Refusal>;

    /// Opens what another process left.
    ///
    /// # Errors
    /// The reason why it can't be.
    fn open_again(
        &self,
        config: &Config,
        suspension: &Suspension,
        protection: &CrashProtection,
    ) -> Result<Self::Stack, Refusal>;
}

/// Mounts what `config` describes, or takes it over, and serves it until it is unmounted or given
/// away. `ready` is called once it can be used, with messages about it.
///
/// # Errors
/// If it can't be mounted, or does not end cleanly.
pub(crate) fn serve<O: Opener>(
    opener: &O,
    (config, launch): (&Config, &Launch),
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
        let setup = MountSetup { config: present.as_ref().unwrap_or(config), launch, point: &point };
        let server = MountServer { opener, setup };
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

/// What the servers beside a session begin with.
struct BesideSetup {
    bound: Bound,
    protection: CrashProtection,
    /// The sessions of a process before.
    before: Before,
}

type ControlOf<O> = <<O as Opener>::Stack as Stack>::Control;

/// A session, and the servers beside it.
type Begun<O> = (Session, Beside<ControlOf<O>>);

/// A mount that this process serves.
struct RunningMount<S: Stack> {
    session: Session,
    beside: Beside<S::Control>,
    stack: S,
}

/// Serves a mount.
struct MountServer<'a, O> {
    opener: &'a O,
    setup: MountSetup<'a>,
}

/// Tells the guard, if there is one, that this process serves the mount.
///
/// # Errors
/// The reason why no other process could.
fn tell_guard<C: MountHandler>(beside: &Beside<C>, session: &Session) -> Result<(), String> {
    let Some(guard) = beside.control.mount().succession.guard() else { return Ok(()) };
    let front = session.state().ok_or("the kernel can't send requests again, which came with Linux 6.9")?;
    let given = session.device().and_then(|device| Ok((device, beside.server.socket()?)));
    let (device, (path, listener)) = given.map_err(|error| error.to_string())?;
    guard.link.serves(&PackedState::for_guard(front, path), &[device.as_fd(), listener.as_fd()]);
    Ok(())
}

/// Has the guard keep the states of the modules, from now on.
fn keep_states<C: MountHandler>(mut beside: Beside<C>, stack: &impl Stack) -> Beside<C> {
    let guard =
        beside.control.mount().succession.guard().filter(|guard| guard.keeps_states && guard.link.outlives());
    beside.states = guard.and_then(|guard| {
        let modules = Arc::clone(stack.modules());
        let begun = States::begin(Arc::clone(&guard.link), move || modules.present());
        begun.inspect_err(|error| tracing::error!(%error, "after a crash, modules begin anew")).ok()
    });
    beside.states.iter().for_each(|states| stack.modules().tell_exchanges(states.exchanged()));
    beside
}

impl<O: Opener> MountServer<'_, O> {
    fn refuse_restart(&self, why: &str) -> Refusal {
        let restart = self.setup.config.mount.restart.as_ref();
        let place = restart.map_or_else(|| self.place(), |restart| restart.place.clone());
        place.refuse(
            format!("no process could go on after a crash: {why}"),
            "leave it out, or see docs/restart.md",
        )
    }

    fn place(&self) -> Place {
        Place::flag(format!("mount point {}", self.setup.point.given.to_string_lossy()))
    }

    fn settings(&self) -> &MountSettings {
        &self.setup.config.mount
    }

    /// Mounts, and serves the mount.
    fn mount(
        &self,
        guard: Option<Guarded>,
        ready: &mut dyn FnMut(&[String]),
    ) -> Result<Option<Departure>, ServeError> {
        let bound = Bound::of(self.settings())?;
        let stack = self.opener.open(self.setup.config, guard.as_ref())?;
        let begun = self.begin_mount(&stack, bound, guard);
        let (session, beside) = begun.inspect_err(|_| {
            // It was never used; an error of closing it does not matter.
            let _ = stack.close();
        })?;
        stack.begin(self.setup.config);
        let notices = stack.notices();
        notices.iter().for_each(|notice| tracing::warn!("{notice}"));
        ready(&notices);
        tell_manager(&[NotifyState::Ready]);
        RunningMount { session, beside, stack }.serve()
    }

    fn begin_mount(
        &self,
        stack: &O::Stack,
        bound: Bound,
        guard: Option<Guarded>,
    ) -> Result<Begun<O>, Refusal> {
        bound.look(&stack.owner())?;
        if let (Some(_), Some(why)) = (&guard, stack.ends_with_process()) {
            return Err(self.refuse_restart(&why));
        }
        let point = &self.setup.point.path;
        let ledger = guard.as_ref().map(|guard| Arc::clone(&guard.ledger));
        let session =
            wire::mount(stack.file_system(), point, self.setup.config, ledger).map_err(|error| {
                self.place().refuse(format!("can't be mounted: {error}"), mount_advice(&error))
            })?;
        let protection = CrashProtection { guard, restarts: None };
        let setup = BesideSetup { bound, protection, before: Before::default() };
        let beside = self.begin_beside(stack, &session, setup, |control| {
            let _ = control.mount().succession.last().set(None);
            start_control(point, control)
        });
        match beside {
            Ok(beside) => match tell_guard(&beside, &session) {
                Err(why) => {
                    let _ = session.unmounter().unmount();
                    Err(self.refuse_restart(&why))
                }
                Ok(()) => Ok((session, keep_states(beside, stack))),
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
        stack: &O::Stack,
        session: &Session,
        setup: BesideSetup,
        start: impl FnOnce(Arc<ControlOf<O>>) -> io::Result<Server>,
    ) -> io::Result<Beside<ControlOf<O>>> {
        let BesideSetup { bound, protection, before } = setup;
        stack.connect(session, self.settings(), protection.guard.as_ref());
        let keeper = protection.guard.as_ref().map(|guard| guard.link.clone() as Arc<dyn SessionKeeper>);
        let mount = MountControl::new(self.setup, Some(FuseSession::of(session)), protection);
        mount.succession.tell_stack(&mount.running, &mount.mountpoint);
        let control = stack.control(mount);
        let front = Front {
            session,
            mount: self.settings(),
            point: &self.setup.point.path,
            top: stack.file_system(),
            owner: stack.owner(),
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
        let begun = self.begin_again(&suspended, predecessor.is_some());
        let (running, predecessor) = match (begun, predecessor) {
            (Ok(running), None) => (running, None),
            (Ok(running), Some(mut predecessor)) => {
                // The other process would go on.
                if let Err(error) = predecessor.serves() {
                    let _ = running.beside.control.mount().succession.last().set(None);
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
        let RunningMount { session, beside, stack } = running;
        let beside = beside.release();
        stack.begin(self.setup.config);
        ready(&[]);
        suspended.note_end_of_pause();
        let found = match &suspended.suspension {
            Suspension::Upgrade { .. } => None,
            Suspension::Crash(crash) => Some(crash.nameless.iter().map(|(ino, _)| *ino).collect()),
        };
        upgrade::settle(predecessor, suspended, beside.control.mount().succession.last());
        // The guard, which is told of each, listens from now on.
        found.into_iter().for_each(|found| stack.settle_found(found));
        RunningMount { session, beside, stack }.serve()
    }

    /// Serves a suspended mount; where it `waits`, nothing but what the kernel asks is carried out
    /// before it is [released](Beside::release).
    fn begin_again(
        &self,
        suspended: &SuspendedMount,
        waits: bool,
    ) -> Result<RunningMount<O::Stack>, Refusal> {
        let SuspendedMount { mount, suspension } = suspended;
        let (config, point) = (self.setup.config, &self.setup.point.path);
        let stack = self.opener.open_again(config, suspension, &mount.protection)?;
        let failed = |error: io::Error| self.place().refuse(error.to_string(), "the log may say more");
        let given = mount.front.try_clone().map_err(failed)?;
        let ledger = mount.protection.guard.as_ref().map(|guard| Arc::clone(&guard.ledger));
        let session = wire::resume(stack.file_system(), point, config, given, ledger).map_err(failed)?;
        let before = Before { waits, ..sessions_of(suspension).map_err(failed)? };
        let bound = Bound::again(self.settings());
        let setup = BesideSetup { bound, protection: suspended.protection(), before };
        let beside = self.begin_beside(&stack, &session, setup, |control| match &mount.control {
            Some((path, listener)) => Server::resume(path, listener.try_clone()?, control),
            None => start_control(point, control),
        });
        match beside {
            Ok(beside) => {
                if let Some(why) = stack.ends_with_process().or_else(|| tell_guard(&beside, &session).err()) {
                    let guard = beside.control.mount().succession.guard();
                    guard.into_iter().for_each(|guard| guard.link.is_alone(why.clone()));
                }
                let beside = keep_states(beside, &stack);
                Ok(RunningMount { session, beside, stack })
            }
            Err(error) => {
                session.leave();
                Err(failed(error))
            }
        }
    }
}

impl<S: Stack> RunningMount<S> {
    /// Serves until the file system is unmounted, or is given away.
    fn serve(self) -> Result<Option<Departure>, ServeError> {
        let Self { session, beside, stack } = self;
        match session.run() {
            Ok(Some(given)) => return depart(given, beside, stack).map(Some),
            Ok(None) => end(Ok(()), beside, stack),
            Err(error) => end(Err(error), beside, stack),
        }
        .map(|()| None)
    }
}

/// Ends all use of the file system in this process.
fn depart<S: Stack>(front: Given, beside: Beside<S::Control>, stack: S) -> Result<Departure, ServeError> {
    let Beside { control, server, metrics, kv, signals, runtime, states, .. } = beside;
    drop(states);
    let sessions = runtime.map(|runtime| runtime.give()).unwrap_or_default();
    drop((metrics, kv));
    stack.stop_recording();
    // It ends with its client, which may not take what was recorded.
    let socket = server.give();
    control.mount().await_recording();
    let succession = &control.mount().succession;
    let (protection, request) = (succession.protection().clone(), succession.take_request());
    drop(signals);
    drop(control);
    let modules = stack.modules().give();
    let bottom = stack.give().map_err(|error| {
        let why = format!("the file system can't be used any more: {error}");
        tracing::error!("{why}");
        ServeError::Failed(why)
    })?;
    drop(stack);
    let state = ProcessState { bottom, modules, sessions };
    Ok(Departure::new(request, StoppedMount { front, control: socket, protection, state }))
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

fn end<S: Stack>(served: io::Result<()>, beside: Beside<S::Control>, stack: S) -> Result<(), ServeError> {
    let Beside { control, server, metrics, kv, signals, runtime, states, .. } = beside;
    drop(states);
    tracing::info!("unmounted; closing the file system");
    runtime.iter().for_each(|runtime| runtime.stop());
    tell_manager(&[NotifyState::Stopping]);
    drop((metrics, kv));
    let closed = stack.end(&control);
    control.mount().await_recording();
    drop(signals);
    let error = match (served, closed) {
        (Err(error), _) => Some(format!("the connection to the kernel failed: {error}")),
        (_, Err(error)) => Some(format!("the file system was not closed cleanly: {error}")),
        (Ok(()), Ok(())) => None,
    };
    let guard = control.mount().succession.guard().map(|guard| Arc::clone(&guard.link));
    drop((control, runtime, stack));
    // A program that waits for the end may use the device then.
    guard.iter().for_each(|link| link.release_bottom());
    server.finish(Ended { error: error.clone() });
    guard.into_iter().for_each(|link| link.tell(&GuardMessage::Ended, &[]));
    match error {
        None => Ok(()),
        Some(error) => {
            tracing::error!("{error}");
            Err(ServeError::Failed(error))
        }
    }
}
