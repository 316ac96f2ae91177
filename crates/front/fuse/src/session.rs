//! The life of a mount: mounted, served, unmounted.

use crate::cache::{Answers, KernelCache, Shared};
use crate::config::{CacheMode, FuseConfig};
use crate::front::{Front, Notifying};
use crate::handover::FrontState;
use crate::init::Agreed;
use crate::invalidate::Invalidator;
use crate::ledger::OpenRecord;
use crate::mount::{self, Mounted, Options};
use crate::no_room;
use crate::pause::Waking;
use crate::rings::{RequestSource, at_a_time, prepare_rings};
use crate::serve::{End, serve};
use braid_contract::{Caller, FileSystem};
use braid_sys::RingArea;
use fuser::{Config, Dispatcher, Notifier, SessionACL};
use rustix::event::Timespec;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A mounted file system that is ready to be served.
pub struct Session {
    /// `None` once it runs.
    dispatcher: Option<Dispatcher<Front>>,
    transport: RequestSource,
    notifier: Notifier,
    unmounter: Unmounter,
    answers: Answers,
    shared: Shared,
    asked: CacheMode,
    agreed: Agreed,
    /// The version of the kernel's protocol.
    protocol: (u32, u32),
    /// Another process goes on with the mount.
    given: bool,
    /// The process before crashed: requests that it received and did not answer
    /// come again.
    again: Option<Again>,
}

/// Unmounts a session from another thread. Does nothing once it is unmounted.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mounted: Arc<Mounted>,
}

/// Mounts `fs` at `mountpoint`. When this returns, the mount exists and the
/// protocol is negotiated; requests wait until the session
/// [runs](Session::run).
///
/// # Errors
/// The problem of the mount point, the device, privileges or the helper, with
/// advice.
pub fn mount(fs: Arc<dyn FileSystem>, mountpoint: &Path, config: &FuseConfig) -> io::Result<Session> {
    let dirty_max = dirty_max(&*fs, config);
    let rings = config.rings && config.ledger.is_none() && prepare_rings();
    let (threads, background) = at_a_time(config.threads, rings, fs.capabilities().holds_up);
    let front = Front::new(fs, config, (rings, background), dirty_max);
    let options =
        Options { fs_name: &config.fs_name, allow_other: config.allow_other, generic: &config.options };
    let (device, mounted) = mount::mount(mountpoint, &options)?;
    let unmounter = Unmounter { mounted: Arc::new(mounted) };
    let (notifying, shared, agreed) = (front.notifying(), front.shared(), front.agreed());
    // The kernel decides about access, by the mount's options: the library
    // would refuse processes that the kernel lets in.
    let library = fuser::Session::from_fd(front, device, SessionACL::All, Config::default());
    let library = library.inspect_err(|_| unmounter.end())?;
    let agreed = agreed.get().copied().unwrap_or_default();
    unmounter.mounted.set_read_ahead();
    if agreed.write_back {
        unmounter.mounted.set_dirty_max(dirty_max);
    }
    let transport = RequestSource::new(threads, agreed.rings, config.poll);
    let transport = transport.inspect_err(|_| unmounter.end())?;
    Ok(Session::begun(library, (&notifying, shared), unmounter, (config, agreed, transport)))
}

/// How much the kernel may keep to be written later.
fn dirty_max(fs: &dyn FileSystem, config: &FuseConfig) -> u64 {
    let total = fs.statfs(&Caller::root()).map_or(u64::MAX, |room| room.total);
    no_room::dirty_max(total, config.dirty_max)
}

impl Session {
    /// A session whose requests are taken once it runs.
    fn begun(
        library: fuser::Session<Front>,
        (notifying, shared): (&OnceLock<Notifying>, Shared),
        unmounter: Unmounter,
        (config, agreed, transport): (&FuseConfig, Agreed, RequestSource),
    ) -> Self {
        let notifier = library.notifier();
        let invalidator = Invalidator::new(notifier.clone(), transport.limits());
        let _ = notifying.set(Notifying { notifier: notifier.clone(), invalidator });
        let protocol = library.protocol().unwrap_or_default();
        let dispatcher = Some(library.into_dispatcher());
        Self {
            dispatcher,
            transport,
            notifier,
            unmounter,
            answers: Answers::default(),
            shared,
            asked: config.cache,
            agreed,
            protocol,
            given: false,
            again: None,
        }
    }

