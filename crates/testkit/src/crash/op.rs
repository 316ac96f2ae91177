//! The operations of crash workloads, and their text: failures print it, and
//! replays read it.

use crate::sim::Failing;
use std::fmt;
use std::str::FromStr;

/// One of the few places in the tree where a workload keeps files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Name {
    /// `a` in the root.
    A,
    /// `b` in the root.
    B,
    /// `a` in the directory `d`.
    DirA,
    /// `b` in the directory `d`.
    DirB,
}

impl Name {
    /// Every place.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::DirA, Self::DirB];

    /// The directory that it is in.
    #[must_use]
    pub fn dir(self) -> Dir {
        match self {
            Self::A | Self::B => Dir::Root,
            Self::DirA | Self::DirB => Dir::Sub,
        }
    }

    /// The name within its directory.
    #[must_use]
    pub fn leaf(self) -> &'static str {
        match self {
            Self::A | Self::DirA => "a",
            Self::B | Self::DirB => "b",
        }
    }

    /// Its place in tables that have one entry for each.
    #[must_use]
    pub fn at(self) -> usize {
        self as usize
    }

    fn text(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::DirA => "d/a",
            Self::DirB => "d/b",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A directory of a workload's tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dir {
    /// The root.
    Root,
    /// `d`, which every workload begins with.
    Sub,
}

impl Dir {
    /// Every directory.
    pub const ALL: [Self; 2] = [Self::Root, Self::Sub];
}

/// One operation. One that finds nothing to work on (no file of that name, a
/// name that is taken) is passed over, so that every sequence means something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Makes a file.
    Create(Name),
    /// Writes `len` bytes at `at`; with `sync`, as to a file opened `O_SYNC`.
    Write {
        /// The file.
        name: Name,
        /// Where, in bytes.
        at: u64,
        /// How many bytes.
        len: u64,
        /// Durable when it returns.
        sync: bool,
    },
    /// Writes that many bytes at the file's end.
    Append(Name, u64),
    /// `fsync`.
    Fsync(Name),
    /// `fdatasync`.
    Fdatasync(Name),
    /// `sync`.
    Sync,
    /// `fsync` of a directory.
    SyncDir(Dir),
    /// Sets the size.
    Truncate(Name, u64),
    /// Punches a hole: offset and length.
    Punch(Name, u64, u64),
    /// Zeroes: offset and length. Grows the file.
    Zero(Name, u64, u64),
    /// Reserves space: offset and length. Grows the file.
    Allocate(Name, u64, u64),
    /// Renames, replacing an existing file of the new name.
    Rename(Name, Name),
    /// Gives the file of the first name the second one too.
    Link(Name, Name),
    /// Sets the mode.
    Chmod(Name, u32),
    /// Gives it to a user and a group of this number.
    Chown(Name, u32),
    /// Sets an extended attribute to this number.
    SetXattr(Name, u64),
    /// Closes the file and removes the name.
    Unlink(Name),
    /// Removes the name and leaves the file open.
    UnlinkOpen(Name),
    /// Makes a file without a name, which is open.
    CreateUnnamed,
    /// Writes to the open file without a name that came last: offset and length.
    WriteOrphan(u64, u64),
    /// `fsync` of that file.
    FsyncOrphan,
    /// Gives that file a name; refused if it lost one.
    LinkOrphan(Name),
    /// Closes all open files without a name.
    CloseOrphans,
    /// Moves the range with this number to the disk with this number.
    Migrate(Name, u64, usize),
    /// The same, with something done to the file in the midst of it.
    MigrateDuring(Name, u64, usize, During),
    /// Moves everything off the disk with this number, by a job.
    Evacuate(usize),
    /// Moves everything to home, and takes the tier on the disk with this number
    /// out of the volume.
    RemoveTier(usize),
    /// Makes the disk with this number a tier again.
    AddTier(usize),
    /// Home has room for so many bytes more, from now on and after a crash.
    Room(u64),
    /// Home has all its room again.
    RoomAgain,
    /// Makes the disk with this number, which is not home, fail until it
    /// recovers, the volume is mounted again, or the power goes.
    Fail(usize, Failing),
    /// `fsync`, while syncs of the disk with this number fail, and then again.
    FailFsync(Name, usize),
    /// All disks are well again.
    Heal,
    /// Lets time pass, and the work in the background be done once.
    Tick,
    /// Closes the file.
    Close(Name),
    /// Unmounts cleanly and mounts again.
    Remount,
    /// Another process takes over open files.
    HandOver,
    /// The process dies, another one mounts.
    Kill,
}

