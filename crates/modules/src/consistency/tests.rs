//! The requests that reach the child, and their time.

use super::*;
use crate::testing;
use braid_contract::{FigureValue, OpenFlags, Reply, Request, Served, Service};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// Until a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that the stack can't open.
const UNREADABLE: InodeId = InodeId(13);

/// Carries out everything, and reports the requests. A file's name is its number, and its handle
/// too; there is none whose name has a `-`.
struct Told {
    to: Mutex<Sender<String>>,
    fails: Arc<AtomicBool>,
}

impl Service for Told {
    fn capabilities(&self) -> FileSystemCapabilities {
        testing::capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let failed = || self.fails.load(Ordering::Relaxed);
        let (told, reply) = match request {
            Request::Lookup { name, .. } => match name.to_str().unwrap().parse() {
                Ok(number) => return Reply::Lookup(Ok(testing::entry(number))),
                Err(_) => return Reply::Lookup(Err(Errno::ENOENT.into())),
            },
            Request::Forget { .. } => return Reply::Forget(()),
            Request::Open { ino: UNREADABLE, .. } => return Reply::Open(Err(Errno::EACCES.into())),
            Request::Open { ino, request, .. } => {
                let told = format!("open {}{}", ino.0, if request.flags.sync { " sync" } else { "" });
                let mode = IoMode::Cached;
                (told, Reply::Open(Ok(Opened { handle: HandleId(ino.0), mode, set_id: false })))
            }
            Request::Write { handle, data, flags, .. } => {
                let told = format!("write {}{}", handle.0, if flags.sync { " sync" } else { "" });
                (told, Reply::Write(Ok(data.len())))
            }
            Request::Flush { .. } => return Reply::Flush(Ok(())),
            Request::Release { .. } => return Reply::Release(Ok(())),
            Request::Fsync { handle, .. } => {
                let done = if failed() { Err(Errno::EIO.into()) } else { Ok(()) };
                (format!("fsync {}", handle.0), Reply::Fsync(done))
            }
            Request::Rename { .. } => ("rename".to_owned(), Reply::Rename(Ok(()))),
            Request::OpenDir { ino, .. } => return Reply::OpenDir(Ok(HandleId(ino.0))),
            Request::ReleaseDir { .. } => return Reply::ReleaseDir(Ok(())),
            Request::SyncDir { handle, .. } => {
                let done = if failed() { Err(Errno::EIO.into()) } else { Ok(()) };
                (format!("sync_dir {}", handle.0), Reply::SyncDir(done))
            }
            Request::Create { name, .. } => {
                let entry = testing::entry(name.to_str().unwrap().parse().unwrap());
                let handle = HandleId(entry.attr.ino.0);
                let opened = Opened { handle, mode: IoMode::Cached, set_id: false };
                (format!("create {}", handle.0), Reply::Create(Ok((entry, opened))))
            }
            Request::Unlink { name, .. } => {
                (format!("unlink {}", name.to_str().unwrap()), Reply::Unlink(Ok(())))
            }
            Request::Setattr { ino, .. } => {
                (format!("setattr {}", ino.0), Reply::Setattr(Ok(testing::entry(ino.0).attr)))
            }
            Request::Getattr { ino, .. } => return Reply::Getattr(Ok(testing::entry(ino.0).attr)),
            Request::Setxattr { ino, .. } => (format!("setxattr {}", ino.0), Reply::Setxattr(Ok(()))),
            Request::Sync {} => {
                let done = if failed() { Err(Errno::EIO.into()) } else { Ok(()) };
                ("sync".to_owned(), Reply::Sync(done))
            }
            other => return other.operation().failed(Errno::ENOSYS.into()),
        };
        let _ = self.to.lock().unwrap().send(told);
        reply
    }
}

struct Bed {
    fs: Consistency,
    told: Receiver<String>,
    fails: Arc<AtomicBool>,
    child: Arc<dyn FileSystem>,
}

fn caller() -> Caller {
    Caller { uid: 1, gid: 1, groups: None, pid: 1, tid: 1, of_stack: false }
}