    /// Serves requests until the file system is unmounted and no longer in use,
    /// and all threads have ended. The kernel does not return its state at that
    /// moment: lookups remain, and handles of files that were closed right
    /// before. Or until requests [are held up](Holder::hold_up): the answer is then
    /// for the process that goes on, and the mount stays.
    ///
    /// # Errors
    /// The error that ended it before that. The mount is then removed too.
    pub fn run(mut self) -> io::Result<Option<Given>> {
        let Some(dispatcher) = self.dispatcher.take() else { return Ok(None) };
        if let Some(again) = self.again {
            self.take_up_again(again)?;
        }
        if serve(dispatcher.clone(), self.transport.clone())? == End::Over {
            return Ok(None);
        }
        let device = dispatcher.as_fd().try_clone_to_owned()?;
        let (rings, area) = self.transport.give().unzip();
        let state = dispatcher.filesystem().map(|front| front.give(self.protocol, rings));
        self.given = true;
        self.unmounter.mounted.session_ended();
        let waking = Some(self.transport.pause.waking());
        Ok(state.map(|state| Given { state, device, area, waking, again: None }))
    }

    /// Has the kernel send again requests that an earlier process did not answer, and look
    /// up names anew, of which this one knows none.
    fn take_up_again(&mut self, again: Again) -> io::Result<()> {
        self.transport.refuses = again == Again::Refused;
        self.notifier.resend()?;
        if let Err(error) = self.notifier.increment_epoch() {
            // Modules that judge paths take those that they don't know for denied.
            tracing::debug!(%error, "the kernel does not look names up anew");
        }
        Ok(())
    }

    /// The state of the mount for a process that goes on with it after a crash of this
    /// one, beside the [`Ledger`](crate::Ledger); `None` if the kernel does not send
    /// requests again, or sends them by rings.
    #[must_use]
    pub fn state(&self) -> Option<FrontState> {
        let Self { agreed, protocol, .. } = *self;
        (agreed.resends && !agreed.rings).then(|| FrontState { protocol, agreed, ..FrontState::default() })
    }

    /// The kernel's end of the session, as long as it does not run.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn device(&self) -> io::Result<OwnedFd> {
        let dispatcher = self.dispatcher.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        dispatcher.as_fd().try_clone_to_owned()
    }

    /// Leaves the mount to another process, without having served it.
    pub fn leave(mut self) {
        self.given = true;
        self.unmounter.mounted.session_ended();
    }

    /// A handle to hold requests up with.
    #[must_use]
    pub fn holder(&self) -> Holder {
        let root = self.unmounter.mountpoint().to_owned();
        Holder { transport: self.transport.clone(), answers: self.answers.clone(), root }
    }

    /// A handle to unmount with.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// The kernel's cache of this mount.
    #[must_use]
    pub fn cache(&self) -> KernelCache {
        let (notifier, answers) = (self.notifier.clone(), self.answers.clone());
        KernelCache::new(notifier, answers, self.agreed.write_back, self.shared.clone())
    }

    /// The mode of that cache that the kernel agreed to. `None`: it caches
    /// reads, and writes reach the file system at once.
    #[must_use]
    pub fn cache_mode(&self) -> Option<CacheMode> {
        let Agreed { passthrough, write_back, direct, .. } = self.agreed;
        let all_direct = direct && self.asked == CacheMode::Direct;
        let agreed = [
            (write_back, CacheMode::WriteBack),
            (passthrough, CacheMode::Passthrough),
            (all_direct, CacheMode::Direct),
        ];
        agreed.into_iter().find_map(|(is, mode)| is.then_some(mode))
    }

    /// Answers whether requests come through io_uring, which is known for sure
    /// once it runs.
    pub fn rings(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let transport = self.transport.clone();
        move || transport.uses_rings()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.given {
            self.unmounter.end();
        }
    }
}

/// A mount that another process may go on with: it is not served any more.
#[derive(Debug)]
pub struct Given {
    /// The state for the process.
    pub state: FrontState,
    /// The kernel's end of the session.
    pub device: OwnedFd,
    /// The memory of its rings.
    area: Option<Arc<RingArea>>,
    /// Requests that this process made to hold others up.
    waking: Option<Arc<Waking>>,
    /// The process that had it crashed.
    again: Option<Again>,
}

/// The handling of requests that the process before received and did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// They are carried out, once.
    CarriedOut,
    /// They are answered with `EIO`: one of them may have ended several processes.
    Refused,
}

