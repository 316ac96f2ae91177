//! The bytes on the device, other than records: superblocks, headers of segments and of
//! chunks. docs/log-format.md describes them. Parsing only; no I/O.

use crate::codec::{Put, Take};
use crate::device::BLOCK;
use braid_contract::{Errno, Error, Result};

/// Blocks of a group: a segment takes one, and all of one are in a word of the allocator.
pub(crate) const GROUP_BLOCKS: u64 = 64;
/// Bytes of a group.
pub(crate) const GROUP: u64 = GROUP_BLOCKS * BLOCK;
/// The least device, in bytes.
pub const SIZE_MIN: u64 = 16 << 20;
/// Most workers.
pub const WORKERS_MAX: usize = 64;
/// Version of the format: that of what is written.
pub(crate) const VERSION: u32 = 2;
/// The first version that is understood. It lacks offsets of names.
const VERSION_FIRST: u32 = 1;
/// Bytes of the header of a chunk.
pub(crate) const CHUNK_HEADER: usize = 48;
/// Bytes of the header of a record: length, checksum, number.
pub(crate) const RECORD_HEADER: usize = 16;
/// Most bytes of a chunk, its header included: a segment without its header.
pub(crate) const CHUNK_MAX: usize = (GROUP - BLOCK) as usize;
/// Most bytes of a record without its header.
pub(crate) const RECORD_MAX: usize = CHUNK_MAX - CHUNK_HEADER - RECORD_HEADER;

/// No counter may reach this.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

const SUPER_MAGIC: &[u8; 8] = b"BRAIDLOG";
const SEGMENT_MAGIC: u32 = 0x6765_7342;
const CHUNK_MAGIC: u32 = 0x6b68_6342;

/// Where a segment is: its group, and its number, which no other segment ever has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentAt {
    pub(crate) group: u64,
    pub(crate) number: u64,
}

impl SegmentAt {
    /// Its first byte on the device.
    pub(crate) fn offset(self) -> u64 {
        self.group * GROUP
    }
}

/// The superblock, which leads to everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    /// Blocks of the device.
    pub(crate) blocks: u64,
    /// Counts checkpoints; of two superblocks, the higher one is valid.
    pub(crate) generation: u64,
    /// When it was made, in nanoseconds since the epoch.
    pub(crate) made_ns: i64,
    /// Nothing was written behind this checkpoint: the file system was closed.
    pub(crate) is_clean: bool,
    /// When this checkpoint was.
    pub(crate) written_ns: i64,
    /// Records from this number on are in the logs; the changes of those before are in the
    /// image.
    pub(crate) first_record: u64,
    pub(crate) next_ino: u64,
    /// Numbers from here on are of segments that began later.
    pub(crate) next_segment: u64,
    /// The first segment of the image, and how many records it has.
    pub(crate) image: SegmentAt,
    pub(crate) image_records: u64,
    /// The first segment of each worker's log.
    pub(crate) logs: Vec<SegmentAt>,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = SUPER_MAGIC.to_vec();
        to.put_u32(VERSION);
        to.put_u32(BLOCK as u32);
        to.put_u32(GROUP_BLOCKS as u32);
        to.extend_from_slice(&self.uuid);
        to.put_u64(self.blocks);
        to.put_u64(self.generation);
        to.put_u64(self.made_ns.cast_unsigned());
        to.put_u64(self.written_ns.cast_unsigned());
        to.put_u32(self.is_clean.into());
        to.put_u64(self.first_record);
        to.put_u64(self.next_ino);
        to.put_u64(self.next_segment);
        put_segment(&mut to, self.image);
        to.put_u64(self.image_records);
        to.put_u32(self.logs.len() as u32);
        self.logs.iter().for_each(|log| put_segment(&mut to, *log));
        to.resize(BLOCK as usize - 4, 0);
        let sum = crc32c::crc32c(&to);
        to.put_u32(sum);
        to
    }

    /// Whether these bytes begin like a superblock, of whatever version.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(SUPER_MAGIC)
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// `EINVAL` for other data, or another version; `EUCLEAN` for a damaged one. The
    /// text describes the error.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if !Self::is_one(bytes) {
            return Err(Error::new(Errno::EINVAL, "there is no log file system"));
        }
        let damaged = || Error::new(Errno::EUCLEAN, "the superblock is damaged");
        let mut take = Take::new(bytes.get(SUPER_MAGIC.len()..BLOCK as usize - 4).ok_or_else(damaged)?);
        let version = take.u32().ok_or_else(damaged)?;
        if !(VERSION_FIRST..=VERSION).contains(&version) {
            let text = format!(
                "the log file system has format {version}; this program knows {VERSION_FIRST} to {VERSION}"
            );
            return Err(Error::new(Errno::EINVAL, text));
        }
        let (body, sum) = bytes[..BLOCK as usize].split_at(BLOCK as usize - 4);
        if crc32c::crc32c(body).to_le_bytes() != sum {
            return Err(damaged());
        }
        Self::take(&mut take).ok_or_else(damaged)
    }

    /// Whether these bytes are a sound superblock of another version.
    pub(crate) fn is_of_other_version(bytes: &[u8]) -> bool {
        let Some((body, sum)) = bytes.get(..BLOCK as usize).map(|block| block.split_at(BLOCK as usize - 4))
        else {
            return false;
        };
        let is_known = |body: &[u8]| {
            let version = Take::new(&body[SUPER_MAGIC.len()..]).u32();
            version.is_some_and(|version| (VERSION_FIRST..=VERSION).contains(&version))
        };
        Self::is_one(body) && !is_known(body) && crc32c::crc32c(body).to_le_bytes() == sum
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        if (take.u32()?, take.u32()?) != (BLOCK as u32, GROUP_BLOCKS as u32) {
            return None;
        }
        let mut found = Self {
            uuid: take.take(16)?.try_into().ok()?,
            blocks: take.u64()?,
            generation: take.u64()?,
            made_ns: take.u64()?.cast_signed(),
            written_ns: take.u64()?.cast_signed(),
            is_clean: take.u32()? == 1,
            first_record: take.u64()?,
            next_ino: take.u64()?,
            next_segment: take.u64()?,
            image: take_segment(take)?,
            image_records: take.u64()?,
            logs: Vec::new(),
        };
        for _ in 0..take.u32()? {
            found.logs.push(take_segment(take)?);
        }
        let is_sane = (1..=WORKERS_MAX).contains(&found.logs.len())
            && [found.first_record, found.next_ino, found.next_segment]
                .iter()
                .all(|next| (1..COUNT_MAX).contains(next));
        is_sane.then_some(found)
    }

    /// The number that ties segments to this file system.
    pub(crate) fn salt(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }
}

