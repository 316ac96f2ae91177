//! Reading the whole tree.

use super::Native;
use super::attrs::xattr_names;
use super::data::read_all;
use crate::outcome::{Bytes, Failed, Kind};
use crate::tree::{Content, Node, Tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl Native {
    pub(super) fn read_tree(&mut self) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            let node = self.read_node(&path)?;
            if node.stat.kind == Kind::Dir {
                pending.extend(self.children(&path)?);
            }
            tree.nodes.insert(path, node);
        }
        self.name_links(&mut tree)?;
        for slot in 0..crate::SLOTS {
            if let Some(node) = self.read_slot(slot)? {
                tree.open.insert(slot, node);
            }
        }
        Ok(tree)
    }

    fn place(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn children(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let mut children = Vec::new();
        let entries = match std::fs::read_dir(self.place(path)) {
            // The owner may have forbidden it, on both sides alike.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(children),
            entries => entries.map_err(errno)?,
        };
        for entry in entries {
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend(entry.map_err(errno)?.file_name().into_vec());
            children.push(child);
        }
        Ok(children)
    }

    fn read_node(&mut self, path: &[u8]) -> Result<Node, Errno> {
        let place = self.place(path);
        let raw = rustix::fs::statat(CWD, &place, AtFlags::SYMLINK_NOFOLLOW)?;
        let stat = self.normal(&raw);
        let content = match stat.kind {
            Kind::File => read_file(&place, stat.size),
            Kind::Symlink => {
                rustix::fs::readlinkat(CWD, &place, Vec::new()).map(|target| target.into_bytes())
            }
            _ => {
                return Ok(Node {
                    stat,
                    first: Vec::new(),
                    content: Content::None,
                    xattrs: self.xattrs(&place)?,
                });
            }
        };
        let content = match content {
            Ok(bytes) => Content::Bytes(Bytes(bytes)),
            Err(error) => Content::Failed(Failed(error)),
        };
        Ok(Node { stat, first: Vec::new(), content, xattrs: self.xattrs(&place)? })
    }

    fn xattrs(&self, place: &Path) -> Result<BTreeMap<String, Bytes>, Errno> {
        let mut xattrs = BTreeMap::new();
        if !self.common.xattrs {
            return Ok(xattrs);
        }
        let mut buf = vec![0; 65536];
        let count = match rustix::fs::llistxattr(place, &mut buf[..]) {
            Err(Errno::NOTSUP) => 0,
            count => count?,
        };
        for name in xattr_names(&buf[..count]) {
            let mut value = vec![0; 65536];
            match rustix::fs::lgetxattr(place, name.as_str(), &mut value[..]) {
                Ok(count) => value.truncate(count),
                Err(Errno::ACCESS) => value = b"not readable".to_vec(),
                Err(error) => return Err(error),
            }
            xattrs.insert(name, Bytes(value));
        }
        Ok(xattrs)
    }

    /// Says of each name which one is the first of the same inode.
    fn name_links(&self, tree: &mut Tree) -> Result<(), Errno> {
        let mut firsts = HashMap::new();
        for (path, node) in &mut tree.nodes {
            let stat = rustix::fs::statat(CWD, self.place(path), AtFlags::SYMLINK_NOFOLLOW)?;
            node.first.clone_from(firsts.entry(stat.st_ino).or_insert_with(|| path.clone()));
        }
        Ok(())
    }

    fn read_slot(&mut self, slot: u8) -> Result<Option<Node>, Errno> {
        let Ok(open) = self.slot(slot) else { return Ok(None) };
        let raw = rustix::fs::fstat(&open.fd)?;
        let content = match open.kind {
            Kind::File => match read_all(open.fd.as_fd(), u64::try_from(raw.st_size).unwrap_or(0)) {
                Ok(bytes) => Content::Bytes(Bytes(bytes)),
                Err(error) => Content::Failed(Failed(error)),
            },
            _ => Content::None,
        };
        let stat = self.normal(&raw);
        Ok(Some(Node { stat, first: Vec::new(), content, xattrs: BTreeMap::new() }))
    }
}

fn read_file(place: &Path, size: u64) -> Result<Vec<u8>, Errno> {
    let fd = rustix::fs::open(place, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    read_all(fd.as_fd(), size)
}
