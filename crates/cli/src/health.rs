//! `braid status --check`: whether all is well, in one line and by an exit
//! status as monitoring expects it (Nagios and its kin).

use crate::args::StatusArgs;
use crate::failure::{Failure, Result};
use crate::{locate, table};
use braid_contract::units::show_size;
use braid_contract::{Figure, FigureValue, JobState, Shown, counted, tame};
use braid_ipc::protocol::{Job, Reply, Request, Status, TierStatus};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which failed jobs are reported.
const FAILED_JOBS: Duration = Duration::from_secs(24 * 60 * 60);

/// The level, the worst last; the numbers are exit statuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// The outcome of a check, with reasons.
#[derive(Debug, Serialize)]
struct Verdict {
    check: Level,
    /// The worst first.
    reasons: Vec<String>,
}

impl Verdict {
    fn of(mut findings: Vec<(Level, String)>, well: String) -> Self {
        findings.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let check = findings.first().map_or(Level::Ok, |(level, _)| *level);
        let reasons: Vec<String> = findings.into_iter().map(|(_, reason)| reason).collect();
        Self { check, reasons: if reasons.is_empty() { vec![well] } else { reasons } }
    }

    /// One line, whatever the reasons contain.
    fn line(&self) -> String {
        let reasons = self.reasons.join("; ").replace('\n', " ");
        format!("BRAID {}: {}\n", self.check.name(), tame(&reasons))
    }
}

pub(crate) fn run(args: &StatusArgs) -> ExitCode {
    let verdict = look(args)
        .unwrap_or_else(|failure| Verdict { check: Level::Unknown, reasons: vec![failure.to_string()] });
    let told = if args.json { table::print_json(&verdict) } else { table::print(&verdict.line()) };
    match told {
        Ok(()) => ExitCode::from(verdict.check as u8),
        Err(failure) => {
            failure.report();
            ExitCode::from(Level::Unknown as u8)
        }
    }
}

