//! Measures the cost of a request through the runtime: `cargo bench -p braid-runtime -- [SECONDS]`.
//! The file system below does nothing, so that only the queues, the workers and the checks of
//! rights remain. Prints nanoseconds of a round trip as JSON, while both sides poll, and where the
//! worker sleeps before.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement fails by panicking")]

use braid_contract::{
    Attr, Caller, Entry, FileKind, FileSystem, FileSystemCapabilities, HandleId, InodeId, IoMode, OpenFlags,
    Opened, Reply, Request, Served, Service, Timestamp, WriteFlags,
};
use braid_runtime::{Before, Mounted, Options, Runtime, Session, Settings};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers at once.
struct Nothing;

fn attr(kind: FileKind) -> Attr {
    let time = Timestamp::default();
    Attr {
        ino: InodeId(1),
        size: 1 << 30,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        kind,
        mode: 0o777,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: 4096,
    }
}

impl Service for Nothing {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: Duration::ZERO,
            passthrough: false,
            rename_modes: true,
            posix_acl: false,
            flush_at_close: false,
            caller_groups: false,
            holds_up: false,
            writes_through: false,
        }
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let opened = Opened { handle: HandleId(7), mode: IoMode::Direct, set_id: false };
        match request {
            Request::Lookup { .. } => {
                Reply::Lookup(Ok(Entry { attr: attr(FileKind::Directory), generation: 0 }))
            }
            Request::Getattr { handle: None, .. } => Reply::Getattr(Ok(attr(FileKind::Regular))),
            Request::Open { .. } => Reply::Open(Ok(opened)),
            Request::Read { buf, .. } => Reply::Read(Ok(buf.len())),
            Request::Write { data, .. } => Reply::Write(Ok(data.len())),
            other => other.operation().failed(braid_contract::Errno::ENOSYS.into()),
        }
    }
}

/// Nanoseconds at the median and at 99 %, and their number.
fn measure(time: Duration, pause: Duration, mut operation: impl FnMut()) -> String {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        std::thread::sleep(pause);
        let one = Instant::now();
        operation();
        took.push(one.elapsed().as_nanos() as u64);
    }
    took.sort_unstable();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    format!("{{\"p50\": {}, \"p99\": {}, \"count\": {}}}", at(0.5), at(0.99), took.len())
}

fn main() {
    let seconds = std::env::args().filter_map(|word| word.parse::<f64>().ok()).next_back();
    let time = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let dir = tempfile::tempdir().unwrap();
    let device = std::fs::metadata(dir.path()).unwrap().dev();
    let top: Arc<dyn FileSystem> = Arc::new(Served(Nothing));
    let socket = dir.path().join("socket");
    let mounted = Mounted { top: Arc::clone(&top), kernel: None, values: None, device };
    let settings = Settings { workers: 1, ..Settings::default() };
    let runtime = Runtime::start((&socket, false), settings, mounted, Before::default()).unwrap();
    let (session, root) = Session::begin(&socket, dir.path(), Options::default()).unwrap();
    let fs = session.file_system();
    let caller = Caller::root();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let handle = fs.open(&caller, root, flags.into()).unwrap().handle;
    let (mut buf, data) = (vec![0; 4096], vec![7; 4096]);
    let none = Duration::ZERO;
    let getattr = measure(time, none, || assert_eq!(fs.getattr(&caller, root, None).unwrap().nlink, 2));
    let read =
        measure(time, none, || assert_eq!(fs.read(&caller, handle, 0, &mut buf, false).unwrap(), 4096));
    let write = measure(time, none, || {
        assert_eq!(fs.write(&caller, handle, 0, &data, WriteFlags::default()).unwrap(), 4096);
    });
    let asleep = measure(time, Duration::from_millis(2), || {
        assert_eq!(fs.getattr(&caller, root, None).unwrap().nlink, 2)
    });
    println!(
        "{{\"getattr\": {getattr}, \"read_4k\": {read}, \"write_4k\": {write}, \
         \"getattr_asleep\": {asleep}}}"
    );
    drop(runtime);
}
