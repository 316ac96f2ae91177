//! A file system that records each request, and a call of every operation: for tests of
//! layers that pass operations on.

use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Entry, Errno, FallocateMode, FileKind, FileSystem,
    FileSystemCapabilities, HandleId, Hint, InodeId, IoMode, OpenFlags, OpenRequest, Opened, Operation,
    RenameMode, Reply, Request, SeekTarget, Service, SetAttr, StatFs, Timestamp, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Records each request and answers with a value that depends on their number.
#[derive(Default)]
pub struct Recorder {
    calls: Mutex<Vec<(Option<Operation>, String)>>,
}

impl Recorder {
    /// The calls so far, in order: the operation, and all of the request. No operation: the
    /// capabilities.
    pub fn calls(&self) -> Vec<(Option<Operation>, String)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, operation: Option<Operation>, call: String) -> u64 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push((operation, call));
        calls.len() as u64
    }
}

impl Service for Recorder {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: Duration::from_secs(self.note(None, "capabilities".into())),
            passthrough: true,
            rename_modes: false,
            posix_acl: true,
            flush_at_close: false,
            caller_groups: false,
            holds_up: false,
            writes_through: false,
        }
    }

    fn call(&self, mut request: Request<'_>) -> Reply {
        let operation = request.operation();
        let number = self.note(Some(operation), format!("{request:?}"));
        let opened = Opened { handle: HandleId(number), mode: IoMode::Direct, set_id: false };
        let (entry, bytes) = (entry(number), number.to_le_bytes().to_vec());
        match &mut request {
            Request::Read { buf, .. } => buf.fill(7),
            Request::ReadDir { sink, .. } => {
                let (ino, name) = (InodeId(number), OsStr::new("x"));
                sink.add(&DirEntry { ino, next_offset: 5, kind: None, name, entry: None, damaged: false });
            }
            _ => {}
        }
        match operation {
            Operation::Lookup => Reply::Lookup(Ok(entry)),
            Operation::Forget => Reply::Forget(()),
            Operation::Getattr => Reply::Getattr(Ok(entry.attr)),
            Operation::Setattr => Reply::Setattr(Ok(entry.attr)),
            Operation::Readlink => Reply::Readlink(Ok(bytes)),
            Operation::Mknod => Reply::Mknod(Ok(entry)),
            Operation::Mkdir => Reply::Mkdir(Ok(entry)),
            Operation::Symlink => Reply::Symlink(Ok(entry)),
            Operation::Link => Reply::Link(Ok(entry)),
            Operation::Open => Reply::Open(Ok(opened)),
            Operation::Create => Reply::Create(Ok((entry, opened))),
            Operation::Tmpfile => Reply::Tmpfile(Ok((entry, opened))),
            Operation::Read => Reply::Read(Ok(number as usize)),
            Operation::Write => Reply::Write(Ok(number as usize)),
            Operation::Seek => Reply::Seek(Ok(number)),
            Operation::CopyRange => Reply::CopyRange(Ok(number)),
            Operation::OpenDir => Reply::OpenDir(Ok(HandleId(number))),
            Operation::Statfs => Reply::Statfs(Ok(StatFs { total: number, ..StatFs::default() })),
            Operation::Getxattr => Reply::Getxattr(Ok(bytes)),
            Operation::Listxattr => Reply::Listxattr(Ok(bytes)),
            Operation::Path => Reply::Path(Ok(PathBuf::from(number.to_string()))),
            // The others only succeed or fail: an error distinguishes the
            // calls.
            other => other.failed(Errno(i32::try_from(number).unwrap_or(i32::MAX)).into()),
        }
    }
}

/// Collects the names of `read_dir`.
#[derive(Default)]
struct Names(Vec<String>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push(format!("{entry:?}"));
        true
    }
}

/// Calls every method once, with distinct arguments, and answers the results.
pub fn call_everything(fs: &dyn FileSystem) -> Vec<String> {
    let caller = &Caller { uid: 11, gid: 12, groups: None, pid: 13, tid: 14, of_stack: false };
    let (a, b) = (OsStr::new("a"), OsStr::new("b"));
    let (i, j, h, k) = (InodeId(21), InodeId(22), HandleId(31), HandleId(32));
    let flags = OpenFlags { read: true, write: false, direct: true, sync: false };
    let request = OpenRequest { flags, passthrough_allowed: true, passthrough_required: false };
    let write_flags =
        WriteFlags { direct: true, sync: false, kill_set_id: true, write_back: true, hint: Hint::default() };
    let changes = SetAttr { size: Some(41), ..SetAttr::default() };
    let (mut buf, mut names) = ([0; 40], Names::default());
    fs.forget(i, 42);
    vec![
        format!("{:?}", fs.capabilities()),
        format!("{:?}", fs.lookup(caller, i, a)),
        format!("{:?}", fs.getattr(caller, i, Some(h))),
        format!("{:?}", fs.setattr(caller, i, Some(h), &changes)),
        format!("{:?}", fs.readlink(caller, i)),
        format!("{:?}", fs.mknod(caller, i, a, 51, 52, 53)),
        format!("{:?}", fs.mkdir(caller, i, a, 54, 55)),
        format!("{:?}", fs.symlink(caller, i, a, b)),
        format!("{:?}", fs.link(caller, i, j, a)),
        format!("{:?}", fs.unlink(caller, i, a)),
        format!("{:?}", fs.rmdir(caller, i, a)),
        format!("{:?}", fs.rename(caller, i, a, j, b, RenameMode::Exchange)),
        format!("{:?}", fs.open(caller, i, request)),
        format!("{:?}", fs.create(caller, i, a, 56, 57, true, request)),
        format!("{:?}", fs.tmpfile(caller, i, 58, 59, request)),
        format!("{:?}", fs.read(caller, h, 61, &mut buf, true)),
        format!("{buf:?}"),
        format!("{:?}", fs.write(caller, h, 62, &[7; 40], write_flags)),
        format!("{:?}", fs.flush(caller, h)),
        format!("{:?}", fs.release(h)),
        format!("{:?}", fs.fsync(caller, h, true)),
        format!("{:?}", fs.fallocate(caller, h, 63, 64, FallocateMode::PunchHole)),
        format!("{:?}", fs.seek(caller, h, 65, SeekTarget::Hole)),
        format!("{:?}", fs.copy_range(caller, h, 66, k, 67, 68)),
        format!("{:?}", fs.open_dir(caller, i)),
        format!("{:?}", fs.read_dir(caller, h, 69, true, &mut names)),
        format!("{:?}", names.0),
        format!("{:?}", fs.release_dir(h)),
        format!("{:?}", fs.sync_dir(caller, h)),
        format!("{:?}", fs.statfs(caller)),
        format!("{:?}", fs.getxattr(caller, i, a)),
        format!("{:?}", fs.listxattr(caller, i)),
        format!("{:?}", fs.setxattr(caller, i, a, b"v", XattrMode::Create)),
        format!("{:?}", fs.removexattr(caller, i, a)),
        format!("{:?}", fs.sync()),
        format!("{:?}", fs.path(i)),
    ]
}

/// The entry of a regular file with this number; its attributes do not matter.
pub fn entry(ino: u64) -> Entry {
    let time = Timestamp::default();
    let attr = Attr {
        ino: InodeId(ino),
        size: ino,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: 4096,
    };
    Entry { attr, generation: ino }
}
