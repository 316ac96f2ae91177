//! Has each request carried out once, wherever the process is killed (LabStor §3.3, crash
//! recovery): notes in the [ledger](crate::ledger) the state before each request, and after a crash
//! finds out by that whether it was carried out.
//!
//! Data and attributes are set once more, to the same. Before a name is made or removed, its inode
//! is noted: a name that led nowhere and does now was made; one that does not lead there any more
//! was removed, or renamed. From the look to the note that it is done, no other session may change
//! the name: else two could take the change of one for theirs.

use crate::ledger::{Ledger, OpenFile, Phase, RequestRecord, Unanswered};
use crate::values::wire::ValueOperation;
use crate::view::View;
use braid_contract::{
    Attr, Caller, Errno, Error, FileKind, FileSystemCapabilities, HandleId, InodeId, OpenRequest, Operation,
    Reply, Request, Result, Served, Service, XattrMode,
};
use braid_sdk::Below;
use braid_sdk::abi::{Answer, Failure, Message, Target};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names that sessions change.
#[derive(Default)]
pub(crate) struct Names {
    /// Those that are being changed.
    held: Mutex<HashSet<Name>>,
    freed: Condvar,
    /// Requests that an earlier process may have carried out, by its notes. Other changes of the
    /// same names would be taken for theirs.
    unsettled: AtomicUsize,
}

/// A name in a directory.
type Name = (InodeId, OsString);

/// Names that no other session changes meanwhile.
struct HeldNames<'a> {
    all: &'a Names,
    names: Vec<Name>,
}

impl Drop for HeldNames<'_> {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            let mut held = self.all.held.lock();
            self.names.iter().for_each(|name| _ = held.remove(name));
            self.all.freed.notify_all();
        }
    }
}

impl Names {
    /// Lets no other session change these names.
    fn hold(&self, request: &Request<'_>) -> HeldNames<'_> {
        let mut names: Vec<Name> =
            name_of(request).map(|(parent, name)| (parent, name.into())).into_iter().collect();
        if let Request::Rename { new_parent, new_name, .. } = *request {
            names.push((new_parent, new_name.into()));
        }
        if !names.is_empty() {
            let mut held = self.held.lock();
            while names.iter().any(|name| held.contains(name)) {
                self.freed.wait(&mut held);
            }
            held.extend(names.iter().cloned());
        }
        HeldNames { all: self, names }
    }

    /// Adds requests that are to be repeated before any other one.
    pub(crate) fn unsettle(&self, count: usize) {
        self.unsettled.fetch_add(count, Ordering::AcqRel);
    }

    /// `count` of them were repeated.
    pub(crate) fn settle(&self, count: usize) {
        self.unsettled.fetch_sub(count, Ordering::AcqRel);
    }

    /// Whether none is left.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire) == 0
    }
}

/// The name that a request makes or takes away; of a rename, the one that it takes away.
fn name_of<'a>(request: &Request<'a>) -> Option<(InodeId, &'a OsStr)> {
    match *request {
        Request::Mknod { parent, name, .. }
        | Request::Mkdir { parent, name, .. }
        | Request::Symlink { parent, name, .. }
        | Request::Link { parent, name, .. }
        | Request::Create { parent, name, .. }
        | Request::Unlink { parent, name, .. }
        | Request::Rmdir { parent, name, .. }
        | Request::Rename { parent, name, .. } => Some((parent, name)),
        Request::Lookup { .. }
        | Request::Forget { .. }
        | Request::Getattr { .. }
        | Request::Setattr { .. }
        | Request::Readlink { .. }
        | Request::Open { .. }
        | Request::Tmpfile { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::Fallocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::OpenDir { .. }
        | Request::ReadDir { .. }
        | Request::ReleaseDir { .. }
        | Request::SyncDir { .. }
        | Request::Statfs { .. }
        | Request::Getxattr { .. }
        | Request::Listxattr { .. }
        | Request::Setxattr { .. }
        | Request::Removexattr { .. }
        | Request::Sync {}
        | Request::Path { .. } => None,
    }
}

/// Has the requests of a session carried out once.
pub(crate) struct Once {
    pub(crate) view: Arc<Served<View>>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) names: Arc<Names>,
    /// Requests that an earlier process did not answer are refused: perhaps they crash processes.
    pub(crate) refuse: bool,
}

