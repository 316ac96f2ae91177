//! Every call through the module reaches the child once, with the same
//! arguments, and its answer comes back.

use super::*;
use braid_contract::{DirEntry, Errno, FileKind, Hint, IoMode, Timestamp};
use std::sync::Mutex;
use std::time::Duration;

/// Writes down each call with its arguments and answers with something that
/// depends on how many there were.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<String>>,
}

impl Recorder {
    fn note(&self, call: String) -> u64 {
        let mut calls = self.calls.lock().unwrap();
        calls.push(call);
        calls.len() as u64
    }

    /// An error that tells the calls apart.
    fn fail<T>(&self, call: String) -> Result<T> {
        let number = self.note(call);
        Err(Errno(i32::try_from(number).unwrap()).into())
    }
}

fn attr(ino: u64) -> Attr {
    Attr {
        ino: InodeId(ino),
        size: ino,
        blocks: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: None,
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: 4096,
    }
}

fn entry(ino: u64) -> Entry {
    Entry { attr: attr(ino), generation: ino }
}

fn opened(handle: u64) -> Opened {
    Opened { handle: HandleId(handle), mode: IoMode::Direct, set_id: false }
}

impl FileSystem for Recorder {
    fn capabilities(&self) -> FileSystemCapabilities {
        let number = self.note("capabilities".into());
        FileSystemCapabilities {
            cache_ttl: Duration::from_secs(number),
            passthrough: true,
            rename_modes: false,
            posix_acl: true,
        }
    }
    fn lookup(&self, c: &Caller, p: InodeId, n: &OsStr) -> Result<Entry> {
        Ok(entry(self.note(format!("lookup {c:?} {p:?} {n:?}"))))
    }
    fn forget(&self, i: InodeId, n: u64) {
        self.note(format!("forget {i:?} {n}"));
    }
    fn getattr(&self, c: &Caller, i: InodeId, h: Option<HandleId>) -> Result<Attr> {
        Ok(attr(self.note(format!("getattr {c:?} {i:?} {h:?}"))))
    }
    fn setattr(&self, c: &Caller, i: InodeId, h: Option<HandleId>, s: &SetAttr) -> Result<Attr> {
        Ok(attr(self.note(format!("setattr {c:?} {i:?} {h:?} {s:?}"))))
    }
    fn readlink(&self, c: &Caller, i: InodeId) -> Result<Vec<u8>> {
        Ok(self.note(format!("readlink {c:?} {i:?}")).to_le_bytes().to_vec())
    }
    fn mknod(&self, c: &Caller, p: InodeId, n: &OsStr, m: u32, u: u32, r: u32) -> Result<Entry> {
        Ok(entry(self.note(format!("mknod {c:?} {p:?} {n:?} {m} {u} {r}"))))
    }
    fn mkdir(&self, c: &Caller, p: InodeId, n: &OsStr, m: u32, u: u32) -> Result<Entry> {
        Ok(entry(self.note(format!("mkdir {c:?} {p:?} {n:?} {m} {u}"))))
    }
    fn symlink(&self, c: &Caller, p: InodeId, n: &OsStr, t: &OsStr) -> Result<Entry> {
        Ok(entry(self.note(format!("symlink {c:?} {p:?} {n:?} {t:?}"))))
    }
    fn link(&self, c: &Caller, i: InodeId, p: InodeId, n: &OsStr) -> Result<Entry> {
        Ok(entry(self.note(format!("link {c:?} {i:?} {p:?} {n:?}"))))
    }
    fn unlink(&self, c: &Caller, p: InodeId, n: &OsStr) -> Result<()> {
        self.fail(format!("unlink {c:?} {p:?} {n:?}"))
    }
    fn rmdir(&self, c: &Caller, p: InodeId, n: &OsStr) -> Result<()> {
        self.fail(format!("rmdir {c:?} {p:?} {n:?}"))
    }
    fn rename(&self, c: &Caller, p: InodeId, n: &OsStr, q: InodeId, o: &OsStr, m: RenameMode) -> Result<()> {
        self.fail(format!("rename {c:?} {p:?} {n:?} {q:?} {o:?} {m:?}"))
    }
    fn open(&self, c: &Caller, i: InodeId, r: OpenRequest) -> Result<Opened> {
        Ok(opened(self.note(format!("open {c:?} {i:?} {r:?}"))))
    }
    fn create(
        &self,
        c: &Caller,
        p: InodeId,
        n: &OsStr,
        m: u32,
        u: u32,
        x: bool,
        f: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let number = self.note(format!("create {c:?} {p:?} {n:?} {m} {u} {x} {f:?}"));
        Ok((entry(number), opened(number)))
    }
    fn read(&self, c: &Caller, h: HandleId, o: u64, b: &mut [u8], d: bool) -> Result<usize> {
        b.fill(7);
        Ok(self.note(format!("read {c:?} {h:?} {o} {} {d}", b.len())) as usize)
    }
    fn write(&self, c: &Caller, h: HandleId, o: u64, b: &[u8], f: WriteFlags) -> Result<usize> {
        Ok(self.note(format!("write {c:?} {h:?} {o} {b:?} {f:?}")) as usize)
    }
    fn flush(&self, c: &Caller, h: HandleId) -> Result<()> {
        self.fail(format!("flush {c:?} {h:?}"))
    }
    fn release(&self, h: HandleId) -> Result<()> {
        self.fail(format!("release {h:?}"))
    }
    fn fsync(&self, c: &Caller, h: HandleId, d: bool) -> Result<()> {
        self.fail(format!("fsync {c:?} {h:?} {d}"))
    }
    fn fallocate(&self, c: &Caller, h: HandleId, o: u64, l: u64, m: FallocateMode) -> Result<()> {
        self.fail(format!("fallocate {c:?} {h:?} {o} {l} {m:?}"))
    }
    fn seek(&self, c: &Caller, h: HandleId, o: u64, t: SeekTarget) -> Result<u64> {
        Ok(self.note(format!("seek {c:?} {h:?} {o} {t:?}")))
    }
    fn copy_range(&self, c: &Caller, f: HandleId, fo: u64, t: HandleId, to: u64, l: u64) -> Result<u64> {
        Ok(self.note(format!("copy_range {c:?} {f:?} {fo} {t:?} {to} {l}")))
    }
    fn open_dir(&self, c: &Caller, i: InodeId) -> Result<HandleId> {
        Ok(HandleId(self.note(format!("open_dir {c:?} {i:?}"))))
    }
    fn read_dir(&self, c: &Caller, h: HandleId, o: i64, p: bool, s: &mut dyn DirSink) -> Result<()> {
        let ino = InodeId(self.note(format!("read_dir {c:?} {h:?} {o} {p}")));
        s.add(&DirEntry {
            ino,
            next_offset: 5,
            kind: None,
            name: OsStr::new("x"),
            entry: None,
            damaged: false,
        });
        Ok(())
    }
    fn release_dir(&self, h: HandleId) -> Result<()> {
        self.fail(format!("release_dir {h:?}"))
    }
    fn sync_dir(&self, c: &Caller, h: HandleId) -> Result<()> {
        self.fail(format!("sync_dir {c:?} {h:?}"))
    }
    fn statfs(&self, c: &Caller) -> Result<StatFs> {
        Ok(StatFs { total: self.note(format!("statfs {c:?}")), ..StatFs::default() })
    }
    fn getxattr(&self, c: &Caller, i: InodeId, n: &OsStr) -> Result<Vec<u8>> {
        Ok(self.note(format!("getxattr {c:?} {i:?} {n:?}")).to_le_bytes().to_vec())
    }
    fn listxattr(&self, c: &Caller, i: InodeId) -> Result<Vec<u8>> {
        Ok(self.note(format!("listxattr {c:?} {i:?}")).to_le_bytes().to_vec())
    }
    fn setxattr(&self, c: &Caller, i: InodeId, n: &OsStr, v: &[u8], m: XattrMode) -> Result<()> {
        self.fail(format!("setxattr {c:?} {i:?} {n:?} {v:?} {m:?}"))
    }
    fn removexattr(&self, c: &Caller, i: InodeId, n: &OsStr) -> Result<()> {
        self.fail(format!("removexattr {c:?} {i:?} {n:?}"))
    }
    fn sync(&self) -> Result<()> {
        self.fail("sync".into())
    }
}

