//! A suspended mount in the form in which it goes from one process to the other.

use super::suspended::{
    BottomState, FoundSessions, GuardedState, LogState, MountState, ProcessState, SuspendedMount, Suspension,
    ViewState,
};
use crate::guard::{CrashProtection, Guarded, KeptBottom, KeptState};
use braid_contract::{Fd, InodeId};
use braid_fuse::{Again, FrontState, Given};
use braid_ipc::protocol::{Restarts, Upgrade};
use braid_log::LiveLog;
use braid_modules::State;
use braid_runtime::{FoundSession, GivenLink, GivenSession, LinkState, SessionState};
use braid_stores::native::KernelFd;
use braid_volume::LiveState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::btree_map;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The part that is JSON. Programs of other versions read it: it has the fields of an upgrade and
/// those of a crash, whichever it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PackedState {
    front: FrontState,
    /// The control socket, if there is one.
    socket: Option<PathBuf>,
    /// When requests were held up, or the process crashed, as time since the machine began.
    paused_at_ns: u64,
    /// The number of descriptors for the guard: the socket to it, and the memory of records.
    #[serde(default)]
    guard: usize,
    /// Whether the guard keeps the states of modules.
    #[serde(default)]
    keeps_states: bool,
    /// The crashes until now.
    #[serde(default)]
    restarts: Option<Restarts>,

    // Of an upgrade:
    /// Whether the memory of rings comes with it.
    rings: bool,
    live: LiveState,
    /// What is at the bottom of the stack.
    #[serde(default)]
    bottom: PackedBottom,
    /// Of each module from the top down: its name, and its state.
    modules: Vec<(String, u32, Vec<u8>)>,
    history: Upgrade,
    /// Applications' sessions, each with the descriptors of its memory and its socket.
    #[serde(default)]
    sessions: Vec<SessionState>,

    // Of a crash:
    /// The inodes without a name; `None`: it was no crash.
    #[serde(default)]
    nameless: Option<Vec<u64>>,
    /// The state of the file system at the bottom, and the number of its descriptors.
    #[serde(default)]
    of_bottom: (Value, usize),
    /// Requests that no process answered are to be refused.
    #[serde(default)]
    refuse: bool,
    /// Applications' sessions, each with the number of its descriptors.
    #[serde(default)]
    found: Vec<(SessionState, usize)>,
    /// There is a socket at which sessions begin.
    #[serde(default)]
    sessions_begin: bool,
    /// The kept states of modules.
    #[serde(default)]
    kept: Vec<KeptState>,
}

/// The state of the bottom of a stack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PackedBottom {
    /// A volume: `live` has its state.
    #[default]
    Volume,
    /// A log file system: its state comes in place of packed inodes, and the descriptor of its device
    /// behind those of sessions.
    Log,
    /// A view; the descriptors of its session's memory and socket, and of the place that it shows,
    /// come behind those of sessions.
    View { of: PathBuf, root: u64, link: LinkState },
}

/// A packed mount.
#[derive(Debug)]
pub(crate) struct PackedMount {
    pub(super) state: PackedState,
    /// The packed inodes of a volume, or the state of a log file system.
    pub(super) inodes: Vec<u8>,
    /// The device; if there are such, the memory of rings, the control socket, the socket to
    /// the guard and the memory of records; those of sessions; after a crash, the socket at
    /// which sessions begin, and theirs, and those of the bottom; then inodes without a name.
    pub(super) descriptors: Vec<OwnedFd>,
}

