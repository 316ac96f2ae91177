//! A session, from the side of the daemon: the messages on its socket, and its parts.

use crate::found::FoundSession;
use crate::gate::Gate;
use crate::handover::{GivenSession, SessionState, Terms};
use crate::hello::{HelloReply, HelloRequest, VERSION, receive, send};
use crate::keeper::SessionKeeper;
use crate::layout::Geometry;
use crate::ledger::{Ledger, Records};
use crate::load::Load;
use crate::once::{self, Names, Once};
use crate::open::{HANDLES_MOST, Knowledge, KnownFiles};
use crate::queue::{Order, Queue, SessionShared};
use crate::values::{Requests, Values};
use crate::view::View;
use braid_contract::{Caller, Errno, Error, FileSystem, FrontCache, HandleId, InodeId, Result, Served};
use braid_sys::{SharedWords, SharedWordsView, pass_descriptors, receive_descriptors};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, StatVfsMountFlags, StatxFlags, fstatvfs, statx};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Directories that a session may be shown.
const SHOWN_MAX: usize = 64;
/// Time limit for an application to ask for its session.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the rest of a message, and to take the answer: less than the patience of a thread
/// that waits for the end of the message.
const TALK_TIMEOUT: Duration = Duration::from_millis(250);
/// Time for workers to notice that a session has ended.
const LEFT_WITHIN: Duration = Duration::from_millis(100);

/// The file system that sessions see.
#[derive(Clone)]
pub struct Mounted {
    /// The top of the stack.
    pub top: Arc<dyn FileSystem>,
    /// The kernel's cache of the mount, which is kept up to date.
    pub kernel: Option<Arc<dyn FrontCache>>,
    /// Its directories as keys and values.
    pub values: Option<Arc<dyn Values>>,
    /// The number of the mounted file system, as of `stat(2)`.
    pub device: u64,
}

/// The part that outlives the process, if sessions do.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) keeper: Arc<dyn SessionKeeper>,
    /// Names that sessions change.
    pub(crate) names: Arc<Names>,
    /// Requests that an earlier process did not answer are refused.
    pub(crate) refuse: bool,
}

impl Kept {
    /// Has memory of a session's records kept.
    fn keep(&self, session: u64) -> Box<dyn Fn(BorrowedFd<'_>) + Send + Sync> {
        let keeper = Arc::clone(&self.keeper);
        Box::new(move |memory| keeper.grown(session, memory))
    }
}

/// The parts of which a session is made.
struct Parts {
    number: u64,
    terms: Terms,
    view: Arc<Served<View>>,
    values: Option<Arc<dyn Values>>,
    memory: SharedWords,
    /// For each queue, how many requests were taken.
    heads: Vec<u64>,
    kept: Option<(Arc<Ledger>, Kept)>,
}

/// A session.
pub(crate) struct Live {
    number: u64,
    terms: Terms,
    view: Arc<Served<View>>,
    pub(crate) queues: Vec<Arc<Queue>>,
    /// Directories that it was shown.
    shown: AtomicUsize,
    kept: Option<(Arc<Ledger>, Kept)>,
}

impl Live {
    /// A session of this file system, with new memory; returns the inode of its first directory,
    /// too.
    ///
    /// # Errors
    /// If the directory is not of this file system, or there is no memory.
    pub(crate) fn begin(
        number: u64,
        Proposal { terms, directory }: &Proposal,
        mounted: &Mounted,
        kept: Option<Kept>,
    ) -> Result<(Arc<Self>, InodeId)> {
        let (ino, read_only) = look_at(mounted, directory)?;
        let Mounted { top, kernel, values, .. } = mounted.clone();
        let kept = ledger_of(number, terms.geometry, kept)?;
        let ledger = kept.as_ref().map(|(ledger, _)| Arc::clone(ledger));
        let known = KnownFiles::kept_in(ledger, terms.for_others);
        let view = Arc::new(Served(View::new(top, kernel, (read_only, terms.for_others), known)));
        let ino = view.0.show(ino)?.ino;
        let memory = SharedWords::create("braid session", terms.geometry.words())?;
        let (terms, heads) = (terms.clone(), vec![0; terms.geometry.queues]);
        Ok((Arc::new(Self::of(Parts { number, terms, view, values, memory, heads, kept })), ino))
    }

