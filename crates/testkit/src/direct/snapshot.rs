//! Reading the whole tree.

use super::{Direct, os};
use crate::native::xattr_names;
use crate::outcome::{Bytes, Failed, Kind};
use crate::tree::{Content, Node, Tree};
use braid_contract::{Attr, InodeId, OpenFlags, OpenRequest};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Direct {
    pub(super) fn read_tree(&mut self) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        let mut pending = vec![(Vec::new(), self.root)];
        let mut inos = HashMap::new();
        while let Some((path, ino)) = pending.pop() {
            let attr = os(self.fs.getattr(&self.caller, ino, None))?;
            let node = self.read_node(&attr)?;
            if node.stat.kind == Kind::Dir {
                for (name, _) in self.entries(ino)? {
                    if name == "." || name == ".." {
                        continue;
                    }
                    let child = self.child(ino, &name)?.ok_or(Errno::NOENT)?.attr.ino;
                    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    pending.push(([&path, slash, name.as_bytes()].concat(), child));
                }
            }
            inos.insert(path.clone(), ino);
            tree.nodes.insert(path, node);
        }
        let mut firsts = HashMap::new();
        for (path, node) in &mut tree.nodes {
            let first: &mut Vec<u8> = firsts.entry(inos.get(path)).or_insert_with(|| path.clone());
            node.first.clone_from(first);
        }
        for slot in 0..crate::SLOTS {
            if let Some(node) = self.read_slot(slot)? {
                tree.open.insert(slot, node);
            }
        }
        Ok(tree)
    }

    fn read_node(&mut self, attr: &Attr) -> Result<Node, Errno> {
        let stat = self.normal(attr);
        let content = match stat.kind {
            Kind::File => Content::Bytes(Bytes(self.read_file(attr.ino, stat.size)?)),
            Kind::Symlink => Content::Bytes(Bytes(os(self.fs.readlink(&self.caller, attr.ino))?)),
            _ => Content::None,
        };
        Ok(Node { stat, first: Vec::new(), content, xattrs: self.xattrs(attr.ino)? })
    }

    fn read_file(&self, ino: InodeId, size: u64) -> Result<Vec<u8>, Errno> {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let request = OpenRequest { flags, ..OpenRequest::default() };
        let handle = os(self.fs.open(&self.caller, ino, request))?.handle;
        // And any bytes behind the size.
        let bytes = self.read_at(handle, 0, size as usize + 4096, false);
        os(self.fs.release(handle))?;
        bytes
    }

    fn xattrs(&self, ino: InodeId) -> Result<BTreeMap<String, Bytes>, Errno> {
        let mut xattrs = BTreeMap::new();
        if !self.common.xattrs {
            return Ok(xattrs);
        }
        let names = match os(self.fs.listxattr(&self.caller, ino)) {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            names => names?,
        };
        for name in xattr_names(&names) {
            let value = os(self.fs.getxattr(&self.caller, ino, OsStr::new(&name)))?;
            xattrs.insert(name, Bytes(value));
        }
        Ok(xattrs)
    }

    fn read_slot(&mut self, slot: u8) -> Result<Option<Node>, Errno> {
        let Ok(open) = self.slot(slot).copied() else { return Ok(None) };
        let handle = (open.kind == Kind::File).then_some(open.handle);
        let attr = os(self.fs.getattr(&self.caller, open.ino, handle))?;
        let stat = self.normal(&attr);
        let content = match open.kind {
            Kind::File if !open.flags.access.reads() => Content::Failed(Failed(Errno::BADF)),
            Kind::File => {
                Content::Bytes(Bytes(self.read_at(open.handle, 0, stat.size as usize + 4096, false)?))
            }
            _ => Content::None,
        };
        Ok(Some(Node { stat, first: Vec::new(), content, xattrs: BTreeMap::new() }))
    }
}
