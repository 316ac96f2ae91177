//! Wherever in a request a process is killed, the next one does the rest.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::ledger::tests::{asked, ledger, left_by};
use crate::load::Load;
use crate::open::KnownFiles;
use crate::queue::testing::{GEOMETRY, submit};
use crate::queue::{Buffers, Order, Queue, SessionShared};
use braid_contract::{Class, FileSystem, OpenFlags, RenameMode};
use braid_sdk::abi::Numbers;
use braid_sys::SharedWords;
use braid_testkit::dir_fs::{Choice, DirFs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use tempfile::TempDir;

const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };
const ROOT: InodeId = InodeId::ROOT;

/// A session's view of a directory.
struct Bed {
    view: Arc<Served<View>>,
    ledger: Arc<Ledger>,
    dir: TempDir,
}

/// When the process was killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    /// Before it did anything.
    First,
    /// When it had noted the state before, and done nothing.
    Before,
    /// When it had done it, and not noted that.
    After,
    /// When it had noted that.
    Noted,
}

type Work<'a> = &'a dyn Fn(&dyn FileSystem) -> Result<()>;

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = Arc::new(DirFs::new(dir.path(), Choice::Cached));
        let view = Arc::new(Served(View::new(top, None, (false, false), KnownFiles::default())));
        view.0.show(ROOT).unwrap();
        Self { view, ledger: ledger(), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    fn ino(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.path(name)).unwrap().ino()
    }

    fn once_request(&self, found: Option<RequestRecord>) -> Served<OnceRequest> {
        let (view, ledger) = (Arc::clone(&self.view), Arc::clone(&self.ledger));
        Served(OnceRequest { view, ledger, names: Arc::default(), place: 0, found })
    }

    /// Does it in a process that is killed, then again in the next one.
    fn twice(&self, killed: Killed, work: Work<'_>) -> Result<()> {
        self.ledger.taken(0, (0, 0), &Ok(asked(Numbers::default())));
        let done = if killed == Killed::First || killed == Killed::Before {
            Ok(())
        } else {
            work(&self.once_request(None))
        };
        let noted = match killed {
            Killed::Before => Some(self.looked(work)),
            _ => None,
        };
        let found = left_by(&self.ledger).unanswered(0)[0].found;
        let found = match killed {
            Killed::First => RequestRecord { phase: Phase::Taken, note: None, ..found },
            Killed::Before => RequestRecord { phase: Phase::Taken, note: noted.flatten(), ..found },
            Killed::After => RequestRecord { phase: Phase::Taken, errno: 0, ..found },
            Killed::Noted => found,
        };
        let again = work(&self.once_request(Some(found)));
        if matches!(killed, Killed::After | Killed::Noted) {
            let errno = |result: &Result<()>| result.as_ref().err().map(Error::errno);
            assert_eq!(errno(&done), errno(&again), "{killed:?}");
        }
        again
    }

    /// The note made before this is done.
    fn looked(&self, work: Work<'_>) -> Option<u64> {
        struct Looking(Served<OnceRequest>, Mutex<Option<u64>>);
        impl Service for Looking {
            fn capabilities(&self) -> FileSystemCapabilities {
                self.0.0.capabilities()
            }
            fn call(&self, request: Request<'_>) -> Reply {
                *self.1.lock() = self.0.0.look(&request);
                request.operation().failed(Errno::EIO.into())
            }
        }
        let looking = Served(Looking(self.once_request(None), Mutex::new(None)));
        let _ = work(&looking);
        looking.0.1.into_inner()
    }
}

/// Does it on beds of their own, killed at each moment.
fn each(prepare: impl Fn(&Bed), work: Work<'_>, check: impl Fn(&Bed, Result<()>, Killed)) {
    for killed in [Killed::First, Killed::Before, Killed::After, Killed::Noted] {
        let bed = Bed::new();
        prepare(&bed);
        let result = bed.twice(killed, work);
        check(&bed, result, killed);
    }
}