fn put_segment(to: &mut Vec<u8>, at: SegmentAt) {
    to.put_u64(at.group);
    to.put_u64(at.number);
}

fn take_segment(take: &mut Take<'_>) -> Option<SegmentAt> {
    let at = SegmentAt { group: take.u64()?, number: take.u64()? };
    (at.group < COUNT_MAX / GROUP && at.number < COUNT_MAX).then_some(at)
}

/// The first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    /// Its own number.
    pub(crate) number: u64,
    /// Where the log goes on. That group is taken for it already.
    pub(crate) next: SegmentAt,
}

impl SegmentHeader {
    pub(crate) fn encode(self, salt: u32) -> Vec<u8> {
        let mut to = Vec::with_capacity(BLOCK as usize);
        to.put_u32(SEGMENT_MAGIC);
        to.put_u32(salt);
        to.put_u64(self.number);
        put_segment(&mut to, self.next);
        let sum = crc32c::crc32c(&to);
        to.put_u32(sum);
        to.resize(BLOCK as usize, 0);
        to
    }

    /// The header, if these bytes are that of the segment of this number.
    pub(crate) fn decode(bytes: &[u8], salt: u32, number: u64) -> Option<Self> {
        let (of, found) = Self::any(bytes)?;
        (of == salt && found.number == number).then_some(found)
    }

    /// The header of whatever segment these bytes are of, and its salt.
    pub(crate) fn any(bytes: &[u8]) -> Option<(u32, Self)> {
        let mut take = Take::new(bytes);
        let body = bytes.get(..32)?;
        let (magic, salt, number) = (take.u32()?, take.u32()?, take.u64()?);
        let next = take_segment(&mut take)?;
        let is_one = magic == SEGMENT_MAGIC && take.u32()? == crc32c::crc32c(body);
        is_one.then_some((salt, Self { number, next }))
    }
}

/// The beginning of a chunk, the unit of writes to a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHeader {
    /// The segment that it is in.
    pub(crate) segment: u64,
    /// Block of the segment that it begins at.
    pub(crate) block: u32,
    /// Bytes of its records.
    pub(crate) len: u32,
    /// Records up to this one were durable when it was written.
    pub(crate) durable: u64,
}

