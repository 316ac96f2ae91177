//! A client of a measurement: the same operations through a session, and by system calls.

use crate::args::Load;
use braid_contract::key_value::VALUE_MAX;
use braid_contract::{
    Caller, FileSystem, HandleId, InodeId, KeyValue, OpenFlags, PutOptions, Result, WriteFlags,
};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One client: it does one thing.
pub(super) trait Client: Send {
    /// Does it once: for the `number`-th time, at this place of its file.
    fn operate(&mut self, number: u64, offset: u64) -> io::Result<()>;

    /// Removes its files.
    fn end(&mut self, operations: u64) -> io::Result<()>;
}

/// The task of a client.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) load: Load,
    /// The client's number.
    pub(super) client: usize,
    /// Bytes of one operation, and of its file.
    pub(super) size: u64,
    pub(super) file: u64,
}

impl Task {
    pub(super) fn own_file(&self) -> String {
        format!("file-{}", self.client)
    }

    fn made(&self, number: u64) -> String {
        format!("made-{}-{number}", self.client)
    }

    /// Files or values that are there when the measurement begins.
    fn made_before(&self) -> u64 {
        if self.load == Load::Get { (self.file / self.size).max(1) } else { 0 }
    }

    /// And when it has ended, after so many operations.
    fn made_after(&self, operations: u64) -> u64 {
        match self.load {
            Load::Create | Load::Put => operations,
            _ => self.made_before(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.size).map(|at| (at % 251) as u8).collect()
    }
}

/// A client that calls a file system itself: through a session, or in this process.
pub(super) struct ByCalls {
    fs: Arc<dyn FileSystem>,
    values: Arc<dyn KeyValue>,
    /// A runtime knows by itself whose session it is.
    caller: Caller,
    dir: InodeId,
    task: Task,
    ino: InodeId,
    handle: HandleId,
    buffer: Vec<u8>,
}

const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

impl ByCalls {
    /// Makes the client's file below `dir`.
    pub(super) fn begin(
        (fs, values): (Arc<dyn FileSystem>, Arc<dyn KeyValue>),
        (caller, dir): (Caller, InodeId),
        task: Task,
    ) -> Result<Self> {
        let name = OsString::from(task.own_file());
        let (entry, opened) = fs.create(&caller, dir, &name, 0o600, 0, true, BOTH.into())?;
        let buffer = task.bytes();
        let this = Self { fs, values, caller, dir, task, ino: entry.attr.ino, handle: opened.handle, buffer };
        let filled = if matches!(this.task.load, Load::Read | Load::Write) { this.task.file } else { 0 };
        let block = vec![7; 1 << 20];
        for offset in (0..filled).step_by(block.len()) {
            let len = (filled - offset).min(block.len() as u64) as usize;
            this.fs.write(&this.caller, this.handle, offset, &block[..len], WriteFlags::default())?;
        }
        (0..this.task.made_before()).try_for_each(|number| this.put(number))?;
        Ok(this)
    }

    fn put(&self, number: u64) -> Result<()> {
        let key = self.task.made(number);
        self.values.put(&self.caller, key.as_bytes(), &self.buffer, PutOptions::default()).map(drop)
    }

    fn once(&mut self, number: u64, offset: u64) -> Result<()> {
        let Self { fs, values, caller, dir, task, ino, handle, buffer } = self;
        match task.load {
            // There is another client for these.
            Load::Stat | Load::Deeds => fs.getattr(caller, *ino, None).map(drop),
            Load::Create => {
                let name = OsString::from(task.made(number));
                let (entry, opened) = fs.create(caller, *dir, &name, 0o600, 0, true, BOTH.into())?;
                fs.release(opened.handle)?;
                fs.forget(entry.attr.ino, 1);
                Ok(())
            }
            Load::Read => fs.read(caller, *handle, offset, buffer, false).map(drop),
            Load::Write => fs.write(caller, *handle, offset, buffer, WriteFlags::default()).map(drop),
            Load::Put => self.put(number),
            Load::Get => {
                let key = task.made(offset / task.size);
                values.read(caller, key.as_bytes(), buffer, VALUE_MAX).map(drop)
            }
        }
    }

    fn clean(&self, operations: u64) -> Result<()> {
        self.fs.release(self.handle)?;
        self.fs.unlink(&self.caller, self.dir, OsStr::new(&self.task.own_file()))?;
        (0..self.task.made_after(operations)).try_for_each(|number| {
            self.fs.unlink(&self.caller, self.dir, OsStr::new(&self.task.made(number)))
        })
    }
}

impl Client for ByCalls {
    fn operate(&mut self, number: u64, offset: u64) -> io::Result<()> {
        self.once(number, offset).map_err(io_error)
    }

    fn end(&mut self, operations: u64) -> io::Result<()> {
        self.clean(operations).map_err(io_error)
    }
}

pub(super) fn io_error(error: braid_contract::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// A client by system calls.
pub(super) struct ByMount {
    dir: PathBuf,
    task: Task,
    file: File,
    buffer: Vec<u8>,
}

impl ByMount {
    /// Makes the client's file below `dir`.
    pub(super) fn begin(dir: &Path, task: Task) -> io::Result<Self> {
        let path = dir.join(task.own_file());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if matches!(task.load, Load::Read | Load::Write) {
            let block = vec![7; 1 << 20];
            for offset in (0..task.file).step_by(block.len()) {
                let len = (task.file - offset).min(block.len() as u64) as usize;
                file.write_all_at(&block[..len], offset)?;
            }
        }
        let buffer = task.bytes();
        let this = Self { dir: dir.to_owned(), task, file, buffer };
        (0..this.task.made_before()).try_for_each(|number| this.put(number))?;
        Ok(this)
    }

    /// A file for a value.
    fn put(&self, number: u64) -> io::Result<()> {
        let path = self.dir.join(self.task.made(number));
        OpenOptions::new().write(true).create_new(true).open(path)?.write_all(&self.buffer)
    }
}

impl Client for ByMount {
    fn operate(&mut self, number: u64, offset: u64) -> io::Result<()> {
        match self.task.load {
            Load::Stat | Load::Deeds => std::fs::metadata(self.dir.join(self.task.own_file())).map(drop),
            Load::Create => {
                let path = self.dir.join(self.task.made(number));
                OpenOptions::new().write(true).create_new(true).open(path).map(drop)
            }
            Load::Read => self.file.read_at(&mut self.buffer, offset).map(drop),
            Load::Write => self.file.write_all_at(&self.buffer, offset),
            Load::Put => self.put(number),
            Load::Get => {
                let path = self.dir.join(self.task.made(offset / self.task.size));
                File::open(path)?.read_exact(&mut self.buffer)
            }
        }
    }

    fn end(&mut self, operations: u64) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(self.task.own_file()))?;
        (0..self.task.made_after(operations))
            .try_for_each(|number| std::fs::remove_file(self.dir.join(self.task.made(number))))
    }
}
