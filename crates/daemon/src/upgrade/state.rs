//! The state that goes from one process to the other.

use crate::clock::now_ns;
use crate::guard::{Guarded, KeptState};
use braid_contract::{Fd, InodeId};
use braid_fuse::{Again, FrontState, Given};
use braid_ipc::protocol::{Restarts, Upgrade};
use braid_modules::State;
use braid_runtime::{FoundSession, GivenSession, SessionState};
use braid_stores::native::KernelFd;
use braid_volume::LiveState;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// The part that is text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Text {
    front: FrontState,
    /// Whether the memory of rings comes with it.
    rings: bool,
    live: LiveState,
    /// Of each module from the top down: its name, and its state.
    modules: Vec<(String, u32, Vec<u8>)>,
    /// The control socket, if there is one.
    socket: Option<PathBuf>,
    /// When requests were held up, as time since the machine began.
    pub(crate) paused_at_ns: u64,
    pub(crate) history: Upgrade,
    /// The number of descriptors for the guard: the socket to it, and the memory of records.
    #[serde(default)]
    guard: usize,
    /// After a crash: the inodes without a name.
    #[serde(default)]
    nameless: Option<Vec<u64>>,
    /// The crashes until now.
    #[serde(default)]
    restarts: Option<Restarts>,
    /// Requests that no process answered are to be refused.
    #[serde(default)]
    refuse: bool,
    /// Applications' sessions, each with the descriptors of its memory and its socket.
    #[serde(default)]
    sessions: Vec<SessionState>,
    /// After a crash: the same, each with how many descriptors it has.
    #[serde(default)]
    found: Vec<(SessionState, usize)>,
    /// After a crash: there is a socket at which sessions begin.
    #[serde(default)]
    sessions_begin: bool,
    /// Whether the guard keeps the states of modules.
    #[serde(default)]
    keeps_states: bool,
    /// After a crash: those states.
    #[serde(default)]
    kept: Vec<KeptState>,
}

/// The sessions of a process that crashed.
#[derive(Debug, Default)]
pub(crate) struct FoundSessions {
    /// The socket at which they began.
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) sessions: Vec<FoundSession>,
    /// Requests that the process did not answer are to be refused.
    pub(crate) refuse: bool,
}

/// A mount that is not served at present: everything that a process needs to go on with it.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) front: Given,
    pub(crate) live: LiveState,
    pub(crate) modules: Vec<(String, State)>,
    /// The control socket.
    pub(crate) control: Option<(PathBuf, UnixListener)>,
    pub(crate) paused_at_ns: u64,
    pub(crate) history: Upgrade,
    pub(crate) guard: Option<Guarded>,
    /// After a crash, in place of `live` and `modules`: the inodes without a name.
    pub(crate) nameless: Option<Vec<(InodeId, Fd)>>,
    pub(crate) restarts: Option<Restarts>,
    /// Applications' sessions.
    pub(crate) sessions: Vec<GivenSession>,
    /// After a crash: those that there were.
    pub(crate) found: FoundSessions,
    /// After a crash: the kept states of modules.
    pub(crate) kept: Vec<KeptState>,
}

/// The same in the form in which it is handed over.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(super) text: Text,
    pub(super) inodes: Vec<u8>,
    /// The device; if there are such, the memory of rings, the control socket, the socket to
    /// the guard and the memory of records; those of sessions; after a crash, the socket at
    /// which sessions begin, and theirs; then inodes without a name.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Text {
    /// The state of a mount that a guard needs, beside descriptors of the device and of the control
    /// socket, to have another process go on.
    pub(crate) fn for_guard(front: FrontState, socket: PathBuf) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let history = Upgrade { from: version.clone(), to: version, paused_ns: 0, count: 0, error: None };
        Self {
            front,
            rings: false,
            live: LiveState::default(),
            modules: Vec::new(),
            socket: Some(socket),
            paused_at_ns: 0,
            history,
            guard: 0,
            nameless: None,
            restarts: None,
            refuse: false,
            sessions: Vec::new(),
            found: Vec::new(),
            sessions_begin: false,
            keeps_states: true,
            kept: Vec::new(),
        }
    }
}

impl Inheritance {
    /// The crashes until now, with the time that requests waited after this one.
    pub(crate) fn restarts(&self) -> Option<Restarts> {
        let restarts = self.restarts.clone()?;
        Some(match self.nameless {
            Some(_) => Restarts { paused_ns: now_ns().saturating_sub(self.paused_at_ns), ..restarts },
            None => restarts,
        })
    }

    /// The form in which it is handed over.
    ///
    /// # Errors
    /// If an inode without a name has no descriptor of the kernel, or there are no
    /// descriptors left.
    pub(crate) fn pack(&self) -> io::Result<Handover> {
        let (inodes, nameless) = self.live.parts();
        let mut descriptors = vec![self.front.device.try_clone()?];
        let rings = self.front.memory();
        if let Some(memory) = rings {
            descriptors.push(memory.try_clone_to_owned()?);
        }
        if let Some((_, listener)) = &self.control {
            descriptors.push(listener.try_clone()?.into());
        }
        let guard = self.guard.as_ref().map(Guarded::descriptors).transpose()?.unwrap_or_default();
        let guards = guard.len();
        descriptors.extend(guard);
        for session in &self.sessions {
            descriptors.push(session.memory.try_clone()?);
            descriptors.push(session.socket.try_clone()?);
        }
        for fd in nameless {
            let fd = fd.kernel_fd().ok_or_else(|| io::Error::other("an inode has no descriptor"))?;
            descriptors.push(fd.try_clone()?);
        }
        let modules = self.modules.iter();
        let modules = modules.map(|(name, state)| (name.clone(), state.version, state.bytes.clone()));
        let text = Text {
            front: self.front.state.clone(),
            rings: rings.is_some(),
            live: self.live.clone(),
            modules: modules.collect(),
            socket: self.control.as_ref().map(|(path, _)| path.clone()),
            paused_at_ns: self.paused_at_ns,
            history: self.history.clone(),
            guard: guards,
            nameless: None,
            restarts: self.restarts.clone(),
            refuse: false,
            sessions: self.sessions.iter().map(|session| session.state.clone()).collect(),
            found: Vec::new(),
            sessions_begin: false,
            keeps_states: self.guard.as_ref().is_some_and(|guard| guard.keeps_states),
            kept: Vec::new(),
        };
        Ok(Handover { text, inodes: inodes.to_vec(), descriptors })
    }
}