    fn of(Parts { number, terms, view, values, memory, heads, kept }: Parts) -> Self {
        let target = Requests::new(&view, values, &terms);
        let once = kept.as_ref().map(|(ledger, kept)| Once {
            view: Arc::clone(&view),
            ledger: Arc::clone(ledger),
            names: Arc::clone(&kept.names),
            refuse: kept.refuse,
        });
        let caller = terms.caller.clone();
        let who = (caller, terms.for_others);
        let shared = Arc::new(SessionShared::new(memory, terms.geometry, who, (Box::new(target), once)));
        let order = if terms.ordered { Order::Kept } else { Order::Free };
        let queue = |(index, head)| {
            let load = Load::new((number, index), terms.class);
            Arc::new(Queue::new(Arc::clone(&shared), index, order, head, load))
        };
        let queues = heads.into_iter().enumerate().map(queue).collect();
        Self { number, terms, view, queues, shown: AtomicUsize::new(0), kept }
    }

    /// Goes on with the session of another process; returns its socket, too.
    ///
    /// # Errors
    /// If its memory does not match its state.
    pub(crate) fn go_on(
        given: GivenSession,
        mounted: Mounted,
        kept: Option<Kept>,
    ) -> io::Result<(Self, UnixStream)> {
        let GivenSession { state, memory, socket } = given;
        let kept = ledger_of(state.number, state.geometry, kept)?;
        let ledger = kept.as_ref().map(|(ledger, _)| Arc::clone(ledger));
        let known = KnownFiles::kept_in(ledger, state.terms().for_others);
        known.go_on(state.knowledge());
        if let Some((ledger, _)) = &kept {
            state.heads.iter().enumerate().for_each(|(queue, head)| ledger.set_head(queue, *head));
        }
        let live = Self::again(&state, memory, (mounted, known), state.heads.clone(), kept)?;
        live.is_shown(state.shown);
        live.set_at_rest(true);
        Ok((live, socket.into()))
    }

    /// Goes on with the session of a process that crashed; returns its socket, too. Requests that
    /// the process did not answer come first. `inodes` are those that are still there.
    ///
    /// # Errors
    /// If its memory does not match its state.
    pub(crate) fn go_on_after_crash(
        found: FoundSession,
        mounted: Mounted,
        inodes: Vec<(InodeId, u64, u64)>,
        kept: Kept,
    ) -> io::Result<(Self, UnixStream)> {
        let FoundSession { state, memory, socket, records } = found;
        let (heads, shown, handles) = (records.heads(), records.shown(), records.handles());
        let unanswered: Vec<_> =
            (0..heads.len()).map(|queue| once::settle_closed(records.unanswered(queue), &handles)).collect();
        let gone = lost(&records, &inodes);
        let ledger = Ledger::of(records, kept.keep(state.number));
        gone.into_iter().for_each(|ino| ledger.knows(ino, 0));
        ledger.keep_delivered(&handles.iter().map(|(handle, _)| *handle).collect());
        heads.iter().enumerate().for_each(|(queue, head)| ledger.set_head(queue, *head));
        let known = KnownFiles::kept_in(Some(Arc::clone(&ledger)), state.terms().for_others);
        known.found(Knowledge { inodes, handles });
        let live = Self::again(&state, memory, (mounted, known), heads, Some((ledger, kept)))?;
        live.is_shown(shown);
        live.queues.iter().zip(unanswered).for_each(|(queue, unanswered)| queue.repeat(unanswered));
        Ok((live, socket.into()))
    }

