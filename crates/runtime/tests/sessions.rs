//! A session is the file system, with the rights of its user.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_contract::{
    Caller, Class, Entry, Errno, FileSystem, InodeId, KeyValue, Layer, OpenFlags, PutOptions, Result,
    ScanRange, WriteFlags,
};
use braid_kv::{FileBucket, Held, Listings};
use braid_runtime::{
    Before, DATA_MAX, Geometry, Mounted, Options, PolicyKind, Runtime, Scheduler, Session, Settings, Values,
};
use braid_sys::{SharedWords, pass_descriptors};
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::conformance::key_value;
use braid_testkit::dir_fs::{Choice, DirFs};
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The file system over a directory, whose root has the number of that.
struct Rooted {
    inner: DirFs,
    root: InodeId,
}

impl Layer for Rooted {
    fn child(&self) -> &dyn FileSystem {
        &self.inner
    }

    fn lookup(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let parent = if parent == self.root { InodeId::ROOT } else { parent };
        self.inner.lookup(caller, parent, name)
    }
}

/// Its directories as keys and values.
struct Directories(Arc<dyn FileSystem>);

impl Values for Directories {
    fn bucket(&self, dir: InodeId) -> Result<Arc<dyn KeyValue>> {
        let held = Held::directory(&self.0, dir)?;
        Ok(Arc::new(FileBucket::new(Arc::clone(&self.0), held, None, &Arc::new(Listings::default()))))
    }
}

/// A runtime over a directory, and a session with it.
struct Bed {
    session: Arc<Session>,
    fs: Arc<dyn FileSystem>,
    runtime: Option<Runtime>,
    dir: TempDir,
}

/// A view of a new directory `data`.
fn mounted(dir: &Path) -> Mounted {
    let data = dir.join("data");
    std::fs::create_dir(&data).unwrap();
    let found = std::fs::metadata(&data).unwrap();
    let top = Rooted { inner: DirFs::new(&data, Choice::Cached), root: InodeId(found.ino()) };
    let top: Arc<dyn FileSystem> = Arc::new(top);
    let values = Arc::new(Directories(Arc::clone(&top)));
    Mounted { top, kernel: None, values: Some(values), device: found.dev() }
}

fn bed(settings: Settings, options: Options) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let mounted = mounted(dir.path());
    let runtime = Runtime::start((&socket, false), settings, mounted, Before::default()).unwrap();
    let (session, root) = Session::begin(&socket, &data, options).unwrap();
    assert_eq!(root, InodeId::ROOT);
    Bed { fs: session.file_system(), session, runtime: Some(runtime), dir }
}

fn fresh(settings: Settings, options: Options) -> Fresh {
    let Bed { fs, runtime, dir, .. } = bed(settings, options);
    Fresh::new(fs, (runtime, dir))
}

#[test]
fn a_session_keeps_the_promises_of_a_file_system() {
    let small = Geometry { queues: 2, depth: 2, data: 4096 };
    let quick = Duration::from_micros(1);
    for (settings, options) in [
        (Settings::default(), Options::default()),
        (
            Settings {
                workers: 3,
                policy: PolicyKind::RoundRobin,
                scheduler: Scheduler::Noop,
                poll: quick,
                ..Settings::default()
            },
            Options { geometry: small, ordered: true, poll: quick, ..Options::default() },
        ),
    ] {
        let name = format!("a session, {:?}", settings.policy);
        run(&name, &[Part::Namespace, Part::Data], &|| fresh(settings, options)).conclude();
    }
}

#[test]
fn a_directory_of_a_session_keeps_the_promises_of_keys_and_values() {
    let options =
        Options { geometry: Geometry { queues: 2, depth: 4, data: DATA_MAX }, ..Options::default() };
    let fresh = || {
        let Bed { session, fs, runtime, dir } = bed(Settings::default(), options);
        let made = fs.mkdir(&Caller::root(), InodeId::ROOT, OsStr::new("bucket"), 0o700, 0).unwrap().attr.ino;
        let values = session.values(made).unwrap();
        let kept = Box::new((runtime, dir));
        key_value::Fresh { values, fs, dir: made, value_max: DATA_MAX, knows_callers: false, kept }
    };
    key_value::run("a directory of a session", &fresh).conclude();
}