/// The state that a guard kept of a mount whose process crashed.
#[derive(Debug)]
pub(crate) struct CrashedMount<'a> {
    /// As [`PackedState::for_guard`] made it.
    pub(crate) state: PackedState,
    /// The device, and the control socket.
    pub(crate) descriptors: &'a [OwnedFd],
    /// The socket to the guard, for the next process, and the memory of records.
    pub(crate) guard: Vec<OwnedFd>,
    pub(crate) nameless: Vec<(u64, OwnedFd)>,
    pub(crate) bottom: &'a KeptBottom,
    /// The crashes until now.
    pub(crate) restarts: Restarts,
    /// When the process ended, as time since the machine began.
    pub(crate) crashed_at_ns: u64,
    /// Requests that it did not answer are to be refused.
    pub(crate) refuse: bool,
    /// Applications' sessions, each with its descriptors.
    pub(crate) sessions: btree_map::Values<'a, u64, (SessionState, Vec<OwnedFd>)>,
    /// The socket at which they begin.
    pub(crate) sessions_begin: Option<&'a OwnedFd>,
    /// The states of modules.
    pub(crate) kept: Vec<KeptState>,
}

impl PackedState {
    /// The state of a mount that a guard needs, beside descriptors of the device and of the control
    /// socket, to have another process go on.
    pub(crate) fn for_guard(front: FrontState, socket: PathBuf) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let history = Upgrade { from: version.clone(), to: version, ..Upgrade::default() };
        Self { front, socket: Some(socket), history, keeps_states: true, ..Self::default() }
    }
}

impl MountState {
    /// Packs the mount for an upgrade.
    ///
    /// # Errors
    /// If an inode without a name has no descriptor of the kernel, or there are no
    /// descriptors left.
    pub(super) fn pack(&self, process: &ProcessState, history: &Upgrade) -> io::Result<PackedMount> {
        let CrashProtection { guard, restarts } = &self.protection;
        let mut descriptors = vec![self.front.device.try_clone()?];
        let rings = self.front.memory();
        descriptors.extend(rings.map(|memory| memory.try_clone_to_owned()).transpose()?);
        if let Some((_, listener)) = &self.control {
            descriptors.push(listener.try_clone()?.into());
        }
        let to_guard = guard.as_ref().map(Guarded::descriptors).transpose()?.unwrap_or_default();
        let guard_count = to_guard.len();
        descriptors.extend(to_guard);
        descriptors.extend(process.session_descriptors()?);
        let PackedParts { live, bottom, inodes, descriptors: more } = process.bottom.pack()?;
        descriptors.extend(more);
        let modules = process.modules.iter();
        let modules = modules.map(|(name, state)| (name.clone(), state.version, state.bytes.clone()));
        let state = PackedState {
            front: self.front.state.clone(),
            socket: self.control.as_ref().map(|(path, _)| path.clone()),
            paused_at_ns: self.paused_at_ns,
            guard: guard_count,
            keeps_states: guard.as_ref().is_some_and(|guard| guard.keeps_states),
            restarts: restarts.clone(),
            rings: rings.is_some(),
            live,
            bottom,
            modules: modules.collect(),
            history: history.clone(),
            sessions: process.sessions.iter().map(|session| session.state.clone()).collect(),
            ..PackedState::default()
        };
        Ok(PackedMount { state, inodes, descriptors })
    }
}

impl ProcessState {
    /// The descriptors of sessions.
    fn session_descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut descriptors = Vec::new();
        for session in &self.sessions {
            descriptors.push(session.memory.try_clone()?);
            descriptors.push(session.socket.try_clone()?);
        }
        Ok(descriptors)
    }
}