    fn again(
        state: &SessionState,
        memory: OwnedFd,
        (mounted, known): (Mounted, KnownFiles),
        heads: Vec<u64>,
        kept: Option<(Arc<Ledger>, Kept)>,
    ) -> io::Result<Self> {
        let Mounted { top, kernel, values, .. } = mounted;
        // This closes its open files, if it can't go on.
        let terms = state.terms();
        let view = Arc::new(Served(View::new(top, kernel, (state.read_only, terms.for_others), known)));
        let memory = SharedWords::open(memory)?;
        let fits = terms.geometry.is_allowed()
            && heads.len() == terms.geometry.queues
            && memory.words().len() >= terms.geometry.words();
        if !fits {
            let what = "a session's memory does not fit its state";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Self::of(Parts { number: state.number, terms, view, values, memory, heads, kept }))
    }

    /// Tells the keeper of this session.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn tell_keeper(&self, socket: &UnixStream) -> io::Result<()> {
        let Some((ledger, kept)) = &self.kept else { return Ok(()) };
        let seen = (self.view.0.bounds.read_only, 0);
        let state = SessionState::of(self.number, &self.terms, seen, Vec::new(), &Knowledge::default());
        let (memory, records) = (self.memory()?, ledger.memory()?);
        let mut descriptors = vec![memory.as_fd(), socket.as_fd()];
        descriptors.extend(records.iter().map(AsFd::as_fd));
        kept.keeper.begun(&state, &descriptors);
        Ok(())
    }

    /// Sets whether its socket is at rest. If not, its application would wait for ever for another
    /// process.
    fn set_at_rest(&self, at_rest: bool) {
        self.kept.iter().for_each(|(ledger, _)| ledger.set_at_rest(at_rest));
    }

    fn is_shown(&self, shown: usize) {
        self.shown.store(shown, Ordering::Relaxed);
        self.kept.iter().for_each(|(ledger, _)| ledger.set_shown(shown));
    }

    /// The session, for another process. This one has nothing of it afterwards; no request may be
    /// under way.
    ///
    /// # Errors
    /// If there are no descriptors left: then the session has ended.
    pub(crate) fn give(&self, socket: &UnixStream) -> io::Result<GivenSession> {
        let memory = self.memory()?;
        let socket = socket.try_clone()?.into();
        let known = self.view.0.bounds.known.take();
        let heads = self.queues.iter().map(|queue| queue.head()).collect();
        let seen = (self.view.0.bounds.read_only, self.shown.load(Ordering::Relaxed));
        let state = SessionState::of(self.number, &self.terms, seen, heads, &known);
        Ok(GivenSession { state, memory, socket })
    }

    fn memory(&self) -> io::Result<OwnedFd> {
        let queue = self.queues.first().ok_or(io::ErrorKind::NotFound)?;
        queue.shared.memory.as_fd().try_clone_to_owned()
    }

    /// Waits a while until no worker has its queues any more, so that none of them has to close its
    /// open files.
    pub(crate) fn leave_workers(&self) {
        let until = Instant::now() + LEFT_WITHIN;
        while self.queues.iter().any(|queue| Arc::strong_count(queue) > 1) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.terms.geometry.bytes()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.terms.caller
    }

    /// Shows the session one more directory.
    fn show(&self, mounted: &Mounted, directory: &OwnedFd) -> Result<InodeId> {
        let shown = self.shown.load(Ordering::Relaxed);
        if shown >= SHOWN_MAX {
            return Err(Errno::EMFILE.into());
        }
        self.is_shown(shown + 1);
        let (ino, read_only) = look_at(mounted, directory)?;
        if read_only != self.view.0.bounds.read_only {
            let what = "it is mounted read-only in one place and writable in another";
            return Err(Error::new(Errno::EROFS, what));
        }
        Ok(self.view.0.show(ino)?.ino)
    }
}

/// A session that an application asks for.
pub(crate) struct Proposal {
    terms: Terms,
    /// The first directory. It says whether the mount is read-only where the session comes from.
    pub(crate) directory: OwnedFd,
}

