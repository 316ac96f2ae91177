//! The possible results of a crash, and the comparison with the actual one.
//!
//! An [`Expectation`] is made once for each moment at which the power goes, and
//! every crash state of that moment is compared with it.

use super::content::Content;
use super::history::{Attributes, FileId, History, Moment, Names, Rules};
use super::op::Name;
use super::stamp::{self, Described, Source, WORD};
use super::tree::{Seen, SeenFile};
use braid_contract::{InodeId, Timestamp};
use std::rc::Rc;

/// Bytes that a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// A stretch of a file with the same possible writes for all of its bytes.
#[derive(Clone, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    /// Sorted.
    sources: Vec<Source>,
}

/// The possible states of one file.
#[derive(Clone, Debug)]
struct FileExpectation {
    id: FileId,
    ino: InodeId,
    size_min: u64,
    size_max: u64,
    mtime_min_ns: i64,
    /// Recovery may finish a truncation to nothing, at its own time.
    emptied: bool,
    attributes: Vec<Attributes>,
    /// By size, the smallest first; there is one.
    eras: Vec<Era>,
}

/// The possible contents of a file that is larger than `above`. A size that it
/// had only after a truncation proves that: the truncated data must not be
/// there again.
#[derive(Clone, Debug)]
struct Era {
    above: u64,
    stretches: Vec<Stretch>,
}

/// The possible results of a crash; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    names: Rc<Vec<Names>>,
    files: Rc<Vec<FileExpectation>>,
    mtime_max_ns: i64,
}

impl Expectation {
    /// The possible states if the power goes, or the process dies, at a moment.
    pub(crate) fn new(history: &History, moment: Moment, rules: Rules) -> Self {
        let names = history.legal_names(moment, rules);
        let visible = |id: FileId| names.iter().any(|names| names.contains(&Some(id)));
        let files = (0..history.next_file()).filter(|id| visible(*id));
        let loses_power = matches!(rules, Rules::PowerLoss { .. });
        let files = files.map(|id| expect_file(history, id, moment, loses_power)).collect();
        Self { files: Rc::new(files), names: Rc::new(names), mtime_max_ns: moment.clock_ns }
    }

    /// The same for a crash of the recovery, which may leave its own time as a
    /// modification time: a size is set before the time is.
    pub(crate) fn and_recovery(&self) -> Self {
        Self { mtime_max_ns: i64::MAX, ..self.clone() }
    }

    /// The same, whatever the modification times are.
    pub(crate) fn without_times(mut self) -> Self {
        self.mtime_max_ns = i64::MAX;
        Rc::make_mut(&mut self.files).iter_mut().for_each(|file| file.mtime_min_ns = i64::MIN);
        self
    }

    /// Compares the recovered state with the expectation; answers the
    /// difference, if any.
    pub(crate) fn check(&self, seen: &Seen) -> Result<(), String> {
        let mut candidates = self.names.iter().filter(|names| self.agrees(names, seen)).peekable();
        if candidates.peek().is_none() {
            return Err(format!(
                "the names are {}; legal would be {}",
                seen.describe(),
                self.describe_names()
            ));
        }
        // An inode number may have been used twice: then one of the files that
        // had it must fit.
        let mut wrong = Ok(());
        for names in candidates {
            wrong = self.check_files(names, seen);
            if wrong.is_ok() {
                break;
            }
        }
        wrong
    }

    fn agrees(&self, names: &Names, seen: &Seen) -> bool {
        Name::ALL.into_iter().all(|name| match (names[name.at()], seen.file(name)) {
            (None, None) => true,
            (Some(id), Some(file)) => self.file(id).is_some_and(|expected| expected.ino == file.ino),
            _ => false,
        })
    }

    fn file(&self, id: FileId) -> Option<&FileExpectation> {
        self.files.iter().find(|file| file.id == id)
    }

    fn check_files(&self, names: &Names, seen: &Seen) -> Result<(), String> {
        for name in Name::ALL {
            if let (Some(id), Some(file)) = (names[name.at()], seen.file(name))
                && let Some(expected) = self.file(id)
            {
                let links = names.iter().filter(|other| **other == Some(id)).count();
                self.check_file(expected, file)
                    .and_then(|()| expected.check_inode(file, links))
                    .map_err(|wrong| format!("{name} (file {id}): {wrong}"))?;
            }
        }
        Ok(())
    }