/// The parts in which the bottom of a stack is packed.
#[derive(Default)]
struct PackedParts {
    live: LiveState,
    bottom: PackedBottom,
    inodes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl BottomState {
    fn pack(&self) -> io::Result<PackedParts> {
        Ok(match self {
            Self::Volume(live) => {
                let (inodes, nameless) = live.parts();
                let descriptor = |fd: &Fd| {
                    let fd = fd.kernel_fd().ok_or_else(|| io::Error::other("an inode has no descriptor"))?;
                    fd.try_clone()
                };
                let descriptors = nameless.iter().map(descriptor).collect::<io::Result<_>>()?;
                PackedParts {
                    live: (**live).clone(),
                    inodes: inodes.to_vec(),
                    descriptors,
                    ..Default::default()
                }
            }
            Self::Log(LogState { live, disk }) => {
                let descriptors = vec![disk.try_clone()?];
                PackedParts {
                    bottom: PackedBottom::Log,
                    inodes: live.pack(),
                    descriptors,
                    ..PackedParts::default()
                }
            }
            Self::View(ViewState { of, root, link, in_use }) => {
                let GivenLink { state, memory, socket } = link.try_clone()?;
                let bottom = PackedBottom::View { of: of.clone(), root: root.0, link: state };
                let descriptors = vec![memory, socket, in_use.try_clone()?];
                PackedParts { bottom, descriptors, ..PackedParts::default() }
            }
        })
    }

    fn unpack(
        (live, bottom): (LiveState, PackedBottom),
        inodes: Vec<u8>,
        mut descriptors: Descriptors,
    ) -> io::Result<Self> {
        Ok(match bottom {
            PackedBottom::Volume => Self::Volume(Box::new(live.with_parts(inodes, descriptors.rest()))),
            PackedBottom::Log => {
                let live = LiveLog::unpack(&inodes).map_err(io::Error::other)?;
                Self::Log(LogState { live, disk: descriptors.next()? })
            }
            PackedBottom::View { of, root, link } => {
                let link =
                    GivenLink { state: link, memory: descriptors.next()?, socket: descriptors.next()? };
                Self::View(ViewState { of, root: InodeId(root), link, in_use: descriptors.next()? })
            }
        })
    }
}

/// The descriptors of a packed mount, in their order.
struct Descriptors(std::vec::IntoIter<OwnedFd>);

impl Descriptors {
    fn next(&mut self) -> io::Result<OwnedFd> {
        self.0.next().ok_or_else(|| io::Error::other("descriptors are missing"))
    }

    fn next_if(&mut self, is_there: bool) -> io::Result<Option<OwnedFd>> {
        is_there.then(|| self.next()).transpose()
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        (0..count).map(|_| self.next()).collect()
    }

    fn rest(self) -> Vec<Fd> {
        self.0.map(KernelFd::received).collect()
    }
}

impl PackedMount {
    /// A mount whose process crashed.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn after_crash(crashed: CrashedMount<'_>) -> io::Result<Self> {
        let mut descriptors =
            crashed.descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
        let guard = crashed.guard.len();
        descriptors.extend(crashed.guard);
        descriptors.extend(crashed.sessions_begin.map(OwnedFd::try_clone).transpose()?);
        let mut found = Vec::new();
        for (state, of_session) in crashed.sessions {
            found.push((state.clone(), of_session.len()));
            for descriptor in of_session {
                descriptors.push(descriptor.try_clone()?);
            }
        }
        for descriptor in &crashed.bottom.descriptors {
            descriptors.push(descriptor.try_clone()?);
        }
        let (inodes, fds): (Vec<u64>, Vec<OwnedFd>) = crashed.nameless.into_iter().unzip();
        descriptors.extend(fds);
        let state = PackedState {
            guard,
            nameless: Some(inodes),
            of_bottom: (crashed.bottom.state.clone(), crashed.bottom.descriptors.len()),
            restarts: Some(crashed.restarts),
            paused_at_ns: crashed.crashed_at_ns,
            refuse: crashed.refuse,
            found,
            sessions_begin: crashed.sessions_begin.is_some(),
            keeps_states: true,
            kept: crashed.kept,
            ..crashed.state
        };
        Ok(Self { state, inodes: Vec::new(), descriptors })
    }