/// An operation on a file while a range of it moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum During {
    /// A write: offset and length.
    Write(u64, u64),
    /// A new size.
    Truncate(u64),
    /// A hole: offset and length.
    Punch(u64, u64),
    /// `fsync`.
    Fsync,
}

impl During {
    /// The same as an operation by itself.
    #[must_use]
    pub fn op(self, name: Name) -> Op {
        match self {
            Self::Write(at, len) => Op::Write { name, at, len, sync: false },
            Self::Truncate(size) => Op::Truncate(name, size),
            Self::Punch(at, len) => Op::Punch(name, at, len),
            Self::Fsync => Op::Fsync(name),
        }
    }
}

impl fmt::Display for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(at, len) => write!(f, "write:{at}:{len}"),
            Self::Truncate(size) => write!(f, "truncate:{size}"),
            Self::Punch(at, len) => write!(f, "punch:{at}:{len}"),
            Self::Fsync => f.write_str("fsync"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(name) => write!(f, "create:{name}"),
            Self::Write { name, at, len, sync: false } => write!(f, "write:{name}:{at}:{len}"),
            Self::Write { name, at, len, sync: true } => write!(f, "osync:{name}:{at}:{len}"),
            Self::Append(name, len) => write!(f, "append:{name}:{len}"),
            Self::Fsync(name) => write!(f, "fsync:{name}"),
            Self::Fdatasync(name) => write!(f, "fdatasync:{name}"),
            Self::Sync => f.write_str("sync"),
            Self::SyncDir(Dir::Root) => f.write_str("syncdir:/"),
            Self::SyncDir(Dir::Sub) => f.write_str("syncdir:d"),
            Self::Truncate(name, size) => write!(f, "truncate:{name}:{size}"),
            Self::Punch(name, at, len) => write!(f, "punch:{name}:{at}:{len}"),
            Self::Zero(name, at, len) => write!(f, "zero:{name}:{at}:{len}"),
            Self::Allocate(name, at, len) => write!(f, "allocate:{name}:{at}:{len}"),
            Self::Rename(from, to) => write!(f, "rename:{from}:{to}"),
            Self::Link(from, to) => write!(f, "link:{from}:{to}"),
            Self::Chmod(name, mode) => write!(f, "chmod:{name}:{mode}"),
            Self::Chown(name, owner) => write!(f, "chown:{name}:{owner}"),
            Self::SetXattr(name, value) => write!(f, "xattr:{name}:{value}"),
            Self::Unlink(name) => write!(f, "unlink:{name}"),
            Self::UnlinkOpen(name) => write!(f, "unlink-open:{name}"),
            Self::CreateUnnamed => f.write_str("create-unnamed"),
            Self::FsyncOrphan => f.write_str("fsync-orphan"),
            Self::LinkOrphan(name) => write!(f, "link-orphan:{name}"),
            Self::WriteOrphan(at, len) => write!(f, "write-orphan:{at}:{len}"),
            Self::CloseOrphans => f.write_str("close-orphans"),
            Self::Migrate(name, range, to) => write!(f, "migrate:{name}:{range}:{to}"),
            Self::MigrateDuring(name, range, to, during) => {
                write!(f, "migrate:{name}:{range}:{to}:{during}")
            }
            Self::Evacuate(disk) => write!(f, "evacuate:{disk}"),
            Self::RemoveTier(disk) => write!(f, "remove-tier:{disk}"),
            Self::AddTier(disk) => write!(f, "add-tier:{disk}"),
            Self::Room(bytes) => write!(f, "room:{bytes}"),
            Self::RoomAgain => f.write_str("room-again"),
            Self::Fail(disk, failing) => write!(f, "fail:{disk}:{}", failing_text(*failing)),
            Self::FailFsync(name, disk) => write!(f, "fail-fsync:{name}:{disk}"),
            Self::Heal => f.write_str("heal"),
            Self::Tick => f.write_str("tick"),
            Self::Close(name) => write!(f, "close:{name}"),
            Self::Remount => f.write_str("remount"),
            Self::HandOver => f.write_str("hand-over"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

fn failing_text(failing: Failing) -> &'static str {
    match failing {
        Failing::Everything => "everything",
        Failing::Writes => "writes",
        Failing::Syncs => "syncs",
    }
}

/// The part that can't be read as a workload, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError(pub String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't be read: {}", self.0)
    }
}

impl std::error::Error for ParseError {}

impl FromStr for Name {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|name| name.text() == text);
        found.ok_or_else(|| ParseError(text.into()))
    }
}

