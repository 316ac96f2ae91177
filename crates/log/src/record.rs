//! Records of the log: the changes of one operation, for each inode that it
//! touches. A record is applied as a whole or not at all.

use crate::actor::Actor;
use crate::codec::{Put, Take};
use crate::extents::{Piece, Run};
use braid_contract::Timestamp;
use std::sync::Arc;

/// Upper bound of block numbers: beyond any device, and safe from overflow.
const BLOCKS_MAX: u64 = 1 << 50;
/// Blocks of the longest file.
const FILE_BLOCKS_MAX: u64 = 1 << 51;
/// Inode numbers are lower.
const INO_MAX: u64 = 1 << 62;
/// Offsets of names in listings are lower.
const OFFSET_MAX: u64 = 1 << 62;
/// Longest name in bytes.
const NAME_MAX: usize = 255;

/// A name, which a directory and its listing share.
pub(crate) type Name = Arc<[u8]>;

/// How an inode begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Begin {
    /// Type and permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) nlink: u32,
    /// The directory that it is in; itself for the root.
    pub(crate) parent: u64,
    pub(crate) generation: u64,
    /// All its times.
    pub(crate) time: Timestamp,
    pub(crate) actor: Arc<Actor>,
}

/// One change of one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It comes into being.
    Begin(Box<Begin>),
    /// Its permission bits.
    Mode(u32),
    Owner(u32, u32),
    Accessed(Timestamp),
    Modified(Timestamp),
    /// The time of the last change of the inode.
    Changed(Timestamp),
    /// How many names it has.
    Links(u32),
    /// The directory that it is in.
    Parent(u64),
    /// The directory has this name for this inode, of this type (`mode >> 12`), whatever
    /// had it before.
    Enter(Name, u64, u8),
    /// The directory has no such name.
    Leave(Name),
    /// The next name that the directory gets has this offset in listings, or a later one.
    Offset(u64),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// All of a small file.
    Inline(Vec<u8>),
    /// Blocks of a file.
    Map(Vec<Piece>),
    /// The checksum of the blocks that the record has as written, in its order.
    Sum(u32),
    /// Blocks from one up to another are a hole.
    Unmap(u64, u64),
    /// The size of a file, beyond which nothing stays.
    Size(u64),
    SetXattr(Vec<u8>, Vec<u8>),
    DropXattr(Vec<u8>),
    /// The last writer.
    Wrote(Arc<Actor>),
    /// It is removed, with its contents.
    End,
}

/// The changes of one inode.
pub(crate) type Part = (u64, Vec<Change>);

fn put_time(to: &mut Vec<u8>, time: Timestamp) {
    to.put_signed(time.secs);
    to.put_number(time.nanos.into());
}

fn take_time(take: &mut Take<'_>) -> Option<Timestamp> {
    let (secs, nanos) = (take.signed()?, take.small()?);
    (nanos < 1_000_000_000).then_some(Timestamp { secs, nanos })
}

impl Begin {
    fn put(&self, to: &mut Vec<u8>) {
        for number in [self.mode, self.uid, self.gid, self.rdev, self.nlink] {
            to.put_number(number.into());
        }
        to.put_number(self.parent);
        to.put_number(self.generation);
        put_time(to, self.time);
        self.actor.put(to);
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            mode: take.small()?,
            uid: take.small()?,
            gid: take.small()?,
            rdev: take.small()?,
            nlink: take.small()?,
            parent: take_ino(take)?,
            generation: take.number()?,
            time: take_time(take)?,
            actor: Actor::take(take)?,
        })
    }
}

fn put_pieces(to: &mut Vec<u8>, pieces: &[Piece]) {
    to.put_number(pieces.len() as u64);
    for piece in pieces {
        to.put_number(piece.at);
        to.put_number(piece.run.start);
        to.put_number(piece.run.len << 1 | u64::from(piece.is_written));
    }
}

fn take_pieces(take: &mut Take<'_>) -> Option<Vec<Piece>> {
    let count = take.number()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        let (at, start, len) = (take.number()?, take.number()?, take.number()?);
        let run = Run { start, len: len >> 1 };
        // Blocks beyond any file or any device are damage.
        if run.len == 0 || at >= FILE_BLOCKS_MAX || start.max(run.len) > BLOCKS_MAX {
            return None;
        }
        pieces.push(Piece { at, run, is_written: len & 1 == 1 });
    }
    Some(pieces)
}

