//! What earlier images and logs say of inodes that the current ones lack. Their segments are
//! free, but many are not overwritten yet.

use super::current::{Current, Source, begins};
use super::segments::Segment;
use crate::inode::State;
use crate::record::{Change, Part, take_parts};
use std::collections::{BTreeMap, HashMap};

/// Most bytes of earlier logs that are kept in memory.
const BYTES_MAX: usize = 512 << 20;

/// The inodes that the current image and logs lack, as they were when they were last seen.
pub(super) fn older(source: Source<'_>, current: &Current) -> HashMap<u64, State> {
    let mut found = images(source, current);
    for (number, parts) in logs(source, current) {
        parts.into_iter().for_each(|part| apply(&mut found, number, part));
    }
    found
}

fn is_lacking(current: &Current, ino: u64) -> bool {
    !current.inodes.contains_key(&ino) && !current.ended.contains(&ino)
}

/// The newest state of each inode in earlier images, and in what may be left of one.
fn images(source: Source<'_>, current: &Current) -> HashMap<u64, State> {
    let era = &source.survey.era;
    let mut found: HashMap<u64, State> = HashMap::new();
    for segment in source.segments(|segment| segment.is_image) {
        let counts = era.has_image(segment);
        let chunks = source.chunks(segment).into_iter().filter(|chunk| chunk.is_loose || !counts);
        for record in chunks.flat_map(|chunk| chunk.records) {
            let parts = take_parts(&record.bytes).unwrap_or_default();
            for (ino, changes) in parts.into_iter().filter(|(ino, _)| is_lacking(current, *ino)) {
                describe(&mut found, record.number, ino, changes);
            }
        }
    }
    found
}

fn describe(found: &mut HashMap<u64, State>, version: u64, ino: u64, changes: Vec<Change>) {
    match found.get_mut(&ino) {
        Some(state) if state.version == version && !begins(&changes) => {
            state.apply(version, changes, &mut Vec::new());
        }
        Some(state) if state.version >= version => {}
        _ if begins(&changes) => {
            let mut state = State::default();
            state.apply(version, changes, &mut Vec::new());
            found.insert(ino, state);
        }
        _ => {}
    }
}

/// The changes in earlier logs of inodes that are lacking, by the numbers of the records. Where
/// it is not known which logs count, those are all logs.
fn logs(source: Source<'_>, current: &Current) -> BTreeMap<u64, Vec<Part>> {
    let era = &source.survey.era;
    let counts = |segment: &Segment| era.is_known() && era.has_log(segment);
    let wanted = source.segments(|segment| !segment.is_image && !counts(segment));
    let mut segments: Vec<&Segment> = wanted.collect();
    // The newest first: of two records of a number, theirs counts.
    segments.reverse();
    let (mut found, mut bytes) = (BTreeMap::new(), 0);
    for record in
        segments.into_iter().flat_map(|segment| source.chunks(segment)).flat_map(|chunk| chunk.records)
    {
        // Later ones were cut off by a crash.
        let is_earlier = !era.is_known() || record.number < era.first_record;
        if !is_earlier || found.contains_key(&record.number) || bytes > BYTES_MAX {
            continue;
        }
        let mut parts = take_parts(&record.bytes).unwrap_or_default();
        parts.retain(|(ino, _)| is_lacking(current, *ino));
        if !parts.is_empty() {
            bytes += record.bytes.len();
        }
        found.insert(record.number, parts);
    }
    found
}

fn apply(found: &mut HashMap<u64, State>, number: u64, (ino, changes): Part) {
    match found.get_mut(&ino) {
        Some(state) if state.version >= number => return,
        Some(state) => state.apply(number, changes, &mut Vec::new()),
        None if begins(&changes) => {
            let mut state = State::default();
            state.apply(number, changes, &mut Vec::new());
            found.insert(ino, state);
        }
        None => return,
    }
    if found.get(&ino).is_some_and(|state| state.is_gone) {
        found.remove(&ino);
    }
}