fn settings(text: &str) -> std::result::Result<Settings, String> {
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    Given { mode: words[0].clone(), within: words.get(1).cloned() }.try_into()
}

impl Bed {
    fn new(text: &str) -> Self {
        let (to, told) = channel();
        let fails = Arc::new(AtomicBool::new(false));
        let child: Arc<dyn FileSystem> =
            Arc::new(Served(Told { to: Mutex::new(to), fails: Arc::clone(&fails) }));
        Self {
            fs: Consistency::new(&settings(text).unwrap(), Arc::clone(&child)).unwrap(),
            told,
            fails,
            child,
        }
    }

    /// As a front end sees the module.
    fn door(&self) -> &dyn FileSystem {
        &self.fs
    }

    /// Opens a file for writing.
    fn open(&self, number: u64, sync: bool) -> Opened {
        let flags = OpenFlags { write: true, sync, ..OpenFlags::default() };
        self.door().open(&caller(), InodeId(number), flags.into()).unwrap()
    }

    fn write(&self, number: u64, sync: bool) {
        let flags = WriteFlags { sync, ..WriteFlags::default() };
        assert_eq!(self.door().write(&caller(), HandleId(number), 0, b"data", flags), Ok(4));
    }

    fn fsync(&self, number: u64) -> Result<()> {
        self.door().fsync(&caller(), HandleId(number), false)
    }

    fn close(&self, number: u64) -> Result<()> {
        self.door().flush(&caller(), HandleId(number))
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let root = InodeId::ROOT;
        self.door().rename(&caller(), root, OsStr::new(from), root, OsStr::new(to), mode)
    }

    /// The requests that reached the child since the last call, without waiting.
    fn so_far(&self) -> Vec<String> {
        self.told.try_iter().collect()
    }

    /// The next request that reaches it.
    fn next(&self) -> String {
        self.told.recv_timeout(PATIENCE).unwrap()
    }
}

#[test]
fn in_the_mode_close_to_open_a_file_is_durable_when_it_is_closed() {
    let bed = Bed::new("close-to-open");
    assert!(bed.door().capabilities().flush_at_close);
    bed.open(2, false);
    bed.open(3, false);
    bed.write(2, false);
    bed.close(3).unwrap();
    assert_eq!(bed.so_far(), ["open 2", "open 3", "write 2"]);
    bed.fails.store(true, Ordering::Relaxed);
    assert_eq!(bed.close(2).unwrap_err().errno(), Errno::EIO);
    bed.fails.store(false, Ordering::Relaxed);
    // It was not done, and is asked for again; and then not any more.
    bed.close(2).unwrap();
    bed.close(2).unwrap();
    assert_eq!(bed.so_far(), ["fsync 2", "fsync 2"]);
    // A file that was opened before the module came may have been changed.
    bed.close(7).unwrap();
    bed.door().sync_dir(&caller(), HandleId(3)).unwrap();
    assert_eq!(bed.so_far(), ["fsync 7", "sync_dir 3"]);
}