/// Blocks from one up to another: a hole that ends before it begins is damage.
fn take_hole(take: &mut Take<'_>) -> Option<Change> {
    let (from, end) = (take.number()?, take.number()?);
    (from <= end).then_some(Change::Unmap(from, end))
}

fn take_name(take: &mut Take<'_>) -> Option<Name> {
    let name = take.bytes()?;
    let is_one = (1..=NAME_MAX).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0);
    (is_one && name != b"." && name != b"..").then(|| name.into())
}

fn take_ino(take: &mut Take<'_>) -> Option<u64> {
    take.number().filter(|ino| (1..INO_MAX).contains(ino))
}

impl Change {
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        to.put_u8(self.tag());
        match self {
            Self::Begin(begin) => begin.put(to),
            Self::Mode(number) | Self::Links(number) => to.put_number((*number).into()),
            Self::Owner(uid, gid) => {
                to.put_number((*uid).into());
                to.put_number((*gid).into());
            }
            Self::Accessed(time) | Self::Modified(time) | Self::Changed(time) => put_time(to, *time),
            Self::Parent(number) | Self::Size(number) | Self::Offset(number) => to.put_number(*number),
            Self::Enter(name, ino, kind) => {
                to.put_bytes(name);
                to.put_number(*ino);
                to.put_u8(*kind);
            }
            Self::Leave(name) => to.put_bytes(name),
            Self::Target(bytes) | Self::Inline(bytes) | Self::DropXattr(bytes) => to.put_bytes(bytes),
            Self::Map(pieces) => put_pieces(to, pieces),
            Self::Sum(sum) => to.put_u32(*sum),
            Self::Unmap(from, end) => {
                to.put_number(*from);
                to.put_number(*end);
            }
            Self::SetXattr(name, value) => {
                to.put_bytes(name);
                to.put_bytes(value);
            }
            Self::Wrote(actor) => actor.put(to),
            Self::End => {}
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Begin(_) => 1,
            Self::Mode(_) => 2,
            Self::Owner(..) => 3,
            Self::Accessed(_) => 4,
            Self::Modified(_) => 5,
            Self::Changed(_) => 6,
            Self::Links(_) => 7,
            Self::Parent(_) => 8,
            Self::Enter(..) => 9,
            Self::Leave(_) => 10,
            Self::Target(_) => 11,
            Self::Inline(_) => 12,
            Self::Map(_) => 13,
            Self::Sum(_) => 14,
            Self::Unmap(..) => 15,
            Self::Size(_) => 16,
            Self::SetXattr(..) => 17,
            Self::DropXattr(_) => 18,
            Self::Wrote(_) => 19,
            Self::End => 20,
            Self::Offset(_) => 21,
        }
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        Some(match take.u8()? {
            1 => Self::Begin(Box::new(Begin::take(take)?)),
            2 => Self::Mode(take.small()?),
            3 => Self::Owner(take.small()?, take.small()?),
            4 => Self::Accessed(take_time(take)?),
            5 => Self::Modified(take_time(take)?),
            6 => Self::Changed(take_time(take)?),
            7 => Self::Links(take.small()?),
            8 => Self::Parent(take_ino(take)?),
            9 => Self::Enter(take_name(take)?, take_ino(take)?, take.u8()?),
            10 => Self::Leave(take_name(take)?),
            11 => Self::Target(take.bytes()?.to_vec()),
            12 => Self::Inline(take.bytes()?.to_vec()),
            13 => Self::Map(take_pieces(take)?),
            14 => Self::Sum(take.u32()?),
            15 => take_hole(take)?,
            16 => Self::Size(take.number().filter(|size| i64::try_from(*size).is_ok())?),
            17 => Self::SetXattr(take.bytes()?.to_vec(), take.bytes()?.to_vec()),
            18 => Self::DropXattr(take.bytes()?.to_vec()),
            19 => Self::Wrote(Actor::take(take)?),
            20 => Self::End,
            21 => Self::Offset(take.number().filter(|offset| *offset < OFFSET_MAX)?),
            _ => return None,
        })
    }
}