fn me() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, groups: Some(Arc::from([])), pid: 1, tid: 1, of_stack: false }
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn names_are_made_once() {
    let makes: [Work<'_>; 4] = [
        &|fs| fs.mkdir(&me(), ROOT, name("a"), 0o755, 0).map(drop),
        &|fs| fs.symlink(&me(), ROOT, name("a"), name("target")).map(drop),
        &|fs| fs.mknod(&me(), ROOT, name("a"), 0o100_644, 0, 0).map(drop),
        &|fs| fs.create(&me(), ROOT, name("a"), 0o400, 0, true, BOTH.into()).map(drop),
    ];
    for make in makes {
        each(|_| {}, make, |bed, made, killed| assert!(made.is_ok() && bed.has("a"), "{killed:?}: {made:?}"));
        // An existing file was made by another user.
        let there = |bed: &Bed| fs::write(bed.path("a"), "x").unwrap();
        each(there, make, |_, made, killed| {
            assert_eq!(made.err().map(|error| error.errno()), Some(Errno::EEXIST), "{killed:?}");
        });
    }
}

#[test]
fn what_is_not_what_was_to_be_made_was_made_by_others() {
    let bed = Bed::new();
    let found = RequestRecord { phase: Phase::Taken, errno: 0, note: Some(0), opened: HandleId(0) };
    fs::write(bed.path("a"), "x").unwrap();
    let made = bed.once_request(Some(found)).mkdir(&me(), ROOT, name("a"), 0o755, 0);
    assert_eq!(made.err().map(|error| error.errno()), Some(Errno::EEXIST));
    // It was done, and others have put another file there since.
    let done = RequestRecord { phase: Phase::Done, ..found };
    let made = bed.once_request(Some(done)).mkdir(&me(), ROOT, name("a"), 0o755, 0);
    assert_eq!(made.err().map(|error| error.errno()), Some(Errno::EIO));
}

#[test]
fn a_file_that_was_opened_is_opened_with_its_rights_again() {
    let open: Work<'_> = &|fs| fs.create(&me(), ROOT, name("a"), 0o600, 0, false, BOTH.into()).map(drop);
    each(
        |bed| fs::write(bed.path("a"), "x").unwrap(),
        open,
        |bed, opened, killed| {
            assert!(opened.is_ok(), "{killed:?}");
            assert_eq!(fs::read(bed.path("a")).unwrap(), b"x");
        },
    );
}

#[test]
fn names_are_removed_once() {
    let unlink: Work<'_> = &|fs| fs.unlink(&me(), ROOT, name("a"));
    each(
        |bed| fs::write(bed.path("a"), "x").unwrap(),
        unlink,
        |bed, removed, killed| assert!(removed.is_ok() && !bed.has("a"), "{killed:?}"),
    );
    each(
        |_| {},
        unlink,
        |_, removed, killed| {
            assert_eq!(removed.err().map(|error| error.errno()), Some(Errno::ENOENT), "{killed:?}");
        },
    );
    let rmdir: Work<'_> = &|fs| fs.rmdir(&me(), ROOT, name("a"));
    each(
        |bed| fs::create_dir(bed.path("a")).unwrap(),
        rmdir,
        |bed, removed, killed| assert!(removed.is_ok() && !bed.has("a"), "{killed:?}"),
    );
}

#[test]
fn what_others_put_in_place_of_a_removed_name_stays() {
    let bed = Bed::new();
    for file in ["a", "b"] {
        fs::write(bed.path(file), file).unwrap();
    }
    let found =
        RequestRecord { phase: Phase::Taken, errno: 0, note: Some(bed.ino("a")), opened: HandleId(0) };
    // The process removed `a`, and then another user renamed `b`.
    fs::rename(bed.path("b"), bed.path("a")).unwrap();
    bed.once_request(Some(found)).unlink(&me(), ROOT, name("a")).unwrap();
    assert_eq!(fs::read(bed.path("a")).unwrap(), b"b");
}

#[test]
fn names_are_exchanged_and_renamed_once() {
    let two = |bed: &Bed| {
        for file in ["a", "b"] {
            fs::write(bed.path(file), file).unwrap();
        }
    };
    let rename = |mode, to: &'static str| {
        move |fs: &dyn FileSystem| fs.rename(&me(), ROOT, name("a"), ROOT, name(to), mode)
    };
    each(two, &rename(RenameMode::Exchange, "b"), |bed, renamed, killed| {
        assert!(renamed.is_ok(), "{killed:?}");
        assert_eq!(fs::read(bed.path("a")).unwrap(), b"b", "{killed:?}");
    });
    for (mode, to) in [(RenameMode::Replace, "b"), (RenameMode::NoReplace, "c")] {
        each(two, &rename(mode, to), |bed, renamed, killed| {
            assert!(renamed.is_ok() && !bed.has("a"), "{killed:?}");
            assert_eq!(fs::read(bed.path(to)).unwrap(), b"a");
        });
    }
}