    fn check_file(&self, expected: &FileExpectation, file: &SeenFile) -> Result<(), String> {
        if !(expected.size_min..=expected.size_max).contains(&file.size) {
            let (min, max) = (expected.size_min, expected.size_max);
            return Err(format!("its size is {}; legal would be {min} to {max}", file.size));
        }
        let mtime = nanoseconds(file.mtime);
        let max = if expected.emptied && file.size == 0 { i64::MAX } else { self.mtime_max_ns };
        if !(expected.mtime_min_ns..=max).contains(&mtime) {
            let min = expected.mtime_min_ns;
            return Err(format!("its modification time is {mtime}; legal would be {min} to {max}"));
        }
        let bytes = &file.bytes;
        let era = expected.eras.iter().rfind(|era| era.above < file.size || era.above == 0);
        for stretch in era.map_or(&[][..], |era| &era.stretches) {
            let end = stretch.end.min(bytes.len() as u64);
            if stretch.start < end {
                expected.check_stretch(stretch, &bytes[stretch.start as usize..end as usize])?;
            }
        }
        Ok(())
    }

    fn describe_names(&self) -> String {
        let describe = |names: &Names| {
            let parts = Name::ALL.into_iter().filter_map(|name| {
                let id = names[name.at()]?;
                Some(format!("{name} (inode {})", self.file(id).map_or(0, |file| file.ino.0)))
            });
            format!("[{}]", parts.collect::<Vec<_>>().join(", "))
        };
        self.names.iter().map(describe).collect::<Vec<_>>().join(" or ")
    }
}

impl FileExpectation {
    fn check_inode(&self, file: &SeenFile, links: usize) -> Result<(), String> {
        if file.links as usize != links {
            return Err(format!("it says that it has {} names, and has {links}", file.links));
        }
        if !self.attributes.contains(&file.attributes) {
            return Err(format!("it has {:?}; legal would be {:?}", file.attributes, self.attributes));
        }
        Ok(())
    }

    fn check_stretch(&self, stretch: &Stretch, bytes: &[u8]) -> Result<(), String> {
        let first = stamp::source(word_at(bytes, 0), self.id, stretch.start);
        if let Some(source) = first
            && stretch.sources.contains(&source)
            && stamp::all_from(bytes, self.id, source, stretch.start)
        {
            return Ok(());
        }
        let mut at = stretch.start;
        let end = stretch.start + bytes.len() as u64;
        while at < end {
            // Within a sector, all is from the same write.
            let sector_end = (at / SECTOR + 1) * SECTOR;
            let sector_end = sector_end.min(end);
            let sector = &bytes[(at - stretch.start) as usize..(sector_end - stretch.start) as usize];
            self.check_sector(stretch, at, sector)?;
            at = sector_end;
        }
        Ok(())
    }

    fn check_sector(&self, stretch: &Stretch, at: u64, sector: &[u8]) -> Result<(), String> {
        let first = stamp::source(word_at(sector, 0), self.id, at).filter(|s| stretch.sources.contains(s));
        if first.is_some_and(|source| stamp::all_from(sector, self.id, source, at)) {
            return Ok(());
        }
        let wrong = |word: &usize| {
            stamp::source(word_at(sector, *word), self.id, at + *word as u64)
                .is_none_or(|source| Some(source) != first)
        };
        let word = (0..sector.len()).step_by(WORD as usize).find(wrong).unwrap_or(0);
        // The sector survived, and the size that reached beyond did not.
        let ends = || stamp::all_from(&sector[word..], self.id, 0, at + word as u64);
        if first.is_some() && stretch.sources.contains(&0) && ends() {
            return Ok(());
        }
        let found = Described(word_at(sector, word));
        let legal: Vec<String> = match first {
            Some(_) if word > 0 => vec!["the same as in the rest of its sector".into()],
            _ => stretch.sources.iter().map(|source| describe_source(*source)).collect(),
        };
        Err(format!("at {} there is {found}; legal would be {}", at + word as u64, legal.join(" or ")))
    }
}