impl Proposal {
    /// Bytes of memory of the session.
    pub(crate) fn bytes(&self) -> usize {
        self.terms.geometry.bytes()
    }
}

/// How a conversation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The session is over.
    Over,
    /// Another process goes on with it.
    Left,
}

/// The state of a session's thread, which outlives the runtime if its application holds it up.
pub(crate) struct Attendant {
    pub(crate) socket: UnixStream,
    pub(crate) gate: Arc<Gate>,
    /// Can be read when sessions are left to another process.
    pub(crate) leaving: Arc<OwnedFd>,
    /// Descriptors of unknown files. To close one may take for ever, where its file system is a
    /// process of the same user.
    pub(crate) foreign: Vec<OwnedFd>,
}

impl Attendant {
    /// Agrees on a session with its application; `None` if that hangs up, or was refused.
    ///
    /// # Errors
    /// If the application breaks the rules.
    pub(crate) fn negotiate(&mut self, caller: Caller) -> io::Result<Option<Proposal>> {
        self.socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
        self.socket.set_write_timeout(Some(TALK_TIMEOUT))?;
        let until = Instant::now() + HELLO_TIMEOUT;
        let terms = match receive(&self.socket, Some(until))? {
            Some(HelloRequest::Begin { version: VERSION, geometry, class, ordered, for_others })
                if geometry.is_allowed() =>
            {
                Terms { geometry, class, ordered, for_others, caller }
            }
            Some(HelloRequest::Begin { version, .. }) if version != VERSION => {
                let what =
                    format!("version {version} of sessions is asked for, and this is version {VERSION}");
                return self.refuse(&Error::new(Errno::EOPNOTSUPP, what)).map(|()| None);
            }
            Some(_) => {
                let error = Error::new(Errno::EINVAL, "a session of these sizes can't be");
                return self.refuse(&error).map(|()| None);
            }
            None => return Ok(None),
        };
        if terms.for_others && !may_act_for_others(&terms.caller) {
            let what = "only root and the user who mounted may act for others";
            return self.refuse(&Error::new(Errno::EPERM, what)).map(|()| None);
        }
        match self.asked(until)? {
            Some(Asked::Shown(directory)) => Ok(Some(Proposal { terms, directory })),
            Some(Asked::Keep(..)) => Err(io::Error::new(io::ErrorKind::InvalidData, "no session has begun")),
            None => Ok(None),
        }
    }

    /// Gives the session that has begun to its application.
    ///
    /// # Errors
    /// If the application hangs up.
    pub(crate) fn confirm(&self, live: &Live, ino: InodeId) -> io::Result<()> {
        send(&self.socket, &HelloReply::Begun { session: live.number, keeps: true })?;
        pass_descriptors(&self.socket, &[live.memory()?.as_fd()])?;
        send(&self.socket, &HelloReply::Shown { ino: ino.0 })?;
        live.set_at_rest(true);
        Ok(())
    }

    /// Tells the application why it gets nothing.
    ///
    /// # Errors
    /// If the application hangs up.
    pub(crate) fn refuse(&self, error: &Error) -> io::Result<()> {
        send(&self.socket, &HelloReply::refused(error))
    }

