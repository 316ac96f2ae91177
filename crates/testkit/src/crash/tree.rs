//! The visible state of a mounted tree.

use super::history::Attributes;
use super::op::Name;
use braid_contract::{
    Caller, DirEntry, DirSink, Errno, FileSystem, InodeId, OpenFlags, OpenRequest, Timestamp,
};
use std::ffi::{OsStr, OsString};

/// No workload makes a file larger.
const SIZE_MAX: u64 = 64 << 20;

/// The extended attribute that workloads set, to eight bytes.
pub(crate) const XATTR: &str = "user.of";

/// A file as it is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenFile {
    pub(crate) ino: InodeId,
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) links: u32,
    pub(crate) attributes: Attributes,
    pub(crate) bytes: Vec<u8>,
}

/// All files of a tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    files: [Option<SeenFile>; Name::ALL.len()],
}

impl Seen {
    pub(crate) fn file(&self, name: Name) -> Option<&SeenFile> {
        self.files[name.at()].as_ref()
    }

    /// A tree of one file.
    #[cfg(test)]
    pub(crate) fn of(name: Name, file: SeenFile) -> Self {
        let mut seen = Self::default();
        seen.files[name.at()] = Some(file);
        seen
    }

    #[cfg(test)]
    pub(crate) fn file_mut(&mut self, name: Name) -> Option<&mut SeenFile> {
        self.files[name.at()].as_mut()
    }

    pub(crate) fn describe(&self) -> String {
        let parts = Name::ALL
            .into_iter()
            .filter_map(|name| self.file(name).map(|file| format!("{name} (inode {})", file.ino.0)));
        format!("[{}]", parts.collect::<Vec<_>>().join(", "))
    }

    /// How another look at the same tree differs.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        Name::ALL.into_iter().find_map(|name| {
            let (a, b) = match (self.file(name), other.file(name)) {
                (Some(a), Some(b)) => (a, b),
                (None, None) => return None,
                _ => return Some(format!("{name} is there once and not the other time")),
            };
            if (a.ino, a.size) != (b.ino, b.size) {
                return Some(format!(
                    "{name}: inode {}, {} bytes; then inode {}, {} bytes",
                    a.ino.0, a.size, b.ino.0, b.size
                ));
            }
            if (a.links, a.attributes) != (b.links, b.attributes) {
                let (before, now) = ((a.links, a.attributes), (b.links, b.attributes));
                return Some(format!("{name}: links and attributes {before:?}, then {now:?}"));
            }
            if a.mtime != b.mtime {
                return Some(format!("{name}: modification time {:?}, then {:?}", a.mtime, b.mtime));
            }
            let at = a.bytes.iter().zip(&b.bytes).position(|(a, b)| a != b)?;
            Some(format!("{name}: its contents differ at {at}"))
        })
    }
}

/// Reads a tree: every listed name must be a workload's, and every file fully
/// readable. Answers the error, if any.
pub(crate) fn look(fs: &dyn FileSystem) -> Result<Seen, String> {
    let caller = Caller::root();
    let mut seen = Seen::default();
    let root = list(fs, InodeId::ROOT).map_err(|error| format!("the root can't be listed: {error}"))?;
    let mut sub = None;
    for name in &root {
        match name.to_str() {
            Some("d") => {
                let entry = fs.lookup(&caller, InodeId::ROOT, name);
                sub = Some(entry.map_err(|error| format!("d can't be looked up: {error}"))?.attr.ino);
            }
            Some("a" | "b") => {}
            _ => return Err(format!("there is {name:?} in the root")),
        }
    }
    let below = match sub {
        Some(ino) => list(fs, ino).map_err(|error| format!("d can't be listed: {error}"))?,
        None => Vec::new(),
    };
    for name in Name::ALL {
        let (parent, listed) = match (name.dir(), sub) {
            (super::op::Dir::Root, _) => (InodeId::ROOT, &root),
            (super::op::Dir::Sub, Some(ino)) => (ino, &below),
            (super::op::Dir::Sub, None) => continue,
        };
        let leaf = OsStr::new(name.leaf());
        if listed.iter().any(|listed| listed == leaf) {
            let file = look_at(fs, parent, leaf).map_err(|error| format!("{name} {error}"))?;
            seen.files[name.at()] = Some(file);
        }
    }
    if let Some(ino) = sub {
        fs.forget(ino, 1);
    }
    Ok(seen)
}

fn look_at(fs: &dyn FileSystem, parent: InodeId, leaf: &OsStr) -> Result<SeenFile, String> {
    let caller = Caller::root();
    let entry = fs.lookup(&caller, parent, leaf).map_err(|error| format!("can't be looked up: {error}"))?;
    let ino = entry.attr.ino;
    let attr = fs.getattr(&caller, ino, None).map_err(|error| format!("has no attributes: {error}"))?;
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    let opened = fs.open(&caller, ino, request).map_err(|error| format!("can't be opened: {error}"))?;
    if attr.size > SIZE_MAX {
        return Err(format!("has a size of {}", attr.size));
    }
    let mut bytes = vec![0; attr.size as usize + 1];
    let mut done = 0;
    loop {
        let read = fs.read(&caller, opened.handle, done as u64, &mut bytes[done..], false);
        match read.map_err(|error| format!("can't be read at {done}: {error}"))? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    fs.release(opened.handle).map_err(|error| format!("can't be closed: {error}"))?;
    let xattr = xattr_of(fs, ino)?;
    fs.forget(ino, 1);
    if done as u64 != attr.size {
        return Err(format!("has a size of {} and {done} bytes", attr.size));
    }
    let attributes = Attributes { mode: attr.mode.into(), owner: (attr.uid, attr.gid), xattr };
    Ok(SeenFile { ino, size: attr.size, mtime: attr.mtime, links: attr.nlink, attributes, bytes })
}

fn xattr_of(fs: &dyn FileSystem, ino: InodeId) -> Result<Option<u64>, String> {
    match fs.getxattr(&Caller::root(), ino, OsStr::new(XATTR)) {
        Err(error) if error.errno() == Errno::ENODATA => Ok(None),
        Err(error) => Err(format!("has no attribute to be read: {error}")),
        Ok(value) => match <[u8; 8]>::try_from(&value[..]) {
            Ok(value) => Ok(Some(u64::from_le_bytes(value))),
            Err(_) => Err(format!("has an attribute of {} bytes", value.len())),
        },
    }
}

fn list(fs: &dyn FileSystem, ino: InodeId) -> braid_contract::Result<Vec<OsString>> {
    #[derive(Default)]
    struct Sink {
        names: Vec<OsString>,
        last: i64,
    }
    impl DirSink for Sink {
        fn add(&mut self, entry: &DirEntry<'_>) -> bool {
            if entry.name != "." && entry.name != ".." {
                self.names.push(entry.name.to_owned());
            }
            self.last = entry.next_offset;
            true
        }
    }
    let caller = Caller::root();
    let handle = fs.open_dir(&caller, ino)?;
    let mut sink = Sink::default();
    loop {
        let before = sink.last;
        fs.read_dir(&caller, handle, before, false, &mut sink)?;
        if sink.last == before {
            break;
        }
    }
    fs.release_dir(handle)?;
    if sink.names.len() > 16 {
        return Err(Errno::EUCLEAN.into());
    }
    Ok(sink.names)
}
