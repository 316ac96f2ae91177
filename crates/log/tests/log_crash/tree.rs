//! The visible state of a file system, as lines that can be compared.

use braid_contract::{
    Attr, Caller, DirEntry, DirSink, FileKind, FileSystem, InodeId, OpenFlags, Result, SplitMix,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A line for each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) lines: BTreeMap<String, (u64, String)>,
}

#[derive(Default)]
struct Names(Vec<(OsString, InodeId, i64)>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if entry.name != "." && entry.name != ".." {
            self.0.push((entry.name.to_owned(), entry.ino, entry.next_offset));
        }
        true
    }
}

impl Tree {
    /// Reads everything but the offsets of names in listings.
    pub(crate) fn read(fs: &dyn FileSystem) -> Result<Self> {
        Self::read_by(fs, |line, _| line)
    }

    /// Reads everything.
    pub(crate) fn read_with_offsets(fs: &dyn FileSystem) -> Result<Self> {
        Self::read_by(fs, |line, offset| format!("{line} at {offset}"))
    }

    fn read_by(fs: &dyn FileSystem, show: impl Fn(String, i64) -> String) -> Result<Self> {
        let (caller, mut tree) = (Caller::root(), Self::default());
        let mut left = vec![(String::new(), InodeId::ROOT, 0)];
        while let Some((path, ino, offset)) = left.pop() {
            let attr = fs.getattr(&caller, ino, None)?;
            let line = show(line(fs, &caller, &attr)?, offset);
            if attr.kind == FileKind::Directory {
                let handle = fs.open_dir(&caller, ino)?;
                let mut names = Names::default();
                let read = fs.read_dir(&caller, handle, 0, false, &mut names);
                fs.release_dir(handle)?;
                read?;
                let shown = |name: &OsStr| String::from_utf8_lossy(name.as_bytes()).into_owned();
                let names = names.0.iter();
                left.extend(
                    names.map(|(name, ino, offset)| (format!("{path}/{}", shown(name)), *ino, *offset)),
                );
            }
            tree.lines.insert(path, (ino.0, line));
        }
        Ok(tree)
    }

    /// A number that differs between trees that differ.
    pub(crate) fn hash(&self) -> u64 {
        let mut hash = 0;
        for (path, (_, line)) in &self.lines {
            hash = digest(hash, path.as_bytes());
            hash = digest(hash, line.as_bytes());
        }
        hash
    }

    /// The lines that only `other` has, and those that only this one has.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut told = String::new();
        let paths: std::collections::BTreeSet<&String> =
            self.lines.keys().chain(other.lines.keys()).collect();
        for path in paths {
            let (one, two) = (self.lines.get(path), other.lines.get(path));
            if one != two {
                let shown =
                    |line: Option<&(u64, String)>| line.map_or("-".to_owned(), |(_, line)| line.clone());
                told += &format!(
                    "    {path:?}: {}\n    {:>width$}: {}\n",
                    shown(one),
                    "",
                    shown(two),
                    width = path.len() + 2
                );
            }
        }
        told
    }
}

fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut random = SplitMix::new(seed ^ bytes.len() as u64);
    bytes.chunks(8).fold(random.next_u64(), |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        SplitMix::new(hash ^ u64::from_le_bytes(word)).next_u64()
    })
}

fn line(fs: &dyn FileSystem, caller: &Caller, attr: &Attr) -> Result<String> {
    let content = match attr.kind {
        FileKind::Regular => {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let handle = fs.open(caller, attr.ino, flags.into())?.handle;
            let mut bytes = vec![0; attr.size.min(64 << 20) as usize + 1];
            let read = fs.read(caller, handle, 0, &mut bytes, false);
            fs.release(handle)?;
            let len = read?;
            format!("{len} bytes {:016x}", digest(1, &bytes[..len]))
        }
        FileKind::Symlink => String::from_utf8_lossy(&fs.readlink(caller, attr.ino)?).into_owned(),
        _ => String::new(),
    };
    let names = fs.listxattr(caller, attr.ino)?;
    let mut xattrs = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = fs.getxattr(caller, attr.ino, OsStr::from_bytes(name))?;
        xattrs.push(format!("{}={:016x}", String::from_utf8_lossy(name), digest(2, &value)));
    }
    let Attr { ino, size, mtime, ctime, kind, mode, nlink, uid, gid, rdev, .. } = *attr;
    let from = fs.getxattr(caller, ino, OsStr::new("braid.provenance"))?;
    let from = digest(3, &from);
    Ok(format!(
        "#{} {kind:?} {mode:o} x{nlink} {uid}:{gid} {rdev} {size} m{}.{} c{}.{} {content} {xattrs:?} {from:x}",
        ino.0, mtime.secs, mtime.nanos, ctime.secs, ctime.nanos
    ))
}