#[test]
fn links_are_made_once() {
    each(
        |bed| fs::write(bed.path("a"), "x").unwrap(),
        &|fs| {
            let ino = fs.lookup(&me(), ROOT, name("a"))?.attr.ino;
            fs.link(&me(), ino, ROOT, name("b")).map(drop)
        },
        |bed, linked, killed| {
            assert!(linked.is_ok(), "{killed:?}: {linked:?}");
            assert_eq!(fs::metadata(bed.path("a")).unwrap().nlink(), 2);
        },
    );
}

#[test]
fn what_may_have_ended_processes_or_is_not_in_the_table_is_refused() {
    let bed = Bed::new();
    let mut once = Once {
        view: Arc::clone(&bed.view),
        ledger: Arc::clone(&bed.ledger),
        names: Arc::default(),
        refuse: true,
    };
    let target = Below(Arc::clone(&bed.view) as Arc<dyn FileSystem>);
    let statfs = Numbers { operation: Operation::Statfs as u32, ..Numbers::default() };
    let found = RequestRecord { phase: Phase::Taken, errno: 0, note: None, opened: HandleId(0) };
    assert_eq!(once.call((0, Some(found)), Message::new(statfs), &target).unwrap_err().errno, Errno::EIO.0);
    assert!(once.call((0, None), Message::new(statfs), &target).is_ok());
    once.refuse = false;
    assert!(once.call((0, Some(found)), Message::new(statfs), &target).is_ok());
    let other = Numbers { operation: 0x2_0000, ..Numbers::default() };
    let errno = |found| once.call((0, found), Message::new(other), &target).unwrap_err().errno;
    assert_eq!((errno(Some(found)), errno(None)), (Errno::EIO.0, Errno::ENOSYS.0));
}

/// A queue of a session that outlives crashes, with a ledger of its own.
fn queue(bed: &Bed, names: &Arc<Names>) -> (Queue, Arc<Ledger>) {
    let memory = SharedWords::create("test", GEOMETRY.words()).unwrap();
    let ledger = Ledger::new(GEOMETRY, Box::new(|_| {})).unwrap();
    let (view, kept) = (Arc::clone(&bed.view), Arc::clone(&ledger));
    let once = Once { view, ledger: kept, names: Arc::clone(names), refuse: false };
    let target = Below(Arc::clone(&bed.view) as Arc<dyn FileSystem>);
    let shared = SessionShared::new(memory, GEOMETRY, (me(), false), (Box::new(target), Some(once)));
    (Queue::new(Arc::new(shared), 0, Order::Free, 0, Load::new((0, 0), Class::Auto)), ledger)
}

fn noted() -> Unanswered {
    let found = RequestRecord { phase: Phase::Taken, errno: 0, note: Some(0), opened: HandleId(0) };
    let statfs = Numbers { operation: Operation::Statfs as u32, ..Numbers::default() };
    Unanswered { number: 0, slot: 0, asked: Ok(asked(statfs)), generation: 0, found }
}

#[test]
fn nothing_new_is_done_before_what_others_wait_for_is_repeated() {
    let (bed, names, mut buffers) = (Bed::new(), Arc::default(), Buffers::default());
    let ((one, _), (other, _)) = (queue(&bed, &names), queue(&bed, &names));
    one.repeat(vec![noted()]);
    submit(&other);
    // It does not sleep, since nothing would wake it.
    assert!(other.has_work() && !other.serve_one(&mut buffers));
    assert!(one.serve_one(&mut buffers) && other.serve_one(&mut buffers));
    // A session that ends does not keep others waiting either.
    one.repeat(vec![noted()]);
    submit(&other);
    assert!(!other.serve_one(&mut buffers));
    drop(one);
    assert!(other.serve_one(&mut buffers));
}

#[test]
fn a_slot_has_one_request_at_a_time() {
    let (bed, names, mut buffers) = (Bed::new(), Arc::default(), Buffers::default());
    let (queue, ledger) = queue(&bed, &names);
    ledger.taken(0, (9, 0), &Ok(asked(Numbers::default())));
    submit(&queue);
    assert!(!queue.serve_one(&mut buffers) && queue.shared.is_broken());
}
