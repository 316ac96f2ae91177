//! A client that does one thing after another that would show if it were done twice or not at
//! all, and looks whether it was: for measurements of crashes and upgrades.

use super::client::{Client, Task, io_error};
use braid_contract::{Caller, FileSystem, HandleId, InodeId, OpenFlags, RenameMode, Result, WriteFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };
/// Bytes of a line of the log.
const LINE: u64 = 9;

/// The operations that a client needs, in a directory of its own.
trait Place: Send {
    type File;

    fn create(&self, name: &str) -> io::Result<Self::File>;
    fn close(&self, file: Self::File) -> io::Result<()>;
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> io::Result<()>;
    fn read(&self, file: &Self::File, offset: u64, len: usize) -> io::Result<Vec<u8>>;
    fn size(&self, file: &Self::File) -> io::Result<u64>;
    /// Exchanges two names, or gives the first one the second name, which is not there.
    fn rename(&self, name: &str, new_name: &str, exchange: bool) -> io::Result<()>;
    fn link(&self, name: &str, new_name: &str) -> io::Result<()>;
    fn symlink(&self, target: &str, name: &str) -> io::Result<()>;
    fn mkdir(&self, name: &str) -> io::Result<()>;
    fn unlink(&self, name: &str) -> io::Result<()>;
    fn rmdir(&self, name: &str) -> io::Result<()>;
    /// The inode and the links of a name.
    fn look(&self, name: &str) -> io::Result<(u64, u64)>;
    /// Removes the directory, which is empty.
    fn leave(&self) -> io::Result<()>;
}

/// A client that does deeds in a place.
struct Doer<P: Place> {
    place: P,
    log: Option<P::File>,
    data: Option<P::File>,
    /// The inodes of the two names that are exchanged.
    pair: [u64; 2],
    task: Task,
    /// Of each block of the data, the round in which it was written last.
    blocks: Vec<Option<u64>>,
    done: u64,
}

impl<P: Place> Doer<P> {
    fn new(place: P, task: Task) -> io::Result<Self> {
        let (log, data) = (place.create("log")?, place.create("data")?);
        for name in ["one", "other"] {
            place.close(place.create(name)?)?;
        }
        let pair = [place.look("one")?.0, place.look("other")?.0];
        let blocks = vec![None; (task.file / task.size).max(1) as usize];
        Ok(Self { place, log: Some(log), data: Some(data), pair, task, blocks, done: 0 })
    }

    fn block(&self, round: u64) -> Vec<u8> {
        (0..self.task.size).map(|at| (round.wrapping_mul(31) + at % 251) as u8).collect()
    }

    fn names(&self, round: u64) -> io::Result<()> {
        let place = &self.place;
        place.rename("one", "other", true)?;
        let is = place.look("one")?.0 == self.pair[(round + 1) as usize % 2];
        expect(is, "two names were exchanged twice, or not at all")?;
        place.link("one", "link")?;
        expect(place.look("one")?.1 == 2, "a link was not made")?;
        place.rename("link", "renamed", false)?;
        place.unlink("renamed")?;
        place.symlink("one", "symlink")?;
        place.unlink("symlink")?;
        place.mkdir("sub")?;
        place.rmdir("sub")
    }

    fn removed(&self, round: u64) -> io::Result<()> {
        let (place, data) = (&self.place, round.to_ne_bytes());
        let file = place.create("removed")?;
        place.unlink("removed")?;
        place.write(&file, 0, &data)?;
        expect(place.read(&file, 0, 9)? == data, "a removed file has other data")?;
        place.close(file)
    }

    fn add_line(&self, log: &P::File, round: u64) -> io::Result<()> {
        let place = &self.place;
        let at = place.size(log)?;
        expect(at == round * LINE, "a line was added twice, or not at all")?;
        place.write(log, at, &line(round))
    }

    fn check(&self, log: &P::File, data: &P::File) -> io::Result<()> {
        for round in 0..self.done {
            let found = self.place.read(log, round * LINE, LINE as usize)?;
            expect(found == line(round), "the log has another line")?;
        }
        for (at, written) in self.blocks.iter().enumerate() {
            let Some(round) = written else { continue };
            let found = self.place.read(data, at as u64 * self.task.size, self.task.size as usize)?;
            expect(found == self.block(*round), "a block has other data")?;
        }
        Ok(())
    }
}

fn line(round: u64) -> Vec<u8> {
    format!("{:08}\n", round % 100_000_000).into_bytes()
}

fn expect(is: bool, otherwise: &str) -> io::Result<()> {
    if is { Ok(()) } else { Err(io::Error::other(otherwise.to_owned())) }
}

impl<P: Place> Client for Doer<P>
where
    P::File: Send,
{
    fn operate(&mut self, number: u64, offset: u64) -> io::Result<()> {
        let (Some(log), Some(data)) = (&self.log, &self.data) else { return Ok(()) };
        self.add_line(log, number)?;
        self.place.write(data, offset, &self.block(number))?;
        self.names(number)?;
        self.removed(number)?;
        self.blocks[(offset / self.task.size) as usize] = Some(number);
        self.done = number + 1;
        Ok(())
    }

    fn end(&mut self, _: u64) -> io::Result<()> {
        let (Some(log), Some(data)) = (self.log.take(), self.data.take()) else { return Ok(()) };
        self.check(&log, &data)?;
        for file in [log, data] {
            self.place.close(file)?;
        }
        ["log", "data", "one", "other"].iter().try_for_each(|name| self.place.unlink(name))?;
        self.place.leave()
    }
}