fn describe_source(source: Source) -> String {
    match source {
        0 => "zeros".into(),
        source => format!("what step {} wrote", source - 1),
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    stamp::read(&bytes[at..bytes.len().min(at + WORD as usize)])
}

fn nanoseconds(time: Timestamp) -> i64 {
    time.secs * 1_000_000_000 + i64::from(time.nanos)
}

fn expect_file(history: &History, id: FileId, moment: Moment, loses_power: bool) -> FileExpectation {
    let file = &history.files[usize::from(id)];
    let versions: Vec<_> = file.window(moment, loses_power).map(|version| &version.content).collect();
    let sizes = || versions.iter().map(|content| content.size);
    FileExpectation {
        id,
        ino: file.ino,
        size_min: sizes().min().unwrap_or(0),
        size_max: sizes().max().unwrap_or(0),
        mtime_min_ns: file.mtime_min_ns(moment, loses_power),
        emptied: versions.iter().any(|content| content.size == 0),
        attributes: file.legal_attributes(moment, loses_power),
        eras: match file.is_in_doubt(moment, loses_power) {
            // It may or may not have been truncated in between.
            true => eras(&versions)[..1].to_vec(),
            false => eras(&versions),
        },
    }
}

fn eras(versions: &[&Content]) -> Vec<Era> {
    let mut cuts: Vec<u64> = versions.iter().flat_map(|content| content.boundaries()).chain([0]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut eras = vec![Era { above: 0, stretches: stretches(&cuts, versions, 0) }];
    let mut largest = 0;
    for (at, pair) in versions.windows(2).enumerate() {
        largest = largest.max(pair[0].size);
        if pair[1].size < pair[0].size {
            eras.push(Era { above: largest, stretches: stretches(&cuts, versions, at + 1) });
        }
    }
    eras
}

/// The possible contents by place, given that all changes of size up to version
/// `certain` came about.
fn stretches(cuts: &[u64], versions: &[&Content], certain: usize) -> Vec<Stretch> {
    let stretch = |pair: &[u64]| {
        // Before the last cut that took it away, it was something else.
        let gone = versions[1..=certain].iter().rposition(|content| content.size <= pair[0]);
        let first = gone.map_or(0, |at| at + 1);
        let mut sources: Vec<Source> =
            versions[first..].iter().map(|content| content.source_at(pair[0])).collect();
        sources.sort_unstable();
        sources.dedup();
        Stretch { start: pair[0], end: pair[1], sources }
    };
    cuts.windows(2).map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::super::stamp::fill;
    use super::*;
    use braid_contract::InodeId;

    const POWER: Rules = Rules::PowerLoss { ordered: true, fsync_names: true };

    /// A file `a` of one version after another, the first one synced.
    fn history(sizes_and_writes: &[(u64, Option<(u64, u64)>)]) -> History {
        let mut history = History::default();
        let file = history.born(0, InodeId(7), 0);
        history.renamed(0, vec![(Name::A, Some(file))], true);
        let mut content = Content::default();
        for (step, (size, write)) in (1..).zip(sizes_and_writes) {
            content.set_size(*size);
            if let Some((at, len)) = write {
                content.write(*at, *len, step as Source + 1);
            }
            history.changed(step, file, content.clone(), None, None);
            if step == 1 {
                history.all_synced(step);
            }
        }
        history
    }

    /// A result, as stretches of `len` bytes from a step, or of zeros.
    fn seen(stretches: &[(u64, Option<u16>)]) -> Seen {
        let mut bytes = Vec::new();
        for (len, step) in stretches {
            let at = bytes.len();
            bytes.resize(at + *len as usize, 0);
            if let Some(step) = step {
                fill(&mut bytes[at..], 0, step + 1, at as u64);
            }
        }
        let size = bytes.len() as u64;
        let (mtime, attributes) = (Timestamp::default(), Attributes::NEW);
        Seen::of(Name::A, SeenFile { ino: InodeId(7), size, mtime, links: 1, attributes, bytes })
    }

    fn check(history: &History, rules: Rules, seen: &Seen) -> Result<(), String> {
        let moment = Moment { done: 10, in_flight: false, clock_ns: 100 };
        Expectation::new(history, moment, rules).check(seen)
    }

    #[test]
    fn synced_data_must_be_there_and_later_data_may() {
        let history = history(&[(1024, Some((0, 1024))), (1024, Some((512, 1024)))]);
        for legal in [
            &[(1024, Some(1))][..],
            &[(512, Some(1)), (1024, Some(2))],
            &[(1024, Some(1)), (512, Some(2))],
            &[(512, Some(1)), (512, Some(2)), (512, None)],
        ] {
            assert_eq!(check(&history, POWER, &seen(legal)), Ok(()));
        }
        for illegal in [
            &[(512, Some(1))][..],
            &[(512, None), (512, Some(1))],
            &[(2048, Some(1))],
            &[(512, Some(2)), (512, Some(1))],
            &[(256, Some(1)), (256, None), (512, Some(1))],
        ] {
            assert!(check(&history, POWER, &seen(illegal)).is_err(), "{illegal:?}");
        }
        let all = seen(&[(512, Some(1)), (1024, Some(2))]);
        assert_eq!(check(&history, Rules::ProcessCrash, &all), Ok(()));
        assert!(check(&history, Rules::ProcessCrash, &seen(&[(1024, Some(1))])).is_err());
    }

    #[test]
    fn within_a_sector_all_is_from_the_same_write() {
        let history = history(&[(1024, Some((0, 1024))), (1024, Some((0, 1024)))]);
        assert_eq!(check(&history, POWER, &seen(&[(512, Some(1)), (512, Some(2))])), Ok(()));
        let torn = check(&history, POWER, &seen(&[(256, Some(1)), (768, Some(2))]));
        assert!(torn.unwrap_err().contains("the same as in the rest of its sector"));
    }

    #[test]
    fn a_sector_may_end_with_a_size_that_survived() {
        let history = history(&[(1024, None), (1024, Some((0, 1024)))]);
        assert_eq!(check(&history, POWER, &seen(&[(256, Some(2)), (768, None)])), Ok(()));
        assert!(check(&history, POWER, &seen(&[(256, None), (768, Some(2))])).is_err());
    }

    #[test]
    fn what_was_cut_off_is_not_there_in_a_larger_file() {
        let history = history(&[(2048, Some((0, 2048))), (512, None), (4096, None)]);
        let kept = seen(&[(2048, Some(1))]);
        assert_eq!(check(&history, POWER, &kept), Ok(()), "the cut may be lost");
        let grown = seen(&[(512, Some(1)), (3584, None)]);
        assert_eq!(check(&history, POWER, &grown), Ok(()));
        let stale = seen(&[(2048, Some(1)), (2048, None)]);
        assert!(
            check(&history, POWER, &stale)
                .unwrap_err()
                .starts_with("a (file 0): at 512 there is what step 1")
        );
    }

    #[test]
    fn links_and_attributes_are_held_against_the_book() {
        let mut history = history(&[(512, Some((0, 512)))]);
        let (synced, later) =
            (Attributes::NEW, Attributes { mode: 0o600, xattr: Some(1), ..Attributes::NEW });
        history.attributes_set(2, 0, later);
        let with = |links, attributes| {
            let mut seen = seen(&[(512, Some(1))]);
            let file = seen.file_mut(Name::A).unwrap();
            (file.links, file.attributes) = (links, attributes);
            seen
        };
        for legal in [synced, later] {
            assert_eq!(check(&history, POWER, &with(1, legal)), Ok(()));
        }
        let mixed = Attributes { xattr: None, ..later };
        assert!(check(&history, POWER, &with(1, mixed)).unwrap_err().contains("legal would be"));
        assert!(check(&history, POWER, &with(2, later)).unwrap_err().contains("says that it has 2 names"));
        assert!(check(&history, Rules::ProcessCrash, &with(1, synced)).is_err());
        history.all_synced(3);
        assert!(check(&history, POWER, &with(1, synced)).is_err());
    }

    #[test]
    fn what_a_tier_failed_in_may_have_come_about_in_part() {
        let mut history = history(&[(1024, Some((0, 1024)))]);
        let mut content = history.content(0).clone();
        content.write(0, 2048, 4);
        history.failed(3, 0, content);
        for rules in [POWER, Rules::ProcessCrash] {
            for legal in [
                &[(1024, Some(1))][..],
                &[(512, Some(3)), (512, Some(1))],
                &[(512, Some(1)), (1536, Some(3))],
            ] {
                assert_eq!(check(&history, rules, &seen(legal)), Ok(()), "{legal:?}");
            }
            assert!(check(&history, rules, &seen(&[(512, None), (512, Some(1))])).is_err());
            assert!(check(&history, rules, &seen(&[(512, Some(1))])).is_err());
        }
    }

    #[test]
    fn names_and_times_are_held_against_the_book() {
        let history = history(&[(512, Some((0, 512)))]);
        assert!(check(&history, POWER, &Seen::default()).unwrap_err().starts_with("the names are []"));
        let mut late = seen(&[(512, Some(1))]);
        late.file_mut(Name::A).unwrap().mtime.nanos = 101;
        assert!(check(&history, POWER, &late).unwrap_err().contains("modification time"));
    }
}
