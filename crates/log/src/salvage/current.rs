//! The inodes as the image and the logs that count have them, as far as these can be read.

use super::chunks::{Chunk, Group};
use super::report::{Salvaged, Trouble};
use super::segments::{Segment, Survey};
use crate::device::{BLOCK, Device};
use crate::inode::State;
use crate::layout::GROUP;
use crate::load::{has_data, written};
use crate::record::{Change, Part, take_parts};
use braid_contract::FileKind;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Bytes from which on a record may be one of several that describe an inode in an image.
const PORTION_LEAST: usize = 8 << 10;

/// The place that everything is read from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) survey: &'a Survey,
    /// Groups whose segments are not used.
    pub(super) without: &'a HashSet<u64>,
    /// Only segments that the superblock leads to.
    pub(super) linked_only: bool,
}

impl<'a> Source<'a> {
    /// The segments of a kind.
    pub(super) fn segments(
        self,
        wanted: impl Fn(&Segment) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Segment> + 'a {
        self.survey.segments.iter().filter(move |segment| {
            let is_used = segment.is_linked || !self.linked_only && !self.without.contains(&segment.group);
            is_used && wanted(segment)
        })
    }

    pub(super) fn group(self, segment: &Segment) -> Group {
        Group::read(self.device, segment.group, self.survey.salt)
    }

    /// The chunks of a segment.
    pub(super) fn chunks(self, segment: &Segment) -> Vec<Chunk> {
        let mut chunks = self.group(segment).chunks();
        chunks.retain(|chunk| chunk.segment == segment.number);
        chunks
    }
}

/// Changes of an inode whose beginning is not known.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// That of an image's records; 0 if there are none.
    pub(super) version: u64,
    pub(super) changes: Vec<Change>,
}

/// The inodes, and what is missing.
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) inodes: BTreeMap<u64, State>,
    pub(super) partial: BTreeMap<u64, Partial>,
    /// Inodes that were removed.
    pub(super) ended: HashSet<u64>,
    /// Inodes that may lack a part.
    pub(super) lacking: BTreeSet<u64>,
    /// Groups of the segments.
    pub(super) groups: BTreeSet<u64>,
    /// The last record of the logs.
    pub(super) last_record: u64,
    /// Records of the image that could not be read.
    pub(super) image_missing: u64,
    /// Records of the logs that could not be read, or lack their data.
    pub(super) log_missing: u64,
    /// What is known only if records of the image are missing: inodes whose last record ends
    /// a segment.
    at_ends: BTreeSet<u64>,
    durable: u64,
    /// Damaged places, as bytes of the device.
    places: BTreeSet<u64>,
}

/// The inode whose record was read last, and whether more records of it may follow.
type Before = Option<(u64, bool)>;

impl Current {
    /// Reads the image and the logs that count.
    pub(super) fn read(source: Source<'_>) -> Self {
        let mut found = Self::default();
        found.read_image(source);
        let first = found.first_record(source);
        let records = found.read_logs(source);
        found.play(source, records, first);
        found
    }

