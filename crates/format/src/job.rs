//! The record of a job, kept in `.braid/jobs/<id>`: a line with version and
//! checksum, then JSON.

use crate::{FormatError, is_below_root};
use braid_contract::{Amount, JobKind, JobState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Start of a job's file, before the version.
const MAGIC: &str = "braid-job";
const VERSION: u16 = 1;

/// The saved state of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Its number, unique in the volume.
    pub id: u64,
    /// Its kind.
    pub what: JobKind,
    /// Its state.
    pub state: JobState,
    /// Limit in bytes a second; `None` without one.
    pub bandwidth: Option<u64>,
    /// When it was requested, in nanoseconds since the epoch.
    pub created_ns: i64,
    /// When it first ran.
    pub started_ns: Option<i64>,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// Data moved so far.
    pub done: Amount,
    /// Data to be moved in all; `None` before it was counted.
    pub total: Option<Amount>,
    /// Files left in place, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Ranges and files that could not be moved.
    pub errors: u64,
    /// How it ended, or the first of the errors.
    pub message: Option<String>,
    /// Whether its tier takes no new ranges, even after it is done.
    pub holds: bool,
    /// Whether it ignores the latency of applications.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unguarded: bool,
    /// The file up to which a scrub has read all, in the order of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

impl JobRecord {
    /// A job that was just requested.
    pub fn new(id: u64, what: JobKind, bandwidth: Option<u64>, now_ns: i64) -> Self {
        let holds = what.emptied_tier().is_some();
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
            unguarded: false,
            position: None,
        }
    }

    /// Marks it as done, at the time `now_ns`.
    pub fn be_done(&mut self, now_ns: i64) {
        self.state = JobState::Done;
        self.ended_ns = Some(now_ns);
        self.message = None;
        // Ranges that were removed meanwhile, or turned out to be holes, no
        // longer count.
        self.total = Some(self.done);
    }

    /// Marks it as failed, at the time `now_ns`.
    pub fn be_failed(&mut self, now_ns: i64, why: String) {
        self.state = JobState::Failed;
        self.ended_ns = Some(now_ns);
        self.message = Some(why);
        self.holds = false;
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        // A record is numbers, texts and maps by text: it can always be
        // serialized.
        let body = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let crc = crc32c::crc32c(body.as_bytes());
        format!("{MAGIC} {VERSION} {crc:08x}\n{body}").into_bytes()
    }

    /// The record in a file of job `id`.
    pub fn decode(id: u64, bytes: &[u8]) -> Result<Self, FormatError> {
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
        if record.state == JobState::Idle {
            return Err(FormatError::Damaged("only movers are idle"));
        }
        // The path was valid when the job was requested.
        if record.what.path().is_some_and(|path| !is_below_root(path)) {
            return Err(FormatError::Damaged("its path does not lead to a file of the volume"));
        }
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
        record.unguarded = true;
        record.position = Some("a/b".into());
        let good = record.encode();
        assert_eq!(JobRecord::decode(7, &good), Ok(record));
        assert!(JobRecord::decode(8, &good).is_err());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(JobRecord::decode(7, &bad).is_err(), "byte {at}");
            assert!(JobRecord::decode(7, &good[..at]).is_err(), "cut at {at}");
        }
        let idle = JobRecord { state: JobState::Idle, ..JobRecord::decode(7, &good).unwrap() };
        assert!(JobRecord::decode(7, &idle.encode()).is_err());
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
            JobKind::Replace { tier: "slow".into(), by: "new".into() },
            JobKind::Import { tier: "slow".into() },
            JobKind::ReplaceHome { dir: "/new/ä".into() },
            JobKind::Scrub { path: path() },
        ] {
            let record = JobRecord::new(1, what, None, 0);
            assert_eq!(JobRecord::decode(1, &record.encode()), Ok(record));
        }
    }
}
