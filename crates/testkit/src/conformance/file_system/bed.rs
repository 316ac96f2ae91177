//! The calls that cases need most, as a front end makes them.

use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Entry, Errno, FileKind, FileSystem, HandleId, InodeId, OpenFlags,
    OpenRequest, Opened, RenameMode, Result, SetAttr, SetTime, Timestamp, WriteFlags,
};
use std::ffi::{OsStr, OsString};

pub(super) const ROOT: InodeId = InodeId::ROOT;

/// A moment long before the test, which no clock shows.
pub(super) const LONG_AGO: Timestamp = Timestamp { secs: 1_000_000, nanos: 5 };

pub(super) const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

/// A file system, and its caller.
pub(super) struct Bed<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) caller: Caller,
}

/// An entry in a directory's listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) name: OsString,
    pub(super) ino: InodeId,
    pub(super) kind: Option<FileKind>,
    pub(super) next_offset: i64,
    pub(super) entry: Option<Entry>,
}

/// Takes so many entries and no more.
struct Sink {
    room: usize,
    listed: Vec<Listed>,
}

impl DirSink for Sink {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        assert!(!entry.damaged, "{:?} is damaged", entry.name);
        if self.listed.len() == self.room {
            return false;
        }
        let DirEntry { ino, kind, next_offset, name, entry, .. } = *entry;
        self.listed.push(Listed { name: name.to_owned(), ino, kind, next_offset, entry });
        true
    }
}

