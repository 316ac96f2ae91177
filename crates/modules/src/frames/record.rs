//! The record of the whole file system, an extended attribute of its root: it names writes that may
//! not have reached the devices when power was lost (`docs/format.md`).

use braid_contract::{Caller, Errno, Error, FileSystem, InodeId, Result, XattrMode};
use std::ffi::OsStr;
use std::ops::RangeInclusive;

const MAGIC: [u8; 8] = *b"BRAIDREC";
const VERSION: u8 = 1;
const FIXED: usize = 64;
/// Most ranges of suspects.
const SUSPECTS_MAX: usize = 16;

/// Ranges of numbers, in order.
pub(crate) type Ranges = Vec<RangeInclusive<u64>>;

/// The record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// By chance, made with the record.
    pub(crate) instance: [u8; 16],
    /// Tells the key from others; zeros while there was none.
    pub(crate) key_check: [u8; 16],
    /// All writes with numbers up to this are durable, or suspects.
    pub(crate) settled: u64,
    /// No write has a higher number. If it is not the same, the mount has not ended yet.
    pub(crate) limit: u64,
    /// Numbers of writes that a crash may have torn.
    pub(crate) suspects: Ranges,
}

impl Record {
    pub(crate) fn new(instance: [u8; 16]) -> Self {
        Self { instance, key_check: [0; 16], settled: 0, limit: 0, suspects: Vec::new() }
    }

    /// The part of the instance that headers have.
    pub(crate) fn tag(&self) -> u32 {
        let [a, b, c, d, ..] = self.instance;
        u32::from_le_bytes([a, b, c, d])
    }

    /// The writes of a mount that did not end may be torn.
    pub(crate) fn suspect_the_unsettled(&mut self) {
        if self.settled < self.limit {
            self.suspect(self.settled + 1..=self.limit);
        }
        self.settled = self.limit;
    }

    /// These writes may be torn.
    pub(crate) fn suspect(&mut self, range: RangeInclusive<u64>) {
        add(&mut self.suspects, range);
        while self.suspects.len() > SUSPECTS_MAX {
            self.join_the_nearest();
        }
    }

    /// As few numbers as possible become suspects with them.
    fn join_the_nearest(&mut self) {
        let gap = |at: &usize| self.suspects[at + 1].start() - self.suspects[*at].end();
        if let Some(at) = (0..self.suspects.len() - 1).min_by_key(gap) {
            let next = self.suspects.remove(at + 1);
            self.suspects[at] = *self.suspects[at].start()..=*next.end();
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.suspects.len() as u8;
        bytes[16..32].copy_from_slice(&self.instance);
        bytes[32..48].copy_from_slice(&self.key_check);
        bytes[48..56].copy_from_slice(&self.settled.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.limit.to_le_bytes());
        for range in &self.suspects {
            bytes.extend(range.start().to_le_bytes());
            bytes.extend(range.end().to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut summed = bytes.to_vec();
        let crc = std::mem::take(summed.get_mut(12..16)?.first_chunk_mut::<4>()?);
        let (fixed, rest) = bytes.split_at_checked(FIXED)?;
        let (ranges, odd) = rest.as_chunks::<16>();
        let is_ours = fixed[..8] == MAGIC
            && fixed[8] == VERSION
            && usize::from(fixed[9]) == ranges.len()
            && odd.is_empty()
            && crc32c::crc32c(&summed).to_le_bytes() == crc;
        let word = |from: &[u8]| from.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let range = |bytes: &[u8; 16]| Some(word(bytes)?..=word(&bytes[8..])?);
        let record = Self {
            instance: *fixed[16..].first_chunk()?,
            key_check: *fixed[32..].first_chunk()?,
            settled: word(&fixed[48..])?,
            limit: word(&fixed[56..])?,
            suspects: ranges.iter().map(range).collect::<Option<_>>()?,
        };
        is_ours.then_some(record)
    }
}

/// Adds a range to others. They stay in order, and those that touch become one.
pub(crate) fn add(ranges: &mut Ranges, range: RangeInclusive<u64>) {
    ranges.push(range);
    ranges.sort_by_key(|range| *range.start());
    ranges.dedup_by(|next, last| {
        let touches = *next.start() <= last.end().saturating_add(1);
        if touches {
            *last = *last.start()..=*last.end().max(next.end());
        }
        touches
    });
}

/// Names of the extended attributes: of the root's record, and of a file's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    pub(crate) record: &'static str,
    pub(crate) head: &'static str,
}

/// For the superuser, and for others, who can't have the first.
pub(crate) const ATTRIBUTES: [Attributes; 2] = [
    Attributes { record: "trusted.braid-frames", head: "trusted.braid-frame" },
    Attributes { record: "user.braid-frames", head: "user.braid-frame" },
];

/// Whether an attribute is one of the module's.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    ATTRIBUTES.iter().any(|names| name == names.record.as_bytes() || name == names.head.as_bytes())
}

/// The record of a file system, and under which names its attributes are; `None` for
/// one that has none.
pub(crate) fn find(child: &dyn FileSystem) -> Result<Option<(Attributes, Record)>> {
    for names in ATTRIBUTES {
        match child.getxattr(&Caller::stack(), InodeId::ROOT, OsStr::new(names.record)) {
            Ok(bytes) => {
                let record = Record::decode(&bytes).ok_or_else(|| {
                    let message = format!("the attribute {} of the root is damaged", names.record);
                    Error::new(Errno::EUCLEAN, message)
                })?;
                return Ok(Some((names, record)));
            }
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EPERM) => {}
            Err(error) => return Err(error.context("the attributes of the root can't be read")),
        }
    }
    Ok(None)
}

