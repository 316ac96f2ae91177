//! What a crash may leave, and whether it did.
//!
//! An [`Expectation`] is made once for each moment at which the power goes, and
//! every crash state of that moment is held against it.

use super::history::{FileId, History, Moment, Names, Rules};
use super::op::Name;
use super::stamp::{self, Described, Source, WORD};
use super::tree::{Seen, SeenFile};
use braid_contract::{InodeId, Timestamp};

/// Bytes that a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// A stretch of a file all of whose bytes may come from the same writes.
#[derive(Debug)]
struct Stretch {
    start: u64,
    end: u64,
    /// Sorted.
    sources: Vec<Source>,
}

/// What may be left of one file.
#[derive(Debug)]
struct FileExpectation {
    id: FileId,
    ino: InodeId,
    size_min: u64,
    size_max: u64,
    mtime_min_ns: i64,
    /// Recovery may finish a truncation to nothing, at its own time.
    emptied: bool,
    stretches: Vec<Stretch>,
}

/// What a crash may leave.
#[derive(Debug)]
pub(crate) struct Expectation {
    names: Vec<Names>,
    files: Vec<FileExpectation>,
    mtime_max_ns: i64,
}

impl Expectation {
    /// What may be left if the power goes, or the process dies, at a moment.
    pub(crate) fn new(history: &History, moment: Moment, rules: Rules) -> Self {
        let names = history.legal_names(moment, rules);
        let visible = |id: FileId| names.iter().any(|names| names.contains(&Some(id)));
        let files = (0..history.next_file()).filter(|id| visible(*id));
        let loses_power = matches!(rules, Rules::PowerLoss { .. });
        Self {
            files: files.map(|id| expect_file(history, id, moment, loses_power)).collect(),
            names,
            mtime_max_ns: moment.clock_ns,
        }
    }

    /// The same for a crash of the recovery, which may leave its own time as a
    /// modification time: a size is set before the time is.
    pub(crate) fn and_recovery(mut self) -> Self {
        self.mtime_max_ns = i64::MAX;
        self
    }

    /// Holds what was recovered against what may be left; what is wrong, if
    /// something is.
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
                self.check_file(expected, file).map_err(|wrong| format!("{name} (file {id}): {wrong}"))?;
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
        for stretch in &expected.stretches {
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
    let size_max = sizes().max().unwrap_or(0);
    let mut cuts: Vec<u64> = versions.iter().flat_map(|content| content.boundaries()).chain([0]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let stretches = cuts.windows(2).filter(|pair| pair[0] < size_max).map(|pair| {
        let mut sources: Vec<Source> = versions.iter().map(|content| content.source_at(pair[0])).collect();
        sources.sort_unstable();
        sources.dedup();
        Stretch { start: pair[0], end: pair[1], sources }
    });
    FileExpectation {
        id,
        ino: file.ino,
        size_min: sizes().min().unwrap_or(0),
        size_max,
        mtime_min_ns: file.mtime_min_ns(moment, loses_power),
        emptied: versions[1..].iter().any(|content| content.size == 0),
        stretches: stretches.collect(),
    }
}