impl<'a> Bed<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let pid = std::process::id();
        Self { fs, caller: Caller { uid, gid, groups: None, pid, tid: pid, of_stack: false } }
    }

    pub(super) fn is_superuser(&self) -> bool {
        self.caller.uid == 0
    }

    pub(super) fn find(&self, parent: InodeId, name: &str) -> Result<Entry> {
        self.fs.lookup(&self.caller, parent, OsStr::new(name))
    }

    /// The inode behind a name.
    #[track_caller]
    pub(super) fn lookup(&self, parent: InodeId, name: &str) -> InodeId {
        self.find(parent, name).unwrap().attr.ino
    }

    #[track_caller]
    pub(super) fn is_absent(&self, parent: InodeId, name: &str) {
        assert_eq!(errno(self.find(parent, name)), Some(Errno::ENOENT), "{name}");
    }

    #[track_caller]
    pub(super) fn attr(&self, ino: InodeId) -> Attr {
        self.fs.getattr(&self.caller, ino, None).unwrap()
    }

    #[track_caller]
    pub(super) fn attr_of(&self, handle: HandleId, ino: InodeId) -> Attr {
        self.fs.getattr(&self.caller, ino, Some(handle)).unwrap()
    }

    pub(super) fn try_set(&self, ino: InodeId, changes: SetAttr) -> Result<Attr> {
        self.fs.setattr(&self.caller, ino, None, &changes)
    }

    #[track_caller]
    pub(super) fn set(&self, ino: InodeId, changes: SetAttr) -> Attr {
        self.try_set(ino, changes).unwrap()
    }

    /// Sets the times to [`LONG_AGO`], so that any later change is seen.
    #[track_caller]
    pub(super) fn age(&self, ino: InodeId) {
        let at = Some(SetTime::At(LONG_AGO));
        self.set(ino, SetAttr { atime: at, mtime: at, ..SetAttr::default() });
        assert_eq!(self.attr(ino).mtime, LONG_AGO);
    }

    #[track_caller]
    pub(super) fn truncate(&self, ino: InodeId, size: u64) {
        let attr = self.set(ino, SetAttr { size: Some(size), ..SetAttr::default() });
        assert_eq!(attr.size, size);
    }

    pub(super) fn try_mkdir(&self, parent: InodeId, name: &str) -> Result<Entry> {
        self.fs.mkdir(&self.caller, parent, OsStr::new(name), 0o755, 0o022)
    }

    #[track_caller]
    pub(super) fn mkdir(&self, parent: InodeId, name: &str) -> InodeId {
        self.try_mkdir(parent, name).unwrap().attr.ino
    }

    pub(super) fn try_create(&self, parent: InodeId, name: &str, exclusive: bool) -> Result<(Entry, Opened)> {
        self.fs.create(&self.caller, parent, OsStr::new(name), 0o644, 0o022, exclusive, READ_WRITE.into())
    }

    /// A new file without a name, open for reading and writing.
    pub(super) fn try_unnamed(&self, parent: InodeId, mode: u32) -> Result<(Entry, Opened)> {
        self.fs.tmpfile(&self.caller, parent, mode, 0o022, READ_WRITE.into())
    }

    /// A new file, open for reading and writing.
    #[track_caller]
    pub(super) fn create(&self, parent: InodeId, name: &str) -> (InodeId, HandleId) {
        let (entry, opened) = self.try_create(parent, name, true).unwrap();
        (entry.attr.ino, opened.handle)
    }

    /// A new file with this content, and closed.
    #[track_caller]
    pub(super) fn file(&self, parent: InodeId, name: &str, data: &[u8]) -> InodeId {
        let (ino, handle) = self.create(parent, name);
        self.write(handle, 0, data);
        self.close(handle);
        ino
    }

    pub(super) fn try_open(&self, ino: InodeId) -> Result<HandleId> {
        let request = OpenRequest { flags: READ_WRITE, ..OpenRequest::default() };
        Ok(self.fs.open(&self.caller, ino, request)?.handle)
    }

    #[track_caller]
    pub(super) fn open(&self, ino: InodeId) -> HandleId {
        self.try_open(ino).unwrap()
    }

    /// As the last descriptor is closed.
    #[track_caller]
    pub(super) fn close(&self, handle: HandleId) {
        self.fs.flush(&self.caller, handle).unwrap();
        self.fs.release(handle).unwrap();
    }

    /// Writes all of the data, which may take more than one call.
    #[track_caller]
    pub(super) fn write(&self, handle: HandleId, offset: u64, data: &[u8]) {
        self.write_with(handle, offset, data, WriteFlags::default());
    }

    #[track_caller]
    pub(super) fn write_with(&self, handle: HandleId, offset: u64, data: &[u8], flags: WriteFlags) {
        let mut done = 0;
        while done < data.len() {
            let some = self.fs.write(&self.caller, handle, offset + done as u64, &data[done..], flags);
            done += some.unwrap();
        }
    }

    /// Reads up to `len` bytes.
    #[track_caller]
    pub(super) fn read(&self, handle: HandleId, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        let done = self.fs.read(&self.caller, handle, offset, &mut buf, false).unwrap();
        buf.truncate(done);
        buf
    }

    /// Fails with the first place where the open file is not these bytes, and no
    /// more.
    #[track_caller]
    pub(super) fn expect(&self, handle: HandleId, data: &[u8]) {
        let found = self.read(handle, 0, data.len() + 1);
        assert_eq!(found.len(), data.len(), "bytes");
        let wrong = found.iter().zip(data).position(|(found, data)| found != data);
        assert_eq!(wrong, None, "the first byte that is wrong");
    }

    /// The content of a file of this name. Another file may get the name while
    /// it is opened: then the name is looked up again, as by a kernel.
    #[track_caller]
    pub(super) fn content(&self, parent: InodeId, name: &str) -> Vec<u8> {
        let (ino, handle) = loop {
            let ino = self.lookup(parent, name);
            match self.try_open(ino) {
                Ok(handle) => break (ino, handle),
                Err(error) => assert_eq!(error.errno(), Errno::ESTALE, "{name}"),
            }
            self.fs.forget(ino, 1);
        };
        let size = self.attr_of(handle, ino).size;
        let content = self.read(handle, 0, size as usize + 1);
        self.close(handle);
        self.fs.forget(ino, 1);
        content
    }

    pub(super) fn unlink(&self, parent: InodeId, name: &str) -> Result<()> {
        self.fs.unlink(&self.caller, parent, OsStr::new(name))
    }

    pub(super) fn rmdir(&self, parent: InodeId, name: &str) -> Result<()> {
        self.fs.rmdir(&self.caller, parent, OsStr::new(name))
    }

    pub(super) fn link(&self, ino: InodeId, parent: InodeId, name: &str) -> Result<Entry> {
        self.fs.link(&self.caller, ino, parent, OsStr::new(name))
    }

    pub(super) fn rename(&self, from: (InodeId, &str), to: (InodeId, &str), mode: RenameMode) -> Result<()> {
        self.fs.rename(&self.caller, from.0, OsStr::new(from.1), to.0, OsStr::new(to.1), mode)
    }

    pub(super) fn try_list(
        &self,
        dir: HandleId,
        offset: i64,
        plus: bool,
        room: usize,
    ) -> Result<Vec<Listed>> {
        let mut sink = Sink { room, listed: Vec::new() };
        self.fs.read_dir(&self.caller, dir, offset, plus, &mut sink)?;
        Ok(sink.listed)
    }

    /// One call for entries after `offset`, of which `room` are taken.
    #[track_caller]
    pub(super) fn list_some(&self, dir: HandleId, offset: i64, plus: bool, room: usize) -> Vec<Listed> {
        self.try_list(dir, offset, plus, room).unwrap()
    }

    /// All entries of a directory but `.` and `..`, taken `room` at a time.
    #[track_caller]
    pub(super) fn list(&self, dir: InodeId, plus: bool, room: usize) -> Vec<Listed> {
        let handle = self.fs.open_dir(&self.caller, dir).unwrap();
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let some = self.list_some(handle, offset, plus, room);
            let Some(last) = some.last() else { break };
            offset = last.next_offset;
            all.extend(some);
            assert!(all.len() < 100_000, "the directory does not end");
        }
        self.fs.release_dir(handle).unwrap();
        all.retain(|listed| listed.name != "." && listed.name != "..");
        all
    }

    /// The names in a directory, in order.
    #[track_caller]
    pub(super) fn names(&self, dir: InodeId) -> Vec<String> {
        let name = |listed: Listed| listed.name.into_string().unwrap();
        let mut names: Vec<String> = self.list(dir, false, usize::MAX).into_iter().map(name).collect();
        names.sort();
        names
    }
}

pub(super) fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}