/// Stores the record. `None` for the names: those that the file system has.
pub(crate) fn store(
    child: &dyn FileSystem,
    names: Option<Attributes>,
    record: &Record,
) -> Result<Attributes> {
    let bytes = record.encode();
    let set = |names: Attributes| {
        let name = OsStr::new(names.record);
        child.setxattr(&Caller::stack(), InodeId::ROOT, name, &bytes, XattrMode::Set).map(|()| names)
    };
    let stored = match names {
        Some(names) => set(names),
        None => set(ATTRIBUTES[0]).or_else(|_| set(ATTRIBUTES[1])),
    };
    stored.map_err(|error| error.context("the record of frames can't be kept at the root"))
}

/// Makes the stored record durable.
pub(crate) fn make_durable(child: &dyn FileSystem) -> Result<()> {
    let caller = Caller::stack();
    let root = child.open_dir(&caller, InodeId::ROOT)?;
    let synced = child.sync_dir(&caller, root);
    child.release_dir(root)?;
    synced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_was_encoded_and_damage_is_told() {
        let mut record = Record { settled: 5, limit: 90, key_check: [2; 16], ..Record::new([1; 16]) };
        record.suspect_the_unsettled();
        record.limit = 200;
        assert_eq!((record.settled, &record.suspects[..]), (90, &[6..=90][..]));
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(Record::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(Record::decode(&bytes[..70]), None);
    }

    #[test]
    fn many_crashes_come_to_few_ranges() {
        let mut record = Record::new([0; 16]);
        for crash in 0..40 {
            record.limit = crash * 100 + 50;
            record.suspect_the_unsettled();
            record.settled = crash * 100 + 99;
        }
        assert_eq!(record.suspects.len(), SUSPECTS_MAX);
        assert_eq!(record.suspects.first(), Some(&(1..=2450)));
        assert_eq!(record.suspects.last(), Some(&(3900..=3950)));
    }

    #[test]
    fn where_there_is_no_room_the_nearest_ranges_become_one() {
        let mut record = Record::new([0; 16]);
        let starts = (0..SUSPECTS_MAX as u64).map(|at| at * 1000);
        starts.for_each(|start| record.suspect(start..=start + 9));
        record.suspect(7050..=7059);
        assert_eq!(record.suspects.len(), SUSPECTS_MAX);
        assert_eq!(record.suspects[..2], [0..=9, 1000..=1009]);
        assert_eq!(record.suspects[7..9], [7000..=7059, 8000..=8009]);
        // Those that touch take no room.
        record.suspect(8010..=8500);
        assert_eq!(record.suspects[7..10], [7000..=7059, 8000..=8500, 9000..=9009]);
    }
}
