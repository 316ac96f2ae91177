//! Operations on names.

use super::Native;
use crate::op::{Op, Path, RenameMode};
use crate::outcome::{Answer, Bytes, Kind};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;

impl Native {
    pub(super) fn names(&self, op: &Op) -> Result<Answer, Errno> {
        let dir = &self.dir;
        match op {
            Op::Rename { from, to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                let renamed = rustix::fs::renameat_with(dir, from.bytes(), dir, to.bytes(), flags);
                match (renamed, mode) {
                    // POSIX allows both for a directory with names, and XFS differs from others.
                    (Err(Errno::EXIST), RenameMode::Replace) => return Err(Errno::NOTEMPTY),
                    (renamed, _) => renamed?,
                }
            }
            Op::Link { from, to } => {
                rustix::fs::linkat(dir, from.bytes(), dir, to.bytes(), AtFlags::empty())?
            }
            Op::Symlink { path, target } => rustix::fs::symlinkat(target.bytes(), dir, path.bytes())?,
            Op::ReadLink { path } => {
                let target = rustix::fs::readlinkat(dir, path.bytes(), Vec::new())?;
                return Ok(Answer::Bytes(Bytes(target.into_bytes())));
            }
            Op::Unlink { path } => rustix::fs::unlinkat(dir, path.bytes(), AtFlags::empty())?,
            Op::RemoveDir { path } => rustix::fs::unlinkat(dir, path.bytes(), AtFlags::REMOVEDIR)?,
            Op::MakeDir { path, mode } => {
                rustix::fs::mkdirat(dir, path.bytes(), Mode::from(u32::from(*mode)))?;
            }
            Op::MakeDirChain { depth } => return self.make_chain(*depth),
            Op::MakeFifo { path, mode } => {
                let mode = Mode::from(u32::from(*mode));
                rustix::fs::mknodat(dir, path.bytes(), FileType::Fifo, mode, 0)?;
            }
            Op::ReadDir { path } => return self.read_dir(path),
            _ => return Ok(Answer::Skipped),
        }
        Ok(Answer::Unit)
    }

    /// Makes the directories of a chain that do not exist; answers how many.
    fn make_chain(&self, depth: u8) -> Result<Answer, Errno> {
        let mut path = Path(Vec::new());
        let mut made = 0;
        for _ in 0..depth {
            path.0.push(crate::Name::D(9));
            match rustix::fs::mkdirat(&self.dir, path.bytes(), Mode::from(0o755)) {
                Ok(()) => made += 1,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Answer::Count(made))
    }

    fn read_dir(&self, path: &Path) -> Result<Answer, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, path.bytes(), flags, Mode::empty())?;
        let mut names = BTreeMap::new();
        let mut special = 0;
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                special += 1;
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let stat = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            let text = name.to_bytes().escape_ascii().to_string();
            if names.insert(text.clone(), Kind::from(kind)).is_some() {
                return Ok(Answer::Inconsistent(format!("\"{text}\" is listed twice")));
            }
        }
        if special != 2 {
            return Ok(Answer::Inconsistent(format!("\".\" and \"..\" are listed {special} times together")));
        }
        Ok(Answer::Names(names))
    }
}
