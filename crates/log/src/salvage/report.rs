//! Tells what was wrong with a file system that was salvaged.

use std::collections::BTreeMap;
use std::fmt;

/// Most findings of a kind that are named each by itself.
pub const NAMED_MAX: usize = 50;

/// A kind of finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trouble {
    /// A copy of the superblock can't be used.
    Superblock,
    /// A place of an image or of a log is damaged.
    Place,
    /// A record of the image could not be read.
    ImageRecord,
    /// A record of the logs could not be read, or its data did not reach the device.
    LogRecord,
    /// Something is as an earlier image or log has it.
    Older,
    /// Something may lack a part.
    Lacking,
    /// Owner, permissions and times are not known.
    Attributes,
    /// An inode makes no sense.
    Inode,
    /// A name led to nothing, and was dropped.
    Name,
    /// Something has no name, and got one in `lost+found`.
    Unnamed,
    /// Blocks of a file belong to something else or do not exist, and were dropped.
    Blocks,
    /// A number of links was wrong.
    Links,
}

impl Trouble {
    /// The words before a number of findings of this kind, or one of them.
    fn text(self) -> &'static str {
        match self {
            Self::Superblock => "damaged copies of the superblock",
            Self::Place => "damaged places of the image and the logs",
            Self::ImageRecord => "records of the image that can't be read",
            Self::LogRecord => "records of the logs that can't be read, or lack their data",
            Self::Older => "inodes as they were at an earlier time",
            Self::Lacking => "inodes that may lack a part",
            Self::Attributes => "inodes that lost owner, permissions and times",
            Self::Inode => "inodes that make no sense",
            Self::Name => "dropped names, which led to nothing",
            Self::Unnamed => "inodes that lost their name, in lost+found",
            Self::Blocks => "dropped runs of blocks, which belong to something else or do not exist",
            Self::Links => "inodes with a wrong number of links",
        }
    }
}

/// The findings of a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// How many they are.
    pub count: u64,
    /// The first of them, up to [`NAMED_MAX`], each with its place.
    pub named: Vec<String>,
}

/// What was found when a file system was salvaged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// What was wrong, by its kind.
    pub wrong: BTreeMap<Trouble, Findings>,
    /// Inodes that can be read.
    pub inodes: u64,
    /// The name of the directory in the root that has what lost its name, if there is any.
    pub lost_and_found: Option<String>,
}

impl Salvaged {
    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty()
    }

    /// How many findings of a kind there are.
    #[must_use]
    pub fn count(&self, trouble: Trouble) -> u64 {
        self.wrong.get(&trouble).map_or(0, |findings| findings.count)
    }

    /// A line for each kind of finding.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.wrong.iter().map(|(trouble, findings)| format!("{trouble}: {}", findings.count)).collect()
    }

    /// Notes findings that have no place of their own.
    pub(super) fn count_up(&mut self, trouble: Trouble, count: u64) {
        if count > 0 {
            let findings = self.wrong.entry(trouble).or_default();
            findings.count = findings.count.saturating_add(count);
        }
    }

    /// Notes a finding, with words that are made only if it is one of the first.
    pub(super) fn note(&mut self, trouble: Trouble, text: impl FnOnce() -> String) {
        let findings = self.wrong.entry(trouble).or_default();
        findings.count = findings.count.saturating_add(1);
        if findings.named.len() < NAMED_MAX {
            findings.named.push(text());
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