    pub(super) fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }

    /// The mount, in the process that goes on with it.
    ///
    /// # Errors
    /// If descriptors are missing, or can't be used.
    pub(crate) fn unpack(self) -> io::Result<SuspendedMount> {
        let Self { mut state, inodes, descriptors } = self;
        let mut descriptors = Descriptors(descriptors.into_iter());
        let device = descriptors.next()?;
        let rings = descriptors.next_if(state.rings)?;
        let listener = descriptors.next_if(state.socket.is_some())?;
        let control = state.socket.take().zip(listener.map(Into::into));
        let guard = match state.guard.checked_sub(1) {
            Some(memory) => {
                let (socket, memory) = (descriptors.next()?, descriptors.take(memory)?);
                Some(Guarded::go_on(socket, memory, state.keeps_states)?)
            }
            None => None,
        };
        let protection = CrashProtection { guard, restarts: state.restarts.take() };
        let paused_at_ns = state.paused_at_ns;
        let (front, suspension) = match state.nameless.take() {
            None => state.unpack_upgrade(device, rings, inodes, descriptors)?,
            Some(nameless) => {
                let guard = protection.guard.as_ref();
                let guard = guard.ok_or_else(|| io::Error::other("the guard's descriptors are missing"))?;
                state.unpack_crash(device, guard, nameless, descriptors)?
            }
        };
        let mount = MountState { front, control, paused_at_ns, protection };
        Ok(SuspendedMount { mount, suspension })
    }
}

impl PackedState {
    fn unpack_upgrade(
        self,
        device: OwnedFd,
        rings: Option<OwnedFd>,
        inodes: Vec<u8>,
        mut descriptors: Descriptors,
    ) -> io::Result<(Given, Suspension)> {
        let sessions = self.sessions.into_iter().map(|state| {
            Ok(GivenSession { state, memory: descriptors.next()?, socket: descriptors.next()? })
        });
        let sessions = sessions.collect::<io::Result<_>>()?;
        let front = Given::received(self.front, device, rings)?;
        let bottom = BottomState::unpack((self.live, self.bottom), inodes, descriptors)?;
        let modules = self.modules.into_iter();
        let modules = modules.map(|(name, version, bytes)| (name, State { version, bytes })).collect();
        let state = Box::new(ProcessState { bottom, modules, sessions });
        Ok((front, Suspension::Upgrade { state, history: self.history }))
    }

    fn unpack_crash(
        self,
        device: OwnedFd,
        guard: &Guarded,
        nameless: Vec<u64>,
        mut descriptors: Descriptors,
    ) -> io::Result<(Given, Suspension)> {
        let listener = descriptors.next_if(self.sessions_begin)?;
        let mut sessions = FoundSessions { listener, sessions: Vec::new(), refuse: self.refuse };
        for (state, count) in self.found {
            let of_session = descriptors.take(count)?;
            let number = state.number();
            match FoundSession::new(state, of_session) {
                Ok(session) => sessions.sessions.push(session),
                Err(error) => tracing::error!(%error, session = number, "a session can't go on"),
            }
        }
        let (state, count) = self.of_bottom;
        let bottom = KeptBottom { state, descriptors: descriptors.take(count)? };
        let open = guard.ledger.all();
        let again = if self.refuse { Again::Refused } else { Again::CarriedOut };
        let front = Given::found(self.front, device, &open, again);
        let nameless = nameless.into_iter().map(InodeId).zip(descriptors.rest()).collect();
        let crash = GuardedState { open, nameless, bottom, sessions, modules: self.kept };
        Ok((front, Suspension::Crash(crash)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_that_other_versions_read() {
        let state = PackedState::for_guard(FrontState::default(), "/run/braid/1".into());
        let serde_json::Value::Object(fields) = serde_json::to_value(&state).unwrap() else { panic!() };
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "bottom",
                "found",
                "front",
                "guard",
                "history",
                "keeps_states",
                "kept",
                "live",
                "modules",
                "nameless",
                "of_bottom",
                "paused_at_ns",
                "refuse",
                "restarts",
                "rings",
                "sessions",
                "sessions_begin",
                "socket"
            ]
        );
        assert_eq!(fields["nameless"], serde_json::Value::Null);
        assert_eq!(fields["keeps_states"], true);
    }
}