impl ChunkHeader {
    /// Puts itself at the beginning of a chunk.
    pub(crate) fn encode(self, salt: u32, chunk: &mut [u8]) {
        let mut to = Vec::with_capacity(CHUNK_HEADER);
        to.put_u32(CHUNK_MAGIC);
        to.put_u32(salt);
        to.put_u64(self.segment);
        to.put_u32(self.block);
        to.put_u32(self.len);
        to.put_u64(self.durable);
        let sum = crc32c::crc32c(&to);
        to.put_u32(sum);
        chunk[..to.len()].copy_from_slice(&to);
    }

    pub(crate) fn decode(bytes: &[u8], salt: u32, segment: u64, block: u32) -> Option<Self> {
        Self::any(bytes, salt, block).filter(|found| found.segment == segment)
    }

    /// The header of a chunk of whatever segment, if these bytes are one at this block.
    pub(crate) fn any(bytes: &[u8], salt: u32, block: u32) -> Option<Self> {
        let mut take = Take::new(bytes);
        let body = bytes.get(..32)?;
        let (magic, of, segment, at) = (take.u32()?, take.u32()?, take.u64()?, take.u32()?);
        if (magic, of, at) != (CHUNK_MAGIC, salt, block) {
            return None;
        }
        let (len, durable) = (take.u32()?, take.u64()?);
        let fits = u64::from(block) * BLOCK + CHUNK_HEADER as u64 + u64::from(len) <= GROUP;
        (fits && take.u32()? == crc32c::crc32c(body)).then_some(Self { segment, block, len, durable })
    }
}

/// Ends a record that begins at `at` in `to`, where its header has room: with its number,
/// and a checksum that ties it to its segment.
pub(crate) fn seal_record(to: &mut [u8], at: usize, record: u64, salt: u32) {
    let len = (to.len() - at - RECORD_HEADER) as u32;
    to[at..at + 4].copy_from_slice(&len.to_le_bytes());
    to[at + 8..at + 16].copy_from_slice(&record.to_le_bytes());
    let sum = crc32c::crc32c_append(salt ^ len, &to[at + 8..]);
    to[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The next record in a chunk: its number and its bytes; `None` where nothing valid
/// follows.
pub(crate) fn open_record<'a>(take: &mut Take<'a>, salt: u32) -> Option<(u64, &'a [u8])> {
    let (len, sum) = (take.u32()?, take.u32()?);
    let mut rest = take.clone();
    let sealed = rest.take(8 + usize::try_from(len).ok()?)?;
    if crc32c::crc32c_append(salt ^ len, sealed) != sum {
        return None;
    }
    let record = take.u64()?;
    Some((record, take.take(len as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        let at = |group| SegmentAt { group, number: group * 7 };
        Superblock {
            uuid: *b"0123456789abcdef",
            blocks: 4096,
            generation: 3,
            made_ns: -1,
            written_ns: 5,
            is_clean: true,
            first_record: 99,
            next_ino: 100,
            next_segment: 101,
            image: at(4),
            image_records: 12,
            logs: (0..WORKERS_MAX as u64).map(at).collect(),
        }
    }

    #[test]
    fn headers_come_back_and_damage_is_noticed() {
        let block = superblock().encode();
        assert_eq!((block.len() as u64, Superblock::decode(&block)), (BLOCK, Ok(superblock())));
        for at in 0..1100 {
            let mut bad = block.clone();
            bad[at] ^= 4;
            assert!(Superblock::decode(&bad).is_err(), "{at}");
        }
        let header = SegmentHeader { number: 9, next: SegmentAt { group: 1, number: 2 } };
        let bytes = header.encode(77);
        assert_eq!(SegmentHeader::decode(&bytes, 77, 9), Some(header));
        assert_eq!(
            (SegmentHeader::decode(&bytes, 78, 9), SegmentHeader::decode(&bytes, 77, 8)),
            (None, None)
        );
    }

    #[test]
    fn records_are_read_up_to_the_first_that_is_torn() {
        let (mut bytes, salt) = (Vec::new(), 0x1234);
        for record in 5..8 {
            let at = bytes.len();
            bytes.resize(at + RECORD_HEADER, 0);
            bytes.extend_from_slice(&vec![record as u8; record as usize * 3]);
            seal_record(&mut bytes, at, record, salt);
        }
        let read = |bytes: &[u8]| {
            let mut take = Take::new(bytes);
            let mut found = Vec::new();
            while let Some((record, bytes)) = open_record(&mut take, salt) {
                assert_eq!(bytes, vec![record as u8; record as usize * 3]);
                found.push(record);
            }
            found
        };
        assert_eq!(read(&bytes), [5, 6, 7]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(read(&bytes), [5, 6]);
        assert_eq!(read(&bytes[..20]), [0; 0]);
    }
}