impl Once {
    /// Carries out the request whose record is at this place, by `target` if it can simply be
    /// repeated. `found` is the record of a request that an earlier process took.
    pub(crate) fn call(
        &self,
        (place, found): (usize, Option<RequestRecord>),
        message: Message<'_>,
        target: &dyn Target,
    ) -> std::result::Result<Answer, Failure> {
        if self.refuse && found.is_some() {
            return Err(refused("the process crashed several times, perhaps by this"));
        }
        let Some(operation) = Operation::ALL.get(message.numbers.operation as usize).copied() else {
            // Other requests that are not in the table may have another effect if repeated.
            let can_be_repeated =
                ValueOperation::of(message.numbers.operation).is_some_and(|operation| !operation.changes());
            return match found {
                Some(_) if !can_be_repeated => {
                    Err(refused("the process crashed, and whether this was done is not known"))
                }
                _ => target.call(message),
            };
        };
        if found.is_none() && operation.is_idempotent() {
            return target.call(message);
        }
        let (view, ledger, names) =
            (Arc::clone(&self.view), Arc::clone(&self.ledger), Arc::clone(&self.names));
        Below(Arc::new(Served(OnceRequest { view, ledger, names, place, found }))).call(message)
    }

    /// The application knows the answer.
    pub(crate) fn mark_delivered(&self, place: usize, number: u64) {
        self.ledger.mark_delivered(place, number);
    }
}

/// Unanswered requests that close a handle which is closed count as done. This is settled now,
/// since the handle may become that of another file.
pub(crate) fn settle_closed(
    mut unanswered: Vec<Unanswered>,
    open: &[(HandleId, OpenFile)],
) -> Vec<Unanswered> {
    for one in &mut unanswered {
        let Ok(numbers) = one.asked.as_ref().map(|asked| asked.numbers) else { continue };
        let closes = [Operation::Release as u32, Operation::ReleaseDir as u32].contains(&numbers.operation);
        let is_open = open.iter().any(|(handle, _)| handle.0 == numbers.handle);
        if closes && !is_open && one.found.phase == Phase::Taken {
            one.found.phase = Phase::Done;
        }
    }
    unanswered
}

fn refused(why: &str) -> Failure {
    Failure { errno: Errno::EIO.0, why: format!("{why}; it may have done this before") }
}

/// A request that is not done twice.
struct OnceRequest {
    view: Arc<Served<View>>,
    ledger: Arc<Ledger>,
    names: Arc<Names>,
    place: usize,
    found: Option<RequestRecord>,
}

impl Service for OnceRequest {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.view.0.capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let operation = request.operation();
        let _held = self.names.hold(&request);
        let reply = match self.found {
            Some(RequestRecord { phase: Phase::Done, errno, .. }) if errno != 0 => {
                operation.failed(Errno(errno).into())
            }
            Some(found) if self.was_done(&request, found) => match self.view.0.admit_done(&request) {
                Ok(()) => self.answer(request),
                Err(error) => operation.failed(error),
            },
            _ => {
                if let Some(note) = self.look(&request) {
                    self.ledger.note(self.place, note);
                }
                self.view.0.call(request)
            }
        };
        let errno = reply.error().map_or(0, |error| error.errno().0);
        if !operation.is_idempotent() {
            self.ledger.done(self.place, errno);
        }
        reply
    }
}

impl OnceRequest {
    fn top(&self) -> &dyn braid_contract::FileSystem {
        &*self.view.0.bounds.top
    }

