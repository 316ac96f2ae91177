//! Values of the table of operations, and their form in the interface.

use crate::failure::breach;
use braid_contract::HandleId;
use braid_contract::{Attr, Entry, FileKind, InodeId, IoMode, Opened, SetTime, StatFs, Timestamp};
use braid_sys::module::{self as abi, Answer, Attributes, Failure, Space, Time};
use std::sync::Arc;

pub(crate) fn time_of(time: Timestamp) -> Time {
    Time { seconds: time.secs, nanoseconds: time.nanos, now: 0 }
}

pub(crate) fn time_to(time: Time) -> Result<Timestamp, Failure> {
    match time.nanoseconds {
        nanos @ 0..1_000_000_000 => Ok(Timestamp { secs: time.seconds, nanos }),
        _ => Err(breach("a time of more than a second's nanoseconds")),
    }
}

pub(crate) fn set_time_of(time: SetTime) -> Time {
    match time {
        SetTime::Now => Time { now: 1, ..Time::default() },
        SetTime::At(time) => time_of(time),
    }
}

pub(crate) fn set_time_to(time: Time) -> Result<SetTime, Failure> {
    if time.now != 0 { Ok(SetTime::Now) } else { time_to(time).map(SetTime::At) }
}

pub(crate) fn attributes_of(attr: &Attr, generation: u64) -> Attributes {
    Attributes {
        ino: attr.ino.0,
        generation,
        size: attr.size,
        blocks: attr.blocks,
        accessed: time_of(attr.atime),
        modified: time_of(attr.mtime),
        changed: time_of(attr.ctime),
        born: attr.btime.map(time_of).unwrap_or_default(),
        mode: u32::from(attr.mode) | attr.kind.mode(),
        knows_birth: u32::from(attr.btime.is_some()),
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: attr.block_size,
        padding: 0,
    }
}

pub(crate) fn attributes_to(told: &Attributes) -> Result<Attr, Failure> {
    let kind = FileKind::from_mode(told.mode).ok_or_else(|| breach("an inode of no kind"))?;
    Ok(Attr {
        ino: InodeId(told.ino),
        size: told.size,
        blocks: told.blocks,
        atime: time_to(told.accessed)?,
        mtime: time_to(told.modified)?,
        ctime: time_to(told.changed)?,
        btime: (told.knows_birth != 0).then(|| time_to(told.born)).transpose()?,
        kind,
        mode: (told.mode & 0o7777) as u16,
        nlink: told.links,
        uid: told.uid,
        gid: told.gid,
        rdev: told.rdev,
        block_size: told.block_size,
    })
}

/// A type that operations answer.
pub(crate) trait Answered: Sized {
    fn give(self, answer: &mut Answer);

    fn get(answer: Answer) -> Result<Self, Failure>;
}

impl Answered for () {
    fn give(self, _: &mut Answer) {}

    fn get(_: Answer) -> Result<Self, Failure> {
        Ok(())
    }
}

impl Answered for Attr {
    fn give(self, answer: &mut Answer) {
        answer.answers.attributes = attributes_of(&self, 0);
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        attributes_to(&answer.answers.attributes)
    }
}

impl Answered for Entry {
    fn give(self, answer: &mut Answer) {
        answer.answers.attributes = attributes_of(&self.attr, self.generation);
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        let told = &answer.answers.attributes;
        Ok(Self { attr: attributes_to(told)?, generation: told.generation })
    }
}

impl Answered for Opened {
    fn give(self, answer: &mut Answer) {
        answer.answers.handle = self.handle.0;
        answer.answers.set_id = u32::from(self.set_id);
        answer.answers.io_mode = match self.mode {
            IoMode::Cached => abi::CACHED,
            IoMode::Direct => abi::UNCACHED,
            IoMode::Passthrough(descriptor) => {
                // Without one, the other side refuses the answer.
                answer.descriptor = descriptor.try_clone().ok();
                abi::PASSTHROUGH
            }
        };
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        let mode = match (answer.answers.io_mode, answer.descriptor) {
            (abi::CACHED, _) => IoMode::Cached,
            (abi::UNCACHED, _) => IoMode::Direct,
            (abi::PASSTHROUGH, Some(descriptor)) => IoMode::Passthrough(Arc::new(descriptor)),
            (abi::PASSTHROUGH, None) => return Err(breach("a file without its descriptor")),
            _ => return Err(breach("a file whose data travels in no known way")),
        };
        Ok(Self { handle: HandleId(answer.answers.handle), mode, set_id: answer.answers.set_id != 0 })
    }
}

impl Answered for (Entry, Opened) {
    fn give(self, answer: &mut Answer) {
        self.0.give(answer);
        self.1.give(answer);
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        let told = answer.answers.attributes;
        let entry = Entry { attr: attributes_to(&told)?, generation: told.generation };
        Ok((entry, Opened::get(answer)?))
    }
}

impl Answered for HandleId {
    fn give(self, answer: &mut Answer) {
        answer.answers.handle = self.0;
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        Ok(Self(answer.answers.handle))
    }
}

impl Answered for u64 {
    fn give(self, answer: &mut Answer) {
        answer.answers.count = self;
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        Ok(answer.answers.count)
    }
}

impl Answered for usize {
    fn give(self, answer: &mut Answer) {
        answer.answers.count = self as u64;
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        Self::try_from(answer.answers.count).map_err(|_| breach("a count beyond all memory"))
    }
}

impl Answered for Vec<u8> {
    fn give(self, answer: &mut Answer) {
        answer.bytes = self;
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        Ok(answer.bytes)
    }
}

impl Answered for std::path::PathBuf {
    fn give(self, answer: &mut Answer) {
        answer.bytes = std::os::unix::ffi::OsStringExt::into_vec(self.into_os_string());
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        let path: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(answer.bytes);
        Ok(path.into())
    }
}

impl Answered for StatFs {
    fn give(self, answer: &mut Answer) {
        let Self { total, free, available, files, files_free, block_size, name_max } = self;
        answer.answers.space = Space { total, free, available, files, files_free, block_size, name_max };
    }

    fn get(answer: Answer) -> Result<Self, Failure> {
        let Space { total, free, available, files, files_free, block_size, name_max } = answer.answers.space;
        Ok(Self { total, free, available, files, files_free, block_size, name_max })
    }
}