    /// Whether nothing is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.image_missing == 0 && self.log_missing == 0
    }

    /// Tells the damaged places.
    pub(super) fn tell(&self, salvaged: &mut Salvaged) {
        for place in &self.places {
            salvaged.note(Trouble::Place, || format!("at byte {place} of the device"));
        }
        salvaged.count_up(Trouble::ImageRecord, self.image_missing);
        salvaged.count_up(Trouble::LogRecord, self.log_missing);
    }

    /// Records of new inodes have this number, or a higher one.
    fn first_record(&self, source: Source<'_>) -> u64 {
        let era = &source.survey.era;
        if era.is_known() {
            return era.first_record;
        }
        // Earlier ones that the image lacks were mostly removed before.
        self.inodes.values().map(|state| state.version).max().unwrap_or(0)
    }

    fn read_image(&mut self, source: Source<'_>) {
        let era = &source.survey.era;
        let (mut read, mut before) = (0, None);
        for segment in source.segments(|segment| era.has_image(segment)) {
            self.begin_segment(source, segment);
            for chunk in source.chunks(segment).into_iter().filter(|chunk| !chunk.is_loose) {
                read += self.read_image_chunk(segment, chunk, &mut before);
            }
            self.at_ends.extend(before.filter(|(_, goes_on)| *goes_on).map(|(ino, _)| ino));
        }
        self.image_missing = era.image_records.map_or(0, |wanted| wanted.saturating_sub(read));
        if self.image_missing > 0 {
            self.lacking.append(&mut self.at_ends);
        }
    }

    /// Notes a segment, and whether its header is damaged.
    fn begin_segment(&mut self, source: Source<'_>, segment: &Segment) {
        self.groups.insert(segment.group);
        let is_damaged = source.group(segment).header().is_none_or(|header| header.number != segment.number);
        if segment.is_begun && is_damaged {
            self.places.insert(segment.group * GROUP);
        }
    }

    /// Applies the records of a chunk of the image; returns how many they are.
    fn read_image_chunk(&mut self, segment: &Segment, chunk: Chunk, before: &mut Before) -> u64 {
        let place = segment.group * GROUP + chunk.block * BLOCK;
        let mut read = 0;
        for record in chunk.records {
            if record.after_damage {
                self.gap(place, before);
            }
            let Some(parts) = take_parts(&record.bytes) else {
                self.gap(place, before);
                continue;
            };
            read += 1;
            for (ino, changes) in parts {
                let goes_on = record.bytes.len() > PORTION_LEAST || lacks_content(&changes);
                if record.after_damage && !begins(&changes) {
                    self.lacking.insert(ino);
                }
                *before = Some((ino, goes_on));
                self.describe(record.number, ino, changes);
            }
        }
        if chunk.ends_damaged {
            self.gap(place, before);
        }
        read
    }

    /// Something is missing at this place.
    fn gap(&mut self, place: u64, before: &Before) {
        self.places.insert(place);
        self.lacking.extend(before.filter(|(_, goes_on)| *goes_on).map(|(ino, _)| ino));
    }

    /// Takes a record of the image.
    fn describe(&mut self, version: u64, ino: u64, changes: Vec<Change>) {
        match self.inodes.get_mut(&ino) {
            Some(state) if state.version > version => {}
            Some(state) if state.version == version && !begins(&changes) => {
                state.apply(version, changes, &mut Vec::new());
            }
            _ if begins(&changes) => {
                let mut state = State::default();
                state.apply(version, changes, &mut Vec::new());
                self.inodes.insert(ino, state);
            }
            _ => {
                let partial = self.partial.entry(ino).or_default();
                partial.version = version;
                partial.changes.extend(changes);
            }
        }
    }

    /// The records of the logs, by their numbers.
    fn read_logs(&mut self, source: Source<'_>) -> BTreeMap<u64, Vec<u8>> {
        let era = &source.survey.era;
        let (mut firm, mut loose) = (BTreeMap::new(), BTreeMap::new());
        for segment in source.segments(|segment| era.has_log(segment)) {
            self.begin_segment(source, segment);
            for chunk in source.chunks(segment) {
                self.durable = self.durable.max(chunk.durable.unwrap_or(0));
                let place = segment.group * GROUP + chunk.block * BLOCK;
                let is_damaged = chunk.ends_damaged || chunk.records.iter().any(|found| found.after_damage);
                if is_damaged && !chunk.is_loose {
                    self.places.insert(place);
                }
                let to = if chunk.is_loose { &mut loose } else { &mut firm };
                let records = chunk.records.into_iter().filter(|found| found.number >= era.first_record);
                // Of two records of a number, that of the later segment counts: the other one
                // was cut off by a crash.
                to.extend(records.map(|found| (found.number, found.bytes)));
            }
        }
        let durable = self.durable;
        for (number, bytes) in loose.into_iter().filter(|(number, _)| *number <= durable) {
            firm.entry(number).or_insert(bytes);
        }
        firm
    }

    /// Applies records of the logs, also those behind one that is missing.
    fn play(&mut self, source: Source<'_>, records: BTreeMap<u64, Vec<u8>>, first: u64) {
        let era = &source.survey.era;
        let last = records.keys().next_back().copied().unwrap_or(0).max(self.durable);
        self.last_record = last.max(era.first_record.saturating_sub(1));
        if era.is_known() {
            let wanted = self.last_record.saturating_add(1).saturating_sub(era.first_record);
            self.log_missing = wanted.saturating_sub(records.len() as u64);
        }
        for (number, bytes) in records {
            let parts = take_parts(&bytes).filter(|parts| self.has_its_data(source, number, parts));
            match parts {
                Some(parts) => parts.into_iter().for_each(|part| self.apply(number, part, first)),
                None => self.log_missing += 1,
            }
        }
    }

    /// Whether the data that a record refers to is on the device. That of those that were durable is.
    fn has_its_data(&self, source: Source<'_>, number: u64, parts: &[Part]) -> bool {
        number <= self.durable
            || has_data(source.device, parts, &written(parts)).is_ok_and(|is_there| is_there)
    }

    fn apply(&mut self, number: u64, (ino, changes): Part, first: u64) {
        if self.ended.contains(&ino) {
            return;
        }
        let ends = changes.iter().any(|change| matches!(change, Change::End));
        match self.inodes.get_mut(&ino) {
            Some(state) if state.version >= number => return,
            Some(state) => state.apply(number, changes, &mut Vec::new()),
            None if begins(&changes) && number >= first => {
                let mut state = State::default();
                state.apply(number, changes, &mut Vec::new());
                self.inodes.insert(ino, state);
            }
            None if begins(&changes) => return,
            None => {
                let partial = self.partial.entry(ino).or_default();
                if number > partial.version {
                    partial.changes.extend(changes);
                }
            }
        }
        if ends {
            self.inodes.remove(&ino);
            self.partial.remove(&ino);
            self.ended.insert(ino);
        }
    }
}

pub(super) fn begins(changes: &[Change]) -> bool {
    matches!(changes.first(), Some(Change::Begin(_)))
}

/// Whether a record of an image begins an inode whose content has to follow.
fn lacks_content(changes: &[Change]) -> bool {
    let Some(Change::Begin(begin)) = changes.first() else { return false };
    let has_content =
        changes.iter().any(|change| matches!(change, Change::Inline(_) | Change::Map(_) | Change::Target(_)));
    let kind = FileKind::from_mode(begin.mode);
    matches!(kind, Some(FileKind::Regular | FileKind::Symlink)) && !has_content
}