#[test]
fn what_does_not_fit_a_slot_is_refused() {
    let options = Options { geometry: Geometry { queues: 1, depth: 2, data: 4096 }, ..Options::default() };
    let Bed { session, fs, runtime: _runtime, dir } = bed(Settings::default(), options);
    let (me, values) = (Caller::root(), session.values(InodeId::ROOT).unwrap());
    let put = |key: &str, len: usize| values.put(&me, key.as_bytes(), &vec![1; len], PutOptions::default());
    assert!(put("a", 4096).unwrap());
    assert_eq!(put("b", 4097).unwrap_err().errno(), Errno::EFBIG);
    std::fs::write(dir.path().join("data/b"), [1; 4097]).unwrap();
    assert_eq!(values.get(&me, b"b").unwrap_err().errno(), Errno::EFBIG);
    assert_eq!(values.len(&me, b"b").unwrap(), Some(4097));
    // A page is as long as fits, and is gone on with; a value that fits no page is reported.
    let scan = |after: Option<&[u8]>, values_too| {
        let range = ScanRange { after: after.map(<[u8]>::to_vec), ..ScanRange::default() };
        values.scan(&me, &range, 1000, values_too)
    };
    assert_eq!(scan(None, true).unwrap_err().errno(), Errno::EFBIG);
    values.delete(&me, b"a").unwrap();
    values.delete(&me, b"b").unwrap();
    let keys: Vec<String> = (0..40).map(|key| format!("{key:02}{}", "k".repeat(100))).collect();
    keys.iter().for_each(|key| assert!(put(key, 100).unwrap()));
    for (with, pages_min) in [(true, 3), (false, 2)] {
        let (mut found, mut after, mut pages) = (Vec::new(), None::<Vec<u8>>, 0);
        loop {
            let page = scan(after.as_deref(), with).unwrap();
            found.extend(page.entries.into_iter().map(|(key, value)| {
                assert_eq!(value, with.then(|| vec![1; 100]));
                String::from_utf8(key).unwrap()
            }));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(found == keys && pages >= pages_min, "{pages}");
    }
    // A file, or a directory that the session does not know, has no keys.
    let file = fs.lookup(&me, InodeId::ROOT, OsStr::new(&keys[0])).unwrap().attr.ino;
    assert_eq!(session.values(file).err().map(|error| error.errno()), Some(Errno::ENOTDIR));
    assert_eq!(session.values(InodeId(u64::MAX)).err().map(|error| error.errno()), Some(Errno::ESTALE));
}

const PATIENCE: Duration = Duration::from_secs(60);
const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

#[test]
fn a_session_goes_on_with_another_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let mounted = mounted(dir.path());
    let start = |given| {
        let before = Before { given, ..Before::default() };
        Runtime::start((&socket, false), Settings::default(), mounted.clone(), before).unwrap()
    };
    let mut runtime = start(Vec::new());
    let (session, root) = Session::begin(&socket, &data, Options::default()).unwrap();
    let (fs, me) = (session.file_system(), Caller::root());
    let (_, opened) = fs.create(&me, root, OsStr::new("file"), 0o600, 0, true, BOTH.into()).unwrap();
    for turn in 0..3 {
        fs.write(&me, opened.handle, turn, b"x", WriteFlags::default()).unwrap();
        assert!(runtime.pause(PATIENCE));
        let given = runtime.give();
        assert_eq!(given.len(), 1);
        drop(runtime);
        runtime = start(given);
    }
    // A pause that nothing follows changes nothing.
    assert!(runtime.pause(PATIENCE));
    runtime.resume();
    let mut read = [0; 9];
    assert_eq!(fs.read(&me, opened.handle, 0, &mut read, false).unwrap(), 3);
    assert_eq!(runtime.status().sessions.len(), 1);
    runtime.stop();
    assert_eq!(fs.release(opened.handle).unwrap_err().errno(), Errno::ENOTCONN);
}