    /// Shows the session the directories that its application asks for, and closes files that its
    /// next process does not know, until that hangs up, or sessions are left. `session` finds it, if
    /// there still is one.
    ///
    /// # Errors
    /// If the application breaks the rules.
    pub(crate) fn attend(&mut self, session: impl Fn() -> Option<(Arc<Live>, Mounted)>) -> io::Result<End> {
        self.socket.set_read_timeout(Some(TALK_TIMEOUT))?;
        self.socket.set_write_timeout(Some(TALK_TIMEOUT))?;
        let gate = Arc::clone(&self.gate);
        loop {
            let leaving = PollFd::new(&self.leaving, PollFlags::IN);
            let mut waited = [PollFd::new(&self.socket, PollFlags::IN), leaving];
            // It is silent as long as it likes.
            rustix::io::retry_on_intr(|| poll(&mut waited, None))?;
            if !waited[1].revents().is_empty() {
                return Ok(End::Left);
            }
            // Messages after a pause are for the process that goes on.
            let Some(_pass) = gate.enter() else { return Ok(End::Left) };
            let Some((live, mounted)) = session() else { return Ok(End::Over) };
            live.set_at_rest(false);
            match self.asked(Instant::now() + TALK_TIMEOUT)? {
                None => return Ok(End::Over),
                Some(Asked::Keep(handles, token)) => {
                    live.view.0.keep(&handles);
                    send(&self.socket, &HelloReply::Kept { token })?;
                }
                Some(Asked::Shown(directory)) => match live.show(&mounted, &directory) {
                    Ok(ino) => send(&self.socket, &HelloReply::Shown { ino: ino.0 })?,
                    Err(error) => {
                        self.foreign.push(directory);
                        self.refuse(&error)?;
                        if self.foreign.len() > SHOWN_MAX {
                            return Ok(End::Over);
                        }
                    }
                },
            }
            live.set_at_rest(true);
        }
    }

    /// The next request of an application; `None` if it hangs up.
    fn asked(&mut self, until: Instant) -> io::Result<Option<Asked>> {
        match receive(&self.socket, Some(until))? {
            Some(HelloRequest::Show {}) => Ok(self.descriptor()?.map(Asked::Shown)),
            Some(HelloRequest::Keep { count, token }) => {
                let Some(memory) = self.descriptor()? else { return Ok(None) };
                let words = SharedWordsView::open(&memory);
                // It may be any file, if it is no memory.
                let words = words.inspect_err(|_| self.foreign.extend([memory]))?;
                if count > words.count().min(HANDLES_MOST) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let handles = (0..count).map(|word| HandleId(words.load(word))).collect();
                Ok(Some(Asked::Keep(handles, token)))
            }
            Some(HelloRequest::Begin { .. }) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a session that has begun"))
            }
            None => Ok(None),
        }
    }

    /// The descriptor that follows a request.
    fn descriptor(&mut self) -> io::Result<Option<OwnedFd>> {
        let mut passed = receive_descriptors(&self.socket, 1)?;
        let descriptor = passed.pop();
        self.foreign.extend(passed);
        Ok(descriptor)
    }
}

/// A request of an application.
enum Asked {
    /// To show it this directory.
    Shown(OwnedFd),
    /// To close all files but these.
    Keep(HashSet<HandleId>, u64),
}

/// Whether a session may say for each request whose it is: if its user has all rights that
/// this process has.
fn may_act_for_others(caller: &Caller) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&caller.uid)
}

/// New records, if sessions outlive the process.
fn ledger_of(number: u64, geometry: Geometry, kept: Option<Kept>) -> io::Result<Option<(Arc<Ledger>, Kept)>> {
    let Some(kept) = kept else { return Ok(None) };
    Ok(Some((Ledger::new(geometry, kept.keep(number))?, kept)))
}

/// The inodes in the records that are not among these.
fn lost(records: &Records, inodes: &[(InodeId, u64, u64)]) -> Vec<InodeId> {
    let there: HashSet<InodeId> = inodes.iter().map(|(ino, ..)| *ino).collect();
    records.inodes().into_iter().map(|(ino, _)| ino).filter(|ino| !there.contains(ino)).collect()
}

/// The inode of a directory of the mount, without a request to the file system for that; and
/// whether it is mounted read-only.
fn look_at(mounted: &Mounted, directory: &OwnedFd) -> Result<(InodeId, bool)> {
    let native = |error: rustix::io::Errno| Error::from(Errno(error.raw_os_error()));
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(directory, c"", flags, StatxFlags::BASIC_STATS).map_err(native)?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    if device != mounted.device {
        return Err(Error::new(Errno::EXDEV, "the directory is on another file system"));
    }
    let mount = fstatvfs(directory).map_err(native)?;
    Ok((InodeId(found.stx_ino), mount.f_flag.contains(StatVfsMountFlags::RDONLY)))
}
