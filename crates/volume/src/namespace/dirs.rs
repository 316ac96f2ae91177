//! Reading directories.

use super::{BRAID_DIR, Inode};
use crate::Volume;
use crate::sync::Mutex;
use braid_contract::{DirEntry, DirSink, Errno, FileKind, HandleId, InodeId, Result};
use rustix::fs::{FileType, OFlags, RawDir, SeekFrom};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Bytes of native entries fetched at a time.
const BATCH: usize = 32 << 10;

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    inode: Arc<Inode>,
    fd: Mutex<OwnedFd>,
}

impl DirHandle {
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::fsync(&*self.fd.lock())?)
    }
}

impl Volume {
    pub(crate) fn open_directory(&self, ino: InodeId) -> Result<HandleId> {
        let inode = self.inodes.get(ino)?;
        let fd =
            self.inodes.open(&self.home, &inode, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        Ok(self.handles.add_dir(DirHandle { inode, fd: Mutex::new(fd) }))
    }

    /// Hands entries after `offset` to the sink. Offsets are the home file
    /// system's own cookies, which it keeps stable.
    pub(crate) fn read_directory(
        &self,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let dir = self.handles.dir(handle)?;
        let fd = dir.fd.lock();
        rustix::fs::seek(&*fd, SeekFrom::Start(offset.cast_unsigned()))?;
        let mut buf = [const { MaybeUninit::uninit() }; BATCH];
        let mut entries = RawDir::new(&*fd, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if dir.inode.ino == InodeId::ROOT && name == BRAID_DIR {
                continue;
            }
            let dots = matches!(name.as_bytes(), b"." | b"..");
            let looked_up = if plus && !dots { self.entry_for_listing(&fd, name)? } else { None };
            let taken = sink.add(&DirEntry {
                ino: looked_up.map_or_else(|| self.home.public_ino(entry.ino()), |entry| entry.attr.ino),
                next_offset: entry.next_entry_cookie().cast_signed(),
                kind: kind_of(entry.file_type()),
                name,
                entry: looked_up,
            });
            if !taken {
                if let Some(entry) = looked_up {
                    self.inodes.forget(entry.attr.ino, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// The entry of a name for `readdirplus`. A name that went away meanwhile,
    /// or whose file is damaged, is listed without: looking it up tells why.
    fn entry_for_listing(&self, dir: &OwnedFd, name: &OsStr) -> Result<Option<braid_contract::Entry>> {
        match self.enter_name(dir, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if matches!(error.errno(), Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }
}

fn kind_of(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}