/// It may hang up before the application has sent all.
#[test]
fn a_refusal_is_told_however_soon_it_comes() {
    const TIMES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let refuses = std::thread::spawn(move || {
        for _ in 0..TIMES {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"refused\":{\"errno\":1,\"why\":\"not you\"}}\n").unwrap();
        }
    });
    for _ in 0..TIMES {
        let refused = Session::begin(&socket, dir.path(), Options::default()).err().unwrap();
        assert_eq!(
            (refused.errno(), refused.to_string().contains("not you")),
            (Errno::EPERM, true),
            "{refused}"
        );
    }
    refuses.join().unwrap();
}

#[test]
fn a_runtime_of_an_earlier_version_says_that_no_process_can_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let earlier = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"{\"begun\":{\"session\":1}}\n").unwrap();
        let memory = SharedWords::create("test", 1 << 20).unwrap();
        pass_descriptors(&stream, &[memory.as_fd()]).unwrap();
        stream.write_all(b"{\"shown\":{\"ino\":1}}\n").unwrap();
        stream
    });
    let (session, _) = Session::begin(&socket, dir.path(), Options::default()).unwrap();
    assert!(session.ends_with_process().is_some_and(|why| why.contains("earlier version")));
    drop(earlier.join().unwrap());
}

/// The kernel gives the number of a file system, by which its socket is named, to the next one.
#[test]
fn the_end_of_a_runtime_leaves_the_socket_of_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let mounted = mounted(dir.path());
    let start =
        || Runtime::start((&socket, false), Settings::default(), mounted.clone(), Before::default()).unwrap();
    let (first, second) = (start(), start());
    drop(first);
    assert!(Session::begin(&socket, &data, Options::default()).is_ok());
    drop(second);
    assert!(!socket.exists());
}

#[test]
fn a_runtime_that_waits_carries_nothing_out_before_it_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let mounted = mounted(dir.path());
    let start = |given, waits| {
        let before = Before { given, waits, ..Before::default() };
        Runtime::start((&socket, false), Settings::default(), mounted.clone(), before).unwrap()
    };
    let runtime = start(Vec::new(), false);
    let (session, root) = Session::begin(&socket, &data, Options::default()).unwrap();
    let (fs, me) = (session.file_system(), Caller::root());
    assert!(runtime.pause(PATIENCE));
    let given = runtime.give();
    drop(runtime);
    let runtime = start(given, true);
    std::thread::scope(|scope| {
        let made = scope.spawn(|| fs.mkdir(&me, root, OsStr::new("dir"), 0o755, 0));
        let another = scope.spawn(|| Session::begin(&socket, &data, Options::default()));
        while runtime.status().queues.iter().all(|queue| queue.waiting == 0) {
            std::thread::yield_now();
        }
        assert!(!data.join("dir").exists() && !made.is_finished() && !another.is_finished());
        runtime.resume();
        made.join().unwrap().unwrap();
        another.join().unwrap().unwrap();
    });
    assert!(data.join("dir").is_dir());
}

#[test]
fn another_process_goes_on_with_the_side_of_an_application() {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let runtime =
        Runtime::start((&socket, false), Settings::default(), mounted(dir.path()), Before::default())
            .unwrap();
    let geometry = Geometry { queues: 1, depth: 2, data: 4096 };
    let options = Options { geometry, ..Options::default() };
    let (mut session, root) = Session::begin(&socket, &data, options).unwrap();
    let me = Caller::root();
    let (entry, opened) = {
        let fs = session.file_system();
        fs.create(&me, root, OsStr::new("file"), 0o600, 0, true, BOTH.into()).unwrap()
    };
    for turn in 0..5 {
        let fs = session.file_system();
        assert_eq!(fs.write(&me, opened.handle, turn, b"x", WriteFlags::default()).unwrap(), 1);
        fs.lookup(&me, root, OsStr::new("file")).unwrap();
        // Its slot may still be in use.
        fs.forget(entry.attr.ino, 1);
        let given = session.give().unwrap();
        drop((fs, session));
        session = Session::go_on(given).unwrap();
    }
    assert_eq!(runtime.status().sessions.len(), 1, "the runtime noticed nothing");
    let fs = session.file_system();
    assert_eq!(fs.getattr(&me, entry.attr.ino, Some(opened.handle)).unwrap().size, 5);
    // Memory that is too small for the state is refused.
    let mut given = session.give().unwrap();
    given.memory =
        braid_sys::SharedWords::create("small", 600).unwrap().as_fd().try_clone_to_owned().unwrap();
    let refused = Session::go_on(given).err().unwrap();
    assert!(refused.to_string().contains("does not fit its memory"), "{refused}");
}