impl FromStr for Op {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fields: Vec<&str> = text.split(':').collect();
        parse(&fields).ok_or_else(|| ParseError(text.into()))
    }
}

fn parse(fields: &[&str]) -> Option<Op> {
    let name = |at: usize| -> Option<Name> { fields.get(at)?.parse().ok() };
    let number = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
    Some(match *fields.first()? {
        "create" => Op::Create(name(1)?),
        "write" => Op::Write { name: name(1)?, at: number(2)?, len: number(3)?, sync: false },
        "osync" => Op::Write { name: name(1)?, at: number(2)?, len: number(3)?, sync: true },
        "append" => Op::Append(name(1)?, number(2)?),
        "fsync" => Op::Fsync(name(1)?),
        "fdatasync" => Op::Fdatasync(name(1)?),
        "sync" => Op::Sync,
        "syncdir" => Op::SyncDir(if *fields.get(1)? == "/" { Dir::Root } else { Dir::Sub }),
        "truncate" => Op::Truncate(name(1)?, number(2)?),
        "punch" => Op::Punch(name(1)?, number(2)?, number(3)?),
        "zero" => Op::Zero(name(1)?, number(2)?, number(3)?),
        "allocate" => Op::Allocate(name(1)?, number(2)?, number(3)?),
        "rename" => Op::Rename(name(1)?, name(2)?),
        "link" => Op::Link(name(1)?, name(2)?),
        "chmod" => Op::Chmod(name(1)?, u32::try_from(number(2)?).ok()?),
        "chown" => Op::Chown(name(1)?, u32::try_from(number(2)?).ok()?),
        "xattr" => Op::SetXattr(name(1)?, number(2)?),
        "unlink" => Op::Unlink(name(1)?),
        "unlink-open" => Op::UnlinkOpen(name(1)?),
        "write-orphan" => Op::WriteOrphan(number(1)?, number(2)?),
        "create-unnamed" => Op::CreateUnnamed,
        "fsync-orphan" => Op::FsyncOrphan,
        "link-orphan" => Op::LinkOrphan(name(1)?),
        "close-orphans" => Op::CloseOrphans,
        "migrate" => {
            let (name, range, to) = (name(1)?, number(2)?, usize::try_from(number(3)?).ok()?);
            match fields.get(4).copied() {
                None => Op::Migrate(name, range, to),
                Some("write") => Op::MigrateDuring(name, range, to, During::Write(number(5)?, number(6)?)),
                Some("truncate") => Op::MigrateDuring(name, range, to, During::Truncate(number(5)?)),
                Some("punch") => Op::MigrateDuring(name, range, to, During::Punch(number(5)?, number(6)?)),
                Some("fsync") => Op::MigrateDuring(name, range, to, During::Fsync),
                Some(_) => return None,
            }
        }
        "evacuate" => Op::Evacuate(usize::try_from(number(1)?).ok()?),
        "remove-tier" => Op::RemoveTier(usize::try_from(number(1)?).ok()?),
        "add-tier" => Op::AddTier(usize::try_from(number(1)?).ok()?),
        "room" => Op::Room(number(1)?),
        "room-again" => Op::RoomAgain,
        "fail" => {
            let failing = Failing::ALL.into_iter().find(|way| Some(&failing_text(*way)) == fields.get(2));
            Op::Fail(usize::try_from(number(1)?).ok()?, failing?)
        }
        "fail-fsync" => Op::FailFsync(name(1)?, usize::try_from(number(2)?).ok()?),
        "heal" => Op::Heal,
        "tick" => Op::Tick,
        "close" => Op::Close(name(1)?),
        "remount" => Op::Remount,
        "hand-over" => Op::HandOver,
        "kill" => Op::Kill,
        _ => return None,
    })
}

/// A sequence as text, in one word.
pub(crate) fn to_text(ops: &[Op]) -> String {
    ops.iter().map(Op::to_string).collect::<Vec<_>>().join("+")
}

/// A sequence from its text.
pub(crate) fn from_text(text: &str) -> Result<Vec<Op>, ParseError> {
    text.split('+').filter(|op| !op.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::super::generate::{alphabet, random_ops};
    use super::*;

    #[test]
    fn every_operation_is_read_back_from_its_text() {
        let mut ops = alphabet();
        (0..200).for_each(|seed| ops.extend(random_ops(seed, 3)));
        assert_eq!(from_text(&to_text(&ops)), Ok(ops));
    }

    #[test]
    fn what_is_no_operation_is_refused() {
        for text in ["", "write:a:0", "write:x:0:1", "fly:a"] {
            assert!(text.parse::<Op>().is_err(), "{text}");
        }
    }
}