/// Appends the changes of one inode.
pub(crate) fn put_part(to: &mut Vec<u8>, ino: u64, changes: &[Change]) {
    to.put_number(ino);
    to.put_number(changes.len() as u64);
    changes.iter().for_each(|change| change.put(to));
}

/// Reads the parts of a record; `None` if they make no sense.
pub(crate) fn take_parts(bytes: &[u8]) -> Option<Vec<Part>> {
    let (mut take, mut parts) = (Take::new(bytes), Vec::new());
    while !take.is_empty() {
        let (ino, count) = (take_ino(&mut take)?, take.number()?);
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(Change::take(&mut take)?);
        }
        parts.push((ino, changes));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_comes_back_and_nothing_else_is_taken() {
        let actor = Arc::new(Actor::new(1, 2, 3, b"command".to_vec()));
        let time = Timestamp { secs: -5, nanos: 999_999_999 };
        let begin = Begin {
            mode: 0o100_644,
            uid: u32::MAX,
            gid: 7,
            rdev: 9,
            nlink: 1,
            parent: 1,
            generation: 12,
            time,
            actor: Arc::clone(&actor),
        };
        let run = Run { start: 77, len: 3 };
        let changes = vec![
            Change::Begin(Box::new(begin)),
            Change::Mode(0o7777),
            Change::Owner(1, 2),
            Change::Accessed(time),
            Change::Modified(time),
            Change::Changed(time),
            Change::Links(3),
            Change::Parent(4),
            Change::Enter((*b"name").into(), 5, 8),
            Change::Leave((*b"other").into()),
            Change::Offset(1 << 40),
            Change::Target(b"target".to_vec()),
            Change::Inline(vec![0; 300]),
            Change::Map(vec![
                Piece { at: 0, run, is_written: false },
                Piece { at: 3, run, is_written: true },
            ]),
            Change::Sum(0xdead_beef),
            Change::Unmap(1, 2),
            Change::Size(1 << 40),
            Change::SetXattr(b"user.a".to_vec(), vec![1; 1000]),
            Change::DropXattr(b"user.b".to_vec()),
            Change::Wrote(actor),
            Change::End,
        ];
        let mut bytes = Vec::new();
        put_part(&mut bytes, 42, &changes);
        put_part(&mut bytes, 43, &changes[..1]);
        let parts = take_parts(&bytes).unwrap_or_default();
        assert_eq!(parts, [(42, changes.clone()), (43, changes[..1].to_vec())]);
        // The cut is noticed wherever it is, but between two parts.
        let mut one = Vec::new();
        put_part(&mut one, 42, &changes);
        for len in 1..bytes.len() {
            assert_eq!(take_parts(&bytes[..len]).is_some(), len == one.len(), "{len}");
        }
        assert_eq!(take_parts(&[1, 1, 99]), None);
    }

    #[test]
    fn what_no_file_system_writes_is_refused() {
        let piece = |at, start, len| Piece { at, run: Run { start, len }, is_written: true };
        let name = |name: &[u8]| Change::Enter(name.into(), 5, 8);
        let changes = [
            Change::Map(vec![piece(1 << 51, 1, 1)]),
            Change::Map(vec![piece(1, u64::MAX, 1)]),
            Change::Map(vec![piece(1, 1, 0)]),
            Change::Size(1 << 63),
            Change::Unmap(5, 4),
            name(b""),
            name(b"a/b"),
            name(b".."),
            name(&[b'x'; 256]),
            Change::Enter((*b"name").into(), 0, 8),
            Change::Parent(u64::MAX),
            Change::Offset(1 << 62),
        ];
        for change in changes {
            let mut bytes = Vec::new();
            put_part(&mut bytes, 3, std::slice::from_ref(&change));
            assert_eq!(take_parts(&bytes), None, "{change:?}");
        }
        let mut bytes = Vec::new();
        put_part(&mut bytes, u64::MAX, &[Change::End]);
        assert_eq!(take_parts(&bytes), None);
    }
}