/// Collects what `read_dir` hands out.
#[derive(Default)]
struct Names(Vec<String>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push(format!("{entry:?}"));
        true
    }
}

/// Calls every method once, each argument different from the others, and
/// answers what came back.
fn call_everything(fs: &dyn FileSystem) -> Vec<String> {
    let caller = &Caller { uid: 11, gid: 12, groups: None, pid: 13, tid: 14 };
    let (a, b) = (OsStr::new("a"), OsStr::new("b"));
    let (i, j, h, k) = (InodeId(21), InodeId(22), HandleId(31), HandleId(32));
    let flags = OpenFlags { read: true, write: false, direct: true, sync: false };
    let request = OpenRequest { flags, passthrough_allowed: true, passthrough_required: false };
    let write_flags = WriteFlags { direct: true, sync: false, kill_set_id: true, hint: Hint::default() };
    let changes = SetAttr { size: Some(41), ..SetAttr::default() };
    let (mut buf, mut names) = ([0; 3], Names::default());
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
        format!("{:?}", fs.create(caller, i, a, 56, 57, true, flags)),
        format!("{:?}", fs.read(caller, h, 61, &mut buf, true)),
        format!("{buf:?}"),
        format!("{:?}", fs.write(caller, h, 62, b"data", write_flags)),
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
    ]
}

#[test]
fn two_layers_change_nothing() {
    let bare = Arc::new(Recorder::default());
    let wrapped = Arc::new(Recorder::default());
    let wrapper = crate::wrapper(NAME).expect("the module is registered");
    let stack = (wrapper.wrap)((wrapper.wrap)(wrapped.clone()));

    assert_eq!(call_everything(&*stack), call_everything(&*bare));
    let calls = bare.calls.lock().unwrap();
    assert_eq!(*wrapped.calls.lock().unwrap(), *calls);
    assert_eq!(calls.len(), 33, "one call for each method of the trait");
}

#[test]
fn a_name_that_no_module_has_finds_none() {
    assert!(crate::wrapper("volume").is_none());
}