#[test]
fn in_the_mode_strict_each_change_is_durable_when_it_returns() {
    let bed = Bed::new("strict");
    let can = bed.door().capabilities();
    assert!(can.writes_through && can.holds_up && !can.passthrough);
    bed.open(2, false);
    assert_eq!(bed.so_far(), ["open 2"]);
    bed.write(2, false);
    assert_eq!(bed.so_far(), ["write 2", "fsync 2"]);
    let (caller, root) = (caller(), InodeId::ROOT);
    let create = || {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        bed.door().create(&caller, root, OsStr::new("5"), 0o644, 0, true, flags.into())
    };
    create().unwrap();
    assert_eq!(bed.so_far(), ["create 5", "fsync 5", "sync_dir 1"]);
    bed.door().unlink(&caller, root, OsStr::new("5")).unwrap();
    assert_eq!(bed.so_far(), ["unlink 5", "sync_dir 1"]);
    bed.rename("2", "3", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["rename", "sync_dir 1"]);
    bed.door()
        .rename(&caller, root, OsStr::new("2"), InodeId(9), OsStr::new("3"), RenameMode::Replace)
        .unwrap();
    assert_eq!(bed.so_far(), ["rename", "sync_dir 9", "sync_dir 1"]);
    bed.door().setattr(&caller, InodeId(2), Some(HandleId(2)), &SetAttr::default()).unwrap();
    assert_eq!(bed.so_far(), ["setattr 2", "fsync 2"]);
    bed.door().setattr(&caller, InodeId(6), None, &SetAttr::default()).unwrap();
    assert_eq!(bed.so_far(), ["setattr 6", "open 6", "fsync 6"]);
    bed.door().setattr(&caller, UNREADABLE, None, &SetAttr::default()).unwrap();
    assert_eq!(bed.so_far(), ["setattr 13", "sync"]);
    bed.door().setxattr(&caller, InodeId(6), OsStr::new("user.a"), b"", XattrMode::Set).unwrap();
    assert_eq!(bed.so_far(), ["setxattr 6", "open 6", "fsync 6"]);
    // A failure is the operation's.
    bed.fails.store(true, Ordering::Relaxed);
    assert_eq!(create().unwrap_err().errno(), Errno::EIO);
    let flags = WriteFlags::default();
    let written = bed.door().write(&caller, HandleId(2), 0, b"data", flags);
    assert_eq!(written.unwrap_err().errno(), Errno::EIO);
}

#[test]
fn in_the_relaxed_mode_it_is_durable_later() {
    let bed = Bed::new("relaxed 10ms");
    bed.open(2, true);
    bed.write(2, true);
    bed.fsync(2).unwrap();
    assert_eq!([bed.next(), bed.next(), bed.next()], ["open 2", "write 2", "sync"]);
    // Durable data is not synced again.
    assert_eq!(bed.told.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
    bed.fsync(2).unwrap();
    assert_eq!(bed.next(), "sync");
    bed.door().sync_dir(&caller(), HandleId(3)).unwrap();
    assert_eq!(bed.next(), "sync");
    // The file is not known.
    bed.fsync(7).unwrap();
    assert_eq!(bed.next(), "fsync 7");
}

#[test]
fn what_was_put_off_is_done_when_the_module_goes() {
    let Bed { fs, told, .. } = {
        let bed = Bed::new("relaxed 300s");
        bed.open(2, false);
        bed.fsync(2).unwrap();
        assert_eq!(bed.so_far(), ["open 2"]);
        bed
    };
    drop(fs);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["sync"]);
}

#[test]
fn where_it_can_not_be_done_later_programs_hear_it_when_they_ask() {
    let bed = Bed::new("relaxed 10ms");
    bed.open(2, false);
    bed.so_far();
    bed.fails.store(true, Ordering::Relaxed);
    bed.fsync(2).unwrap();
    // The second attempt begins after the first one was found to have failed.
    assert_eq!([bed.next(), bed.next()], ["sync", "sync"]);
    assert_eq!(bed.fsync(2).unwrap_err().errno(), Errno::EIO);
    bed.fails.store(false, Ordering::Relaxed);
    // Once an attempt has succeeded, it is put off again.
    let began = std::time::Instant::now();
    while bed.fs.later.as_ref().unwrap().is_any() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    bed.so_far();
    bed.fsync(2).unwrap();
    assert_eq!(bed.next(), "sync");
}

#[test]
fn what_replaces_a_durable_file_is_durable_first() {
    let bed = Bed::new("relaxed 300s");
    for number in 2..5 {
        bed.open(number, false);
    }
    bed.so_far();
    bed.rename("2", "3", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["rename"], "nothing was put off");
    bed.fsync(2).unwrap();
    bed.rename("2", "new-name", RenameMode::Replace).unwrap();
    bed.rename("3", "4", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["rename", "rename"]);
    bed.rename("2", "3", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["open 2", "fsync 2", "rename"]);
    bed.rename("3", "2", RenameMode::Exchange).unwrap();
    assert_eq!(bed.so_far(), ["open 2", "fsync 2", "rename"]);
    bed.fails.store(true, Ordering::Relaxed);
    assert_eq!(bed.rename("2", "3", RenameMode::Replace).unwrap_err().errno(), Errno::EIO);
    assert_eq!(bed.so_far(), ["open 2", "fsync 2"], "the old file is still there");
}