fn look(args: &StatusArgs) -> Result<Verdict> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut daemon = match locate::need_daemon(&mount) {
        Err(failure) if mount.is_dead() => {
            return Ok(Verdict::of(vec![(Level::Critical, failure.to_string())], String::new()));
        }
        daemon => daemon?,
    };
    let status = locate::ask(&mut daemon, &Request::Status, |reply| match reply {
        Reply::Status(status) => Some(status),
        _ => None,
    })?;
    // Not every user may see the jobs.
    let jobs = match daemon.request(&Request::Jobs) {
        Ok(Reply::Jobs(jobs)) => jobs,
        Err(braid_ipc::ClientError::Io(error)) => return Err(Failure::new(error.to_string())),
        _ => Vec::new(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(judge(&status, &jobs, now))
}

fn judge(status: &Status, jobs: &[Job], now: Duration) -> Verdict {
    let mut findings: Vec<(Level, String)> = status.tiers.iter().filter_map(tier).collect();
    if let Some(of) = &status.view {
        return judge_view(status, of);
    }
    if status.log.is_none() && status.tiers.iter().all(|tier| tier.available == 0) {
        findings.push((Level::Critical, "no tier has room".into()));
    }
    for lost in &status.lost_tiers {
        let what = format!("tier {} was lost and replaced: files may miss data", lost.name);
        findings.push((Level::Warning, what));
    }
    for tier in status.tiers.iter().filter(|tier| !tier.faults.is_empty()) {
        findings.push((Level::Warning, format!("faults are armed on tier {}", tier.name)));
    }
    let recent = |job: &&Job| {
        let ended = Duration::from_nanos(job.ended_ns.and_then(|at| at.try_into().ok()).unwrap_or(0));
        job.state == JobState::Failed && now.saturating_sub(ended) < FAILED_JOBS
    };
    for job in jobs.iter().filter(recent) {
        let why = job.message.as_deref().map_or(String::new(), |why| format!(": {why}"));
        findings.push((Level::Warning, format!("job {} failed{why}", job.id)));
    }
    let room = status.tiers.iter().fold(0_u64, |room, tier| room.saturating_add(tier.available));
    let (tiers, point) = (counted(status.tiers.len() as u64, "tier"), status.mountpoint.shown());
    let Some(device) = &status.log else {
        return Verdict::of(findings, format!("{point}: {tiers}, {} available", show_size(room)));
    };
    let room = log_room(status);
    if room == 0 {
        findings.push((Level::Critical, format!("the log file system on {device} has no room")));
    }
    Verdict::of(findings, format!("{point}: log file system, {} available", show_size(room)))
}

/// A view is well as long as it has its session; the mount below has its own verdict.
fn judge_view(status: &Status, of: &str) -> Verdict {
    let (point, of) = (status.mountpoint.shown(), of.shown());
    let over = sum(status, "view_over") > 0;
    let gone = || (Level::Critical, format!("the session with the mount below is over: {of}"));
    Verdict::of(over.then(gone).into_iter().collect(), format!("{point}: view of {of}"))
}

/// Bytes that files of a log file system may still take.
fn log_room(status: &Status) -> u64 {
    sum(status, "log_available_bytes")
}

/// The sum of the figures of this name.
fn sum(status: &Status, name: &str) -> u64 {
    let figures = status.modules.iter().flat_map(|module| &module.figures);
    let room = figures.filter(|figure| figure.name == name);
    let value = |figure: &Figure| match figure.value {
        FigureValue::Gauge(bytes) | FigureValue::Counter(bytes) => bytes as u64,
        FigureValue::Histogram(_) => 0,
    };
    room.map(value).sum()
}

/// The problem of a tier, if it has one.
fn tier(tier: &TierStatus) -> Option<(Level, String)> {
    let level = match tier.state.name() {
        "online" | "draining" => return None,
        // It was set so on purpose.
        "read-only" if tier.readonly && tier.trouble.is_none() => return None,
        // Without room at home no file can be created.
        "full" if tier.home => Level::Critical,
        "full" => Level::Warning,
        "read-only" if !tier.home => Level::Warning,
        _ => Level::Critical,
    };
    let why = tier.trouble.as_ref().map_or(String::new(), |trouble| format!(" ({})", trouble.error));
    Some((level, format!("tier {} is {}{why}", tier.name, tier.state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(states: &[&str]) -> Status {
        let tier = |(id, state): (usize, &&str)| {
            serde_json::json!({
                "id": id, "name": format!("t{id}"), "location": "/t", "home": id == 0, "state": state,
                "weight": 1.0, "reserve": 0, "total": 10, "free": 5, "available": u64::from(*state != "full"),
                "used": 5, "ranges": 1, "read_bytes": 0, "read_ops": 0, "write_bytes": 0, "write_ops": 0,
                "read_rate": 0.0, "write_rate": 0.0,
            })
        };
        let tiers: Vec<_> = states.iter().enumerate().map(tier).collect();
        serde_json::from_value(serde_json::json!({
            "volume": "v", "mountpoint": "/m\n", "version": "1", "pid": 1, "range_size": 65536,
            "policy": "weighted", "open_files": 3, "known_inodes": 4, "pending_removals": 0, "tiers": tiers,
        }))
        .unwrap()
    }

    #[test]
    fn the_worst_counts_and_comes_first() {
        for (states, line) in [
            (&["online", "draining"][..], "BRAID OK: $'/m\\n': 2 tiers, 2 B available\n"),
            (&["online", "full"], "BRAID WARNING: tier t1 is full\n"),
            (
                &["online", "read-only", "hanging"],
                "BRAID CRITICAL: tier t2 is hanging; tier t1 is read-only\n",
            ),
            (&["full", "online"], "BRAID CRITICAL: tier t0 is full\n"),
            (&["full", "full"], "BRAID CRITICAL: tier t0 is full; no tier has room; tier t1 is full\n"),
            (&["online", "absent"], "BRAID CRITICAL: tier t1 is absent\n"),
        ] {
            assert_eq!(judge(&status(states), &[], Duration::ZERO).line(), line);
        }
        let mut set = status(&["online", "read-only"]);
        set.tiers[1].readonly = true;
        assert_eq!(judge(&set, &[], Duration::ZERO).check, Level::Ok);
    }

    #[test]
    fn a_job_that_failed_is_told_of_for_a_day() {
        let day = FAILED_JOBS.as_nanos() as u64;
        let job: Job = serde_json::from_value(serde_json::json!({
            "id": 3, "what": { "kind": "rebalance" }, "text": "rebalance", "state": "failed",
            "done": { "bytes": 0, "ranges": 0, "files": 0 }, "total": null, "skipped": {}, "errors": 1,
            "waiting_for": 0, "bandwidth": null, "rate": 0.0, "eta_seconds": null, "created_ns": 0,
            "started_ns": null, "ended_ns": day, "message": "no room",
        }))
        .unwrap();
        let judged = |now| judge(&status(&["online"]), std::slice::from_ref(&job), Duration::from_nanos(now));
        assert_eq!(judged(day + 1).line(), "BRAID WARNING: job 3 failed: no room\n");
        assert_eq!(judged(2 * day).check, Level::Ok);
    }
}
