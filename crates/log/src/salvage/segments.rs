//! Finds all segments of a device: those that the superblock leads to, and all others by
//! their marks, also those of earlier images and logs.

use super::chunks::{Group, read_lenient};
use crate::device::{BLOCK, Device};
use crate::layout::{ChunkHeader, GROUP, GROUP_BLOCKS, SegmentAt, SegmentHeader, Superblock};
use crate::scan::superblock_offsets;
use braid_contract::{Errno, Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// A segment, or what is left of it in a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) group: u64,
    pub(super) is_image: bool,
    /// The superblock leads to it.
    pub(super) is_linked: bool,
    /// Something of it is there, or has to be. Without that, it may have been taken for a
    /// chain to go on in, which did not get there.
    pub(super) is_begun: bool,
}

/// All segments of a device.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) salt: u32,
    /// Blocks that can be used: fewer than the superblock says on a device that was cut off.
    pub(super) blocks: u64,
    pub(super) superblock: Option<Superblock>,
    /// Copies of the superblock that can't be used, by their places.
    pub(super) bad_copies: Vec<u64>,
    /// In the order of their numbers.
    pub(super) segments: Vec<Segment>,
    pub(super) era: Era,
}

/// The segments that count, where nothing is damaged.
#[derive(Clone, Debug)]
pub(super) struct Era {
    image: Range<u64>,
    logs: Option<Vec<u64>>,
    /// The first record of the logs.
    pub(super) first_record: u64,
    /// How many records the image has.
    pub(super) image_records: Option<u64>,
}

impl Era {
    /// Numbers are given out in order: those of the logs when the logs before were cut, then
    /// those of the image, up to the one that the superblock says is next. So it follows from
    /// a segment's number whether it counts, without what leads to it.
    fn of(superblock: &Superblock) -> Self {
        Self {
            image: superblock.image.number..superblock.next_segment,
            logs: Some(superblock.logs.iter().map(|log| log.number).collect()),
            first_record: superblock.first_record,
            image_records: Some(superblock.image_records),
        }
    }

    /// Without a superblock, the newest image counts, and every log.
    fn newest(segments: &[Segment], nexts: &HashMap<u64, SegmentAt>) -> Self {
        let before: HashMap<u64, u64> = nexts.iter().map(|(number, next)| (next.number, *number)).collect();
        let images: BTreeSet<u64> =
            segments.iter().filter(|segment| segment.is_image).map(|segment| segment.number).collect();
        let last = images.last().copied().unwrap_or_default();
        let mut first = last;
        // Each is lower than the one behind it, so that this ends.
        while let Some(earlier) = before.get(&first).filter(|earlier| **earlier < first)
            && images.contains(earlier)
        {
            first = *earlier;
        }
        Self { image: first..last + 1, logs: None, first_record: 1, image_records: None }
    }

    pub(super) fn has_image(&self, segment: &Segment) -> bool {
        segment.is_image && self.image.contains(&segment.number)
    }

    pub(super) fn has_log(&self, segment: &Segment) -> bool {
        let is_later =
            |logs: &Vec<u64>| logs.contains(&segment.number) || logs.iter().all(|log| *log < segment.number);
        !segment.is_image && self.logs.as_ref().is_none_or(is_later)
    }

    /// Whether it is known which logs count.
    pub(super) fn is_known(&self) -> bool {
        self.logs.is_some()
    }
}

/// Finds all segments.
///
/// # Errors
/// `EINVAL` if there is no log file system, or one of another version; the device's error if it
/// can't be read at all.
pub(super) fn survey(device: &dyn Device) -> Result<Survey> {
    let (superblock, bad_copies) = superblocks(device)?;
    let on_device = device.size() / BLOCK;
    let blocks = superblock.as_ref().map_or(on_device, |found| found.blocks.min(on_device));
    let marks = Marks::find(device, blocks, superblock.as_ref().map(Superblock::salt));
    let Some(salt) = marks.salt else {
        return Err(no_log(device));
    };
    let linked = superblock.as_ref().map_or_else(Links::new, |found| links(device, blocks, found));
    let mut groups: BTreeSet<u64> = marks.groups;
    groups.extend(linked.keys().map(|(group, _)| *group));
    let (mut segments, mut nexts) = (Vec::new(), HashMap::new());
    for group in groups {
        let read = Group::read(device, group, salt);
        let header = read.header();
        nexts.extend(header.map(|header| (header.number, header.next)));
        let mut found = segments_of(&read, group, &linked);
        for segment in &mut found {
            segment.is_begun |= superblock.as_ref().is_some_and(|of| names(of, segment));
        }
        segments.append(&mut found);
    }
    segments.sort_unstable();
    let era = superblock.as_ref().map_or_else(|| Era::newest(&segments, &nexts), Era::of);
    Ok(Survey { salt, blocks, superblock, bad_copies, segments, era })
}