#[test]
fn a_successor_knows_what_was_put_off() {
    let bed = Bed::new("relaxed 300s");
    bed.open(2, false);
    bed.fsync(2).unwrap();
    let successor = Consistency::new(&settings("relaxed 299s").unwrap(), Arc::clone(&bed.child)).unwrap();
    let state = Module::export(&bed.fs);
    Module::import(&successor, &state).unwrap();
    assert!(successor.later.as_ref().unwrap().is_put_off(InodeId(2)));
    let odd = State { version: 1, bytes: vec![1, 2, 3] };
    assert_eq!(Module::import(&successor, &odd).unwrap_err().errno(), Errno::EINVAL);
    let unknown = State { version: 2, ..state.clone() };
    assert_eq!(Module::import(&successor, &unknown).unwrap_err().errno(), Errno::EINVAL);
    // A mode that puts nothing off has no use for it.
    let other = Consistency::new(&settings("close-to-open").unwrap(), Arc::clone(&bed.child)).unwrap();
    Module::import(&other, &state).unwrap();
    assert!(Module::export(&other).bytes.is_empty());
}

#[test]
fn after_a_crash_anything_may_have_been_put_off() {
    let bed = Bed::new("relaxed 300s");
    bed.open(2, false);
    bed.open(3, false);
    bed.so_far();
    Module::repair(&bed.fs, Crash { count: 1, state_age: None }).unwrap();
    bed.rename("2", "3", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["open 2", "fsync 2", "rename"]);
    drop(bed.fs);
    assert_eq!(bed.told.try_iter().collect::<Vec<_>>(), ["sync"]);
    // Once that is done, it is as before.
    let bed = Bed::new("relaxed 10ms");
    bed.open(2, false);
    bed.open(3, false);
    Module::repair(&bed.fs, Crash { count: 1, state_age: None }).unwrap();
    let began = std::time::Instant::now();
    while bed.fs.later.as_ref().unwrap().is_any() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(bed.so_far(), ["open 2", "open 3", "sync"]);
    bed.rename("2", "3", RenameMode::Replace).unwrap();
    assert_eq!(bed.so_far(), ["rename"]);
}

#[test]
fn what_is_asked_for_and_done_is_counted() {
    let count = |bed: &Bed, name: &str| {
        let figures = Module::figures(&bed.fs);
        figures.into_iter().find(|figure| figure.name == name).unwrap().value
    };
    let bed = Bed::new("relaxed 300s");
    bed.open(2, false);
    bed.fsync(2).unwrap();
    bed.fsync(2).unwrap();
    bed.fsync(7).unwrap();
    assert_eq!(count(&bed, "syncs_asked"), FigureValue::Counter(3.0));
    assert_eq!(count(&bed, "syncs_done"), FigureValue::Counter(1.0), "of the file that is not known");
    assert_eq!(count(&bed, "syncs_pending"), FigureValue::Gauge(1.0));
}

#[test]
fn what_is_no_mode_is_refused() {
    for (text, said) in [
        ("lax", "'lax' is no mode: write strict, close-to-open or relaxed"),
        ("strict 5s", "strict puts nothing off"),
        ("close-to-open 5s", "close-to-open puts nothing off"),
        ("relaxed soon", "'soon' is not from 10ms to 300s"),
        ("relaxed 1ms", "'1ms' is not from 10ms to 300s"),
        ("relaxed 1h", "'1h' is not from 10ms to 300s"),
    ] {
        let refused = settings(text).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(settings("relaxed").unwrap().0, Mode::Relaxed(Duration::from_secs(5)));
    assert_eq!(settings("relaxed 250ms").unwrap().0, Mode::Relaxed(Duration::from_millis(250)));
}