/// A client that calls the file system itself, below `dir`.
pub(super) fn by_calls(
    fs: Arc<dyn FileSystem>,
    (caller, dir): (Caller, InodeId),
    task: Task,
) -> io::Result<Box<dyn Client>> {
    let name = OsString::from(task.own_file());
    let own = fs.mkdir(&caller, dir, &name, 0o700, 0).map_err(io_error)?.attr.ino;
    Ok(Box::new(Doer::new(InCalls { fs, caller, above: dir, name, dir: own }, task)?))
}

/// A client by system calls, below `dir`.
pub(super) fn by_mount(dir: &Path, task: Task) -> io::Result<Box<dyn Client>> {
    let own = dir.join(task.own_file());
    fs::create_dir(&own)?;
    Ok(Box::new(Doer::new(InMount(own), task)?))
}

struct InCalls {
    fs: Arc<dyn FileSystem>,
    caller: Caller,
    above: InodeId,
    name: OsString,
    dir: InodeId,
}

impl InCalls {
    fn forget(&self, entry: Result<braid_contract::Entry>) -> io::Result<()> {
        let ino = entry.map_err(io_error)?.attr.ino;
        self.fs.forget(ino, 1);
        Ok(())
    }
}

impl Place for InCalls {
    type File = (InodeId, HandleId);

    fn create(&self, name: &str) -> io::Result<Self::File> {
        let name = OsStr::new(name);
        let created = self.fs.create(&self.caller, self.dir, name, 0o600, 0, true, BOTH.into());
        created.map(|(entry, opened)| (entry.attr.ino, opened.handle)).map_err(io_error)
    }

    fn close(&self, (ino, handle): Self::File) -> io::Result<()> {
        self.fs.forget(ino, 1);
        self.fs.release(handle).map_err(io_error)
    }

    fn write(&self, (_, handle): &Self::File, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = self.fs.write(&self.caller, *handle, offset, data, WriteFlags::default());
        expect(written.map_err(io_error)? == data.len(), "less was written")
    }

    fn read(&self, (_, handle): &Self::File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; len];
        let read = self.fs.read(&self.caller, *handle, offset, &mut data, false).map_err(io_error)?;
        data.truncate(read);
        Ok(data)
    }

    fn size(&self, (ino, handle): &Self::File) -> io::Result<u64> {
        let attr = self.fs.getattr(&self.caller, *ino, Some(*handle));
        attr.map(|attr| attr.size).map_err(io_error)
    }

    fn rename(&self, name: &str, new_name: &str, exchange: bool) -> io::Result<()> {
        let mode = if exchange { RenameMode::Exchange } else { RenameMode::NoReplace };
        let (name, new_name) = (OsStr::new(name), OsStr::new(new_name));
        self.fs.rename(&self.caller, self.dir, name, self.dir, new_name, mode).map_err(io_error)
    }

    fn link(&self, name: &str, new_name: &str) -> io::Result<()> {
        let ino = self.fs.lookup(&self.caller, self.dir, OsStr::new(name)).map_err(io_error)?.attr.ino;
        let linked = self.forget(self.fs.link(&self.caller, ino, self.dir, OsStr::new(new_name)));
        self.fs.forget(ino, 1);
        linked
    }

    fn symlink(&self, target: &str, name: &str) -> io::Result<()> {
        self.forget(self.fs.symlink(&self.caller, self.dir, OsStr::new(name), OsStr::new(target)))
    }

    fn mkdir(&self, name: &str) -> io::Result<()> {
        self.forget(self.fs.mkdir(&self.caller, self.dir, OsStr::new(name), 0o700, 0))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.fs.unlink(&self.caller, self.dir, OsStr::new(name)).map_err(io_error)
    }

    fn rmdir(&self, name: &str) -> io::Result<()> {
        self.fs.rmdir(&self.caller, self.dir, OsStr::new(name)).map_err(io_error)
    }

    fn look(&self, name: &str) -> io::Result<(u64, u64)> {
        let attr = self.fs.lookup(&self.caller, self.dir, OsStr::new(name)).map_err(io_error)?.attr;
        self.fs.forget(attr.ino, 1);
        Ok((attr.ino.0, u64::from(attr.nlink)))
    }

    fn leave(&self) -> io::Result<()> {
        self.fs.forget(self.dir, 1);
        self.fs.rmdir(&self.caller, self.above, &self.name).map_err(io_error)
    }
}

struct InMount(PathBuf);

impl Place for InMount {
    type File = File;

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.0.join(name))
    }

    fn close(&self, _: File) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    fn read(&self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; len];
        let read = file.read_at(&mut data, offset)?;
        data.truncate(read);
        Ok(data)
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn rename(&self, name: &str, new_name: &str, exchange: bool) -> io::Result<()> {
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        Ok(renameat_with(CWD, self.0.join(name), CWD, self.0.join(new_name), flags)?)
    }

    fn link(&self, name: &str, new_name: &str) -> io::Result<()> {
        fs::hard_link(self.0.join(name), self.0.join(new_name))
    }

    fn symlink(&self, target: &str, name: &str) -> io::Result<()> {
        symlink(target, self.0.join(name))
    }

    fn mkdir(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn rmdir(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }

    fn look(&self, name: &str) -> io::Result<(u64, u64)> {
        let found = fs::symlink_metadata(self.0.join(name))?;
        Ok((found.ino(), found.nlink()))
    }

    fn leave(&self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}