/// The state that a guard kept of a mount whose process crashed.
#[derive(Debug)]
pub(crate) struct Remains<'a> {
    /// As [`Text::for_guard`] made it.
    pub(crate) text: Text,
    /// The device, and the control socket.
    pub(crate) descriptors: &'a [OwnedFd],
    /// The socket to the guard, for the next process, and the memory of records.
    pub(crate) guard: Vec<OwnedFd>,
    pub(crate) nameless: Vec<(u64, OwnedFd)>,
    /// The crashes until now.
    pub(crate) restarts: Restarts,
    /// When the process ended, as time since the machine began.
    pub(crate) crashed_at_ns: u64,
    /// Requests that it did not answer are to be refused.
    pub(crate) refuse: bool,
    /// Applications' sessions, each with its descriptors.
    pub(crate) sessions: std::collections::btree_map::Values<'a, u64, (SessionState, Vec<OwnedFd>)>,
    /// The socket at which they begin.
    pub(crate) sessions_begin: Option<&'a OwnedFd>,
    /// The states of modules.
    pub(crate) kept: Vec<KeptState>,
}

impl Handover {
    /// A mount whose process crashed.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn after_crash(remains: Remains<'_>) -> io::Result<Self> {
        let Remains { text, descriptors, guard, nameless, restarts, crashed_at_ns, refuse, .. } = remains;
        let mut all = descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
        let guards = guard.len();
        all.extend(guard);
        all.extend(remains.sessions_begin.map(OwnedFd::try_clone).transpose()?);
        let mut found = Vec::new();
        for (state, descriptors) in remains.sessions {
            found.push((state.clone(), descriptors.len()));
            for descriptor in descriptors {
                all.push(descriptor.try_clone()?);
            }
        }
        let (inodes, fds): (Vec<u64>, Vec<OwnedFd>) = nameless.into_iter().unzip();
        all.extend(fds);
        let text = Text {
            guard: guards,
            nameless: Some(inodes),
            restarts: Some(restarts),
            paused_at_ns: crashed_at_ns,
            refuse,
            found,
            sessions_begin: remains.sessions_begin.is_some(),
            keeps_states: true,
            kept: remains.kept,
            ..text
        };
        Ok(Self { text, inodes: Vec::new(), descriptors: all })
    }

    pub(super) fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }

    /// The mount, in the process that goes on with it.
    ///
    /// # Errors
    /// If descriptors are missing.
    pub(crate) fn unpack(self) -> io::Result<Inheritance> {
        let mut descriptors = self.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| io::Error::other("descriptors are missing"));
        let text = self.text;
        let device = next()?;
        let rings = text.rings.then(&mut next).transpose()?;
        let control = text.socket.map(|path| Ok::<_, io::Error>((path, next()?.into()))).transpose()?;
        let to_guard = (text.guard > 0).then(&mut next).transpose()?;
        let memory = (1..text.guard).map(|_| next()).collect::<io::Result<_>>()?;
        let guard = to_guard.map(|socket| Guarded::go_on(socket, memory, text.keeps_states)).transpose()?;
        let session = |state| Ok::<_, io::Error>(GivenSession { state, memory: next()?, socket: next()? });
        let sessions = text.sessions.into_iter().map(session).collect::<io::Result<_>>()?;
        let listener = text.sessions_begin.then(&mut next).transpose()?;
        let mut found = FoundSessions { listener, sessions: Vec::new(), refuse: text.refuse };
        for (state, count) in text.found {
            let descriptors = (0..count).map(|_| next()).collect::<io::Result<_>>()?;
            let number = state.number();
            match FoundSession::new(state, descriptors) {
                Ok(session) => found.sessions.push(session),
                Err(error) => tracing::error!(%error, session = number, "a session can't go on"),
            }
        }
        let open = guard.as_ref().filter(|_| text.nameless.is_some()).map(|guard| guard.ledger.all());
        let front = match open {
            Some(open) => {
                let again = if text.refuse { Again::Refused } else { Again::CarriedOut };
                Given::found(text.front, device, &open, again)
            }
            None => Given::received(text.front, device, rings)?,
        };
        let rest: Vec<Fd> = descriptors.map(KernelFd::received).collect();
        let (live, nameless) = match text.nameless {
            Some(inodes) => {
                let nameless = inodes.into_iter().map(InodeId).zip(rest).collect();
                (text.live, Some(nameless))
            }
            None => (text.live.with_parts(self.inodes, rest), None),
        };
        let modules = text.modules.into_iter();
        let modules = modules.map(|(name, version, bytes)| (name, State { version, bytes }));
        Ok(Inheritance {
            front,
            live,
            modules: modules.collect(),
            control,
            paused_at_ns: text.paused_at_ns,
            history: text.history,
            guard,
            nameless,
            restarts: text.restarts,
            sessions,
            found,
            kept: text.kept,
        })
    }
}