impl Given {
    /// The same once more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (area, waking) = (self.area.clone(), self.waking.clone());
        let (state, device) = (self.state.clone(), self.device.try_clone()?);
        Ok(Self { state, device, area, waking, again: self.again })
    }

    /// A mount as another process hands it over, with the memory of its rings if it has
    /// some.
    ///
    /// # Errors
    /// If that memory can't be where it was.
    pub fn received(state: FrontState, device: OwnedFd, memory: Option<OwnedFd>) -> io::Result<Self> {
        let area = state.rings.as_ref().zip(memory).map(|(rings, memory)| rings.area(memory)).transpose()?;
        Ok(Self { state, device, area: area.map(Arc::new), waking: None, again: None })
    }

    /// A mount that a process left when it crashed, and its open files.
    #[must_use]
    pub fn found(state: FrontState, device: OwnedFd, open: &[OpenRecord], again: Again) -> Self {
        Self { state: state.after_crash(open), device, area: None, waking: None, again: Some(again) }
    }

    /// Waits until the mount is served again, as far as shown by requests that this
    /// process made to hold others up: they keep it busy. So long at most.
    pub fn settle(&self, patience: Duration) {
        self.waking.iter().for_each(|waking| waking.wait(patience));
    }

    /// The memory of its rings.
    #[must_use]
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.area.as_ref().map(|area| area.as_fd())
    }
}

/// Holds requests up.
#[derive(Clone, Debug)]
pub struct Holder {
    transport: RequestSource,
    answers: Answers,
    root: PathBuf,
}

impl Holder {
    /// Holds requests up, and has [`Session::run`] return. Answers whether none was
    /// under way in the end; if no thread gets done for `patience`, they are served as before. Meanwhile and
    /// afterwards, the [cache](KernelCache) is not asked.
    #[must_use]
    pub fn hold_up(&self, patience: Duration) -> bool {
        if !self.answers.end(patience) {
            return false;
        }
        let is_held_up = self.transport.pause.hold_up(patience, &self.root);
        if !is_held_up {
            self.answers.begin_again();
        }
        is_held_up
    }

    /// How often requests began or ceased to be held up.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.answers.turns()
    }

    /// Whether requests were held up at any time since there were so many
    /// [turns](Self::turns): what was synced then lacks data that the kernel keeps.
    #[must_use]
    pub fn was_held_up_since(&self, turns: u64) -> bool {
        turns != self.answers.turns() || !turns.is_multiple_of(2)
    }
}

/// Goes on with the mount of another process at `mountpoint`. Requests wait until the
/// session [runs](Session::run).
///
/// # Errors
/// If there are no descriptors left.
pub fn resume(
    fs: Arc<dyn FileSystem>,
    mountpoint: &Path,
    config: &FuseConfig,
    given: Given,
) -> io::Result<Session> {
    let dirty_max = dirty_max(&*fs, config);
    let Given { state, device, area, again, .. } = given;
    let rings = state.rings.as_ref().zip(area);
    let (threads, _) = at_a_time(config.threads, rings.is_some(), fs.capabilities().holds_up);
    let transport = RequestSource::resumed(threads, rings, config.poll)?;
    let mounted = Mounted::resumed(mountpoint, device.try_clone()?)?;
    let mut shared = None;
    let make = |backings: &fuser::Backings| {
        let front = Front::resumed(fs, config, dirty_max, &state, backings);
        shared = Some((front.notifying(), front.shared()));
        front
    };
    let library = fuser::Session::resumed(device, SessionACL::All, Config::default(), state.protocol, make);
    let unmounter = Unmounter { mounted: Arc::new(mounted) };
    // The library makes it in any case.
    let (notifying, shared) = shared.ok_or_else(|| io::Error::other("there is no front"))?;
    let mut session =
        Session::begun(library, (&notifying, shared), unmounter, (config, state.agreed, transport));
    session.again = again;
    Ok(session)
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("mountpoint", &self.unmounter.mountpoint()).finish_non_exhaustive()
    }
}

impl Unmounter {
    /// Unmounts; the session's `run` returns soon after. May be tried again.
    ///
    /// # Errors
    /// `ResourceBusy` while files are in use, or another obstacle.
    pub fn unmount(&self) -> io::Result<()> {
        self.mounted.unmount()
    }

    /// Detaches the mount from its path at once, so that it gets no new users.
    /// The session ends when the last file in use is closed.
    ///
    /// # Errors
    /// The obstacle.
    pub fn detach(&self) -> io::Result<()> {
        self.mounted.detach()
    }

    /// Detaches the mount of a session that serves no more.
    fn end(&self) {
        if let Err(error) = self.detach() {
            tracing::warn!("{error}");
        }
        self.mounted.session_ended();
    }

    /// Whether the mount is at its path, and nothing covers it.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.mounted.is_on_top()
    }

    /// Whether the kernel has dropped the file system: it is not mounted, and
    /// not in use.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mounted.is_over().unwrap_or(false)
    }

    /// Waits until the kernel has dropped the file system; answers whether it
    /// did in time.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        self.mounted.wait(patience).unwrap_or(false)
    }

    /// Device number of the file system.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.mounted.device_number()
    }

    /// The mount point.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mounted.path
    }
}