#[test]
fn who_never_ends_a_line_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let runtime =
        Runtime::start((&socket, false), Settings::default(), mounted(dir.path()), Before::default())
            .unwrap();
    let over = AtomicBool::new(false);
    // Until the runtime hangs up on one that is too slow.
    let say = |stream: &mut UnixStream| {
        let mut said = 0;
        while !over.load(Ordering::Relaxed) && stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
            said += 1;
        }
        assert!(said < 1000, "it was listened to for too long");
    };
    let mut begun = UnixStream::connect(&socket).unwrap();
    let hello = r#"{"begin":{"version":2,"geometry":{"queues":1,"depth":1,"data":4096},"class":"auto","ordered":false}}"#;
    begun.write_all(format!("{hello}\n{{\"show\":{{}}}}\n").as_bytes()).unwrap();
    let directory = std::fs::File::open(&data).unwrap();
    braid_sys::pass_descriptors(&begun, &[directory.as_fd()]).unwrap();
    while runtime.status().sessions.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut new = UnixStream::connect(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| say(&mut begun));
        scope.spawn(|| say(&mut new));
        std::thread::sleep(Duration::from_millis(50));
        assert!(runtime.pause(PATIENCE));
        drop(runtime.give());
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn descriptors_of_others_are_refused_and_the_session_goes_on() {
    let Bed { fs, runtime, dir, .. } = bed(Settings::default(), Options::default());
    let socket = dir.path().join("socket");
    for elsewhere in [Path::new("/proc"), &dir.path().join("data")] {
        let begun = Session::begin(&socket, elsewhere, Options::default());
        let errno = begun.err().map(|error| error.errno());
        assert_eq!(errno, (elsewhere == Path::new("/proc")).then_some(Errno::EXDEV));
    }
    assert!(fs.statfs(&Caller::root()).is_ok());
    let runtime = runtime.unwrap();
    while runtime.status().sessions.len() > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_user_has_so_much_memory_for_sessions_and_no_more() {
    let large = Geometry { queues: 15, depth: 64, data: 64 << 10 };
    let options = Options { geometry: large, ..Options::default() };
    let Bed { fs, runtime: _runtime, dir, .. } = bed(Settings::default(), options);
    let (socket, data) = (dir.path().join("socket"), dir.path().join("data"));
    let begin = || Session::begin(&socket, &data, options);
    let many: Vec<_> = (0..3).map(|_| begin().unwrap()).collect();
    assert_eq!(begin().err().map(|error| error.errno()), Some(Errno::EAGAIN));
    drop(many);
    while begin().is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(fs);
}

#[test]
fn every_request_is_answered_while_workers_come_go_and_pause() {
    for (ordered, policy) in [(true, PolicyKind::RoundRobin), (false, PolicyKind::Dynamic)] {
        let quick = Duration::from_micros(1);
        let settings =
            Settings { workers: 3, policy, poll: quick, rebalance: 20 * quick, ..Settings::default() };
        let small = Geometry { queues: 3, depth: 2, data: 4096 };
        let options =
            Options { geometry: small, ordered, class: Class::Throughput, poll: quick, for_others: false };
        let Bed { fs, runtime, dir, .. } = bed(settings, options);
        let (runtime, over) = (runtime.unwrap(), AtomicBool::new(false));
        let (socket, data) = (dir.path().join("socket"), dir.path().join("data"));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for _ in 0..50 {
                            fs.getattr(&Caller::root(), InodeId::ROOT, None).unwrap();
                        }
                        // All workers sleep now and then.
                        std::thread::sleep(Duration::from_micros(300));
                    }
                });
            }
            for _ in 0..100 {
                assert!(runtime.pause(PATIENCE));
                runtime.resume();
                // There may be too many that are about to end.
                drop(Session::begin(&socket, &data, Options::default()));
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