    /// The inode of a name; `None` if there is none.
    fn led_to(&self, parent: InodeId, name: &OsStr) -> Result<Option<Attr>> {
        match self.view.0.bounds.found(&Caller::root(), parent, name) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.errno() == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn has_attribute(&self, ino: InodeId, name: &OsStr) -> bool {
        self.top().getxattr(&Caller::root(), ino, name).is_ok()
    }

    /// The state that shows later whether this was done: the inode that a name leads to, 0 if to
    /// none; whether there is an attribute.
    fn look(&self, request: &Request<'_>) -> Option<u64> {
        let known = |ino| self.view.0.bounds.known.has(ino).is_ok();
        match *request {
            Request::Setxattr { ino, name, mode: XattrMode::Create, .. }
            | Request::Removexattr { ino, name, .. } => {
                known(ino).then(|| u64::from(self.has_attribute(ino, name)))
            }
            _ => {
                let (parent, name) = name_of(request).filter(|(parent, _)| known(*parent))?;
                self.led_to(parent, name).ok().map(|led_to| led_to.map_or(0, |attr| attr.ino.0))
            }
        }
    }

    /// Whether an earlier process did this.
    fn was_done(&self, request: &Request<'_>, found: RequestRecord) -> bool {
        // The name may now lead to another file, which the session may not open.
        if found.phase >= Phase::Done && !matches!(request, Request::Create { .. }) {
            return true;
        }
        match *request {
            // One lookup more than there should be does no harm, one less does.
            Request::Forget { .. } => true,
            Request::Setxattr { ino, name, mode: XattrMode::Create, .. } => {
                found.note == Some(0) && self.has_attribute(ino, name)
            }
            Request::Removexattr { ino, name, .. } => found.note == Some(1) && !self.has_attribute(ino, name),
            _ => {
                let (Some((parent, name)), Some(before)) = (name_of(request), found.note) else {
                    return false;
                };
                let Ok(now) = self.led_to(parent, name) else { return false };
                match *request {
                    Request::Unlink { .. } | Request::Rmdir { .. } | Request::Rename { .. } => {
                        before != 0 && now.is_none_or(|now| now.ino.0 != before)
                    }
                    _ => before == 0 && now.is_some_and(|now| is_made_by(request, &now)),
                }
            }
        }
    }

    /// The answer to a request that was carried out; the kernel may not have been notified of it.
    fn answer(&self, request: Request<'_>) -> Reply {
        let view = &self.view.0;
        let effects = view.affected().effects(&request, [None, None]);
        let entry = |caller: &Caller| {
            let (parent, name) = name_of(&request).ok_or(Errno::EIO)?;
            let entry = self.top().lookup(caller, parent, name)?;
            if !is_made_by(&request, &entry.attr) {
                self.top().forget(entry.attr.ino, 1);
                return Err(Error::new(Errno::EIO, "it was made, and others have changed it since"));
            }
            Ok(entry)
        };
        let root = Caller::root();
        let mut reply = match request {
            Request::Mknod { .. } => Reply::Mknod(entry(&root)),
            Request::Mkdir { .. } => Reply::Mkdir(entry(&root)),
            Request::Symlink { .. } => Reply::Symlink(entry(&root)),
            Request::Link { .. } => Reply::Link(entry(&root)),
            Request::Create { caller, request: open, .. } => Reply::Create(entry(&root).and_then(|entry| {
                let ino = entry.attr.ino;
                let opened = self.top().open(caller, ino, OpenRequest::from(open.flags));
                let opened = opened.inspect_err(|_| self.top().forget(ino, 1))?;
                Ok((entry, opened))
            })),
            Request::Unlink { .. } => Reply::Unlink(Ok(())),
            Request::Rmdir { .. } => Reply::Rmdir(Ok(())),
            Request::Rename { .. } => Reply::Rename(Ok(())),
            Request::Setxattr { .. } => Reply::Setxattr(Ok(())),
            Request::Removexattr { .. } => Reply::Removexattr(Ok(())),
            Request::Release { .. } => Reply::Release(Ok(())),
            Request::ReleaseDir { .. } => Reply::ReleaseDir(Ok(())),
            Request::Forget { .. } => Reply::Forget(()),
            Request::Setattr { caller, ino, handle, .. } => Reply::Setattr(
                view.inode_of(ino, handle).and_then(|ino| self.top().getattr(caller, ino, handle)),
            ),
            // Such are simply repeated.
            other => return view.call(other),
        };
        view.affected().apply(&effects, &mut reply);
        reply
    }
}

/// Whether the request may have made this inode.
fn is_made_by(request: &Request<'_>, made: &Attr) -> bool {
    let (caller, kind) = match *request {
        Request::Link { ino, .. } => return made.ino == ino,
        Request::Mknod { caller, mode, .. } => {
            (caller, FileKind::from_mode(mode).unwrap_or(FileKind::Regular))
        }
        Request::Mkdir { caller, .. } => (caller, FileKind::Directory),
        Request::Symlink { caller, .. } => (caller, FileKind::Symlink),
        Request::Create { caller, .. } => (caller, FileKind::Regular),
        _ => return false,
    };
    made.kind == kind && made.uid == caller.uid
}

#[cfg(test)]
mod tests;
