//! What is known of a job, and how it is written to `.braid/jobs/<id>`
//! (`docs/format.md`): a line with version and checksum, then JSON.

use crate::format::FormatError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a job's file begins with, before the version.
const MAGIC: &str = "braid-job";
const VERSION: u16 = 1;

/// What a job moves, and where to. Paths are below the volume's root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobKind {
    /// A file, or all files of a directory, to one tier.
    Move {
        /// File or directory.
        path: String,
        /// The tier's name.
        to: String,
    },
    /// A file, or all files of a directory, to the fastest tier with room.
    Promote {
        /// File or directory.
        path: String,
    },
    /// A file, or all files of a directory, to the slowest tier with room.
    Demote {
        /// File or directory.
        path: String,
    },
    /// Ranges of all files, so that every tier has its share.
    Rebalance {},
    /// Everything off one tier, which takes no new ranges from then on.
    Evacuate {
        /// The tier's name.
        tier: String,
        /// Whether the tier leaves the volume once it is empty.
        then_remove: bool,
    },
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &str| if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        match self {
            Self::Move { path, to } => write!(f, "move {} to {to}", shown(path)),
            Self::Promote { path } => write!(f, "promote {}", shown(path)),
            Self::Demote { path } => write!(f, "demote {}", shown(path)),
            Self::Rebalance {} => f.write_str("rebalance"),
            Self::Evacuate { tier, then_remove: false } => write!(f, "evacuate {tier}"),
            Self::Evacuate { tier, then_remove: true } => write!(f, "evacuate {tier} and remove it"),
        }
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for others to end.
    Queued,
    /// It moves data, or waits for files that are in use.
    Running,
    /// Somebody stopped it, and may let it go on.
    Paused,
    /// It did what it was to do.
    Done,
    /// It could not do what it was to do.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl JobState {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// How much was moved, or is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Bytes of files.
    pub bytes: u64,
    /// Ranges.
    pub ranges: u64,
    /// Files with such ranges.
    pub files: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.ranges += more.ranges;
        self.files += more.files;
    }
}

/// What is known of a job, and kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Its number, which no other job of the volume gets.
    pub id: u64,
    /// What it moves.
    pub what: JobKind,
    /// Where it is in its life.
    pub state: JobState,
    /// Most bytes a second; `None` is as fast as it goes.
    pub bandwidth: Option<u64>,
    /// When it was started by somebody, in nanoseconds since the epoch.
    pub created_ns: i64,
    /// When it first ran.
    pub started_ns: Option<i64>,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// What was moved.
    pub done: Amount,
    /// What is moved in the end; `None` before it was counted.
    pub total: Option<Amount>,
    /// Files that were left where they are, by why.
    pub skipped: BTreeMap<String, u64>,
    /// Ranges and files that could not be moved.
    pub errors: u64,
    /// How it ended, or the first of the errors.
    pub message: Option<String>,
    /// Its tier takes no new ranges, also after it is done.
    pub holds: bool,
}

impl JobRecord {
    /// A job that somebody just asked for.
    pub(super) fn new(id: u64, what: JobKind, bandwidth: Option<u64>, now_ns: i64) -> Self {
        let holds = matches!(what, JobKind::Evacuate { .. });
        Self {
            id,
            what,
            state: JobState::Queued,
            bandwidth,
            created_ns: now_ns,
            started_ns: None,
            ended_ns: None,
            done: Amount::default(),
            total: None,
            skipped: BTreeMap::new(),
            errors: 0,
            message: None,
            holds,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // A record is numbers, texts and maps by text: it always has a form.
        let body = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let crc = crc32c::crc32c(body.as_bytes());
        format!("{MAGIC} {VERSION} {crc:08x}\n{body}").into_bytes()
    }

    /// The record in a file of job `id`.
    pub(super) fn decode(id: u64, bytes: &[u8]) -> Result<Self, FormatError> {
        let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Damaged("it is not text"))?;
        let (head, body) = text.split_once('\n').ok_or(FormatError::Damaged("its first line is missing"))?;
        let fields: Vec<&str> = head.split(' ').collect();
        let &[MAGIC, version, crc] = fields.as_slice() else {
            return Err(FormatError::Damaged("its first line is not that of a job"));
        };
        match version.parse::<u16>() {
            Ok(VERSION) => {}
            Ok(newer) if newer > VERSION => return Err(FormatError::Newer(newer)),
            _ => return Err(FormatError::Damaged("its version is wrong")),
        }
        if u32::from_str_radix(crc, 16) != Ok(crc32c::crc32c(body.as_bytes())) {
            return Err(FormatError::Damaged("its checksum does not match"));
        }
        let record: Self =
            serde_json::from_str(body).map_err(|_| FormatError::Damaged("it does not describe a job"))?;
        if record.id == id { Ok(record) } else { Err(FormatError::Damaged("it is the file of another job")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damage_is_seen() {
        let what = JobKind::Evacuate { tier: "slow".into(), then_remove: true };
        let mut record = JobRecord::new(7, what, Some(1 << 20), 5);
        record.skipped.insert("pinned".into(), 2);
        record.total = Some(Amount { bytes: 9, ranges: 3, files: 1 });
        let good = record.encode();
        assert_eq!(JobRecord::decode(7, &good), Ok(record));
        assert!(JobRecord::decode(8, &good).is_err());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(JobRecord::decode(7, &bad).is_err(), "byte {at}");
            assert!(JobRecord::decode(7, &good[..at]).is_err(), "cut at {at}");
        }
        let newer = String::from_utf8(good).unwrap().replacen("braid-job 1 ", "braid-job 2 ", 1);
        assert_eq!(JobRecord::decode(7, newer.as_bytes()), Err(FormatError::Newer(2)));
    }

    #[test]
    fn every_kind_is_kept() {
        let path = || "d/ä".to_owned();
        for what in [
            JobKind::Move { path: path(), to: "slow".into() },
            JobKind::Promote { path: path() },
            JobKind::Demote { path: String::new() },
            JobKind::Rebalance {},
            JobKind::Evacuate { tier: "slow".into(), then_remove: false },
        ] {
            let record = JobRecord::new(1, what, None, 0);
            assert_eq!(JobRecord::decode(1, &record.encode()), Ok(record));
        }
    }
}