fn no_log(device: &dyn Device) -> Error {
    let mut block = vec![0; BLOCK as usize];
    match device.read_at(0, &mut block) {
        Err(error) if device.size() >= BLOCK => error,
        _ => Error::new(Errno::EINVAL, "there is no log file system, and nothing is left of one"),
    }
}

/// The superblock, and the places of copies that can't be used.
fn superblocks(device: &dyn Device) -> Result<(Option<Superblock>, Vec<u64>)> {
    let mut block = vec![0; BLOCK as usize];
    let (mut copies, mut bad, mut other) = (Vec::new(), Vec::new(), None);
    for offset in superblock_offsets(device.size()) {
        read_lenient(device, offset, &mut block);
        match Superblock::decode(&block) {
            Ok(copy) => copies.push(copy),
            Err(error) => {
                other = other.or(Superblock::is_of_other_version(&block).then_some(error));
                bad.push(offset);
            }
        }
    }
    let best = copies.into_iter().max_by_key(|copy| copy.generation);
    match other.filter(|_| best.is_none()) {
        Some(error) => Err(error),
        None => Ok((best, bad)),
    }
}

/// The groups that begin like segments.
struct Marks {
    /// The salt of most of them.
    salt: Option<u32>,
    groups: BTreeSet<u64>,
}

impl Marks {
    fn find(device: &dyn Device, blocks: u64, salt: Option<u32>) -> Self {
        let mut block = vec![0; 2 * BLOCK as usize];
        let mut found: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for group in 0..blocks / GROUP_BLOCKS {
            read_lenient(device, group * GROUP, &mut block);
            let header = SegmentHeader::any(&block).map(|(salt, _)| salt);
            let second = &block[BLOCK as usize..];
            let is_chunk = |salt: &u32| ChunkHeader::any(second, *salt, 1).is_some();
            let of = header.filter(|of| salt.is_none_or(|salt| salt == *of)).or(salt.filter(is_chunk));
            if let Some(of) = of {
                found.entry(of).or_default().insert(group);
            }
        }
        let most = found.into_iter().max_by_key(|(_, groups)| groups.len());
        let groups = most.as_ref().map_or_else(BTreeSet::new, |(_, groups)| groups.clone());
        Self { salt: salt.or(most.map(|(salt, _)| salt)), groups }
    }
}

/// The segments that the superblock leads to, as far as headers are sound: group, number, and
/// whether it is one of the image.
type Links = BTreeMap<(u64, u64), bool>;

fn links(device: &dyn Device, blocks: u64, superblock: &Superblock) -> Links {
    let mut linked = Links::new();
    let mut block = vec![0; BLOCK as usize];
    let logs = superblock.logs.iter().map(|log| (*log, false));
    for (start, is_image) in logs.chain([(superblock.image, true)]) {
        let mut at = start;
        while at.group < blocks / GROUP_BLOCKS && linked.insert((at.group, at.number), is_image).is_none() {
            read_lenient(device, at.offset(), &mut block);
            let Some(header) = SegmentHeader::decode(&block, superblock.salt(), at.number) else { break };
            at = header.next;
        }
    }
    linked
}

/// Whether the superblock itself names a segment.
fn names(superblock: &Superblock, segment: &Segment) -> bool {
    let at = SegmentAt { group: segment.group, number: segment.number };
    superblock.image == at || superblock.logs.contains(&at)
}

fn segments_of(read: &Group, group: u64, linked: &Links) -> Vec<Segment> {
    // Only in logs, chunks say that something was durable.
    let mut kinds: BTreeMap<u64, bool> =
        read.headers().iter().map(|chunk| (chunk.segment, chunk.durable == 0)).collect();
    for ((_, number), is_image) in linked.range((group, 0)..=(group, u64::MAX)) {
        kinds.entry(*number).or_insert(*is_image);
    }
    let segments = kinds.into_iter().map(|(number, is_image)| Segment {
        number,
        group,
        is_image,
        is_linked: linked.contains_key(&(group, number)),
        is_begun: read.header().is_some_and(|header| header.number == number)
            || read.headers().iter().any(|chunk| chunk.segment == number),
    });
    segments.collect()
}
