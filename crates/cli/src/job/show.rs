//! Jobs in words.

use crate::progress::bar;
use crate::saved;
use crate::table::{Align, Table};
use braid_contract::units::{show_duration, show_size};
use braid_contract::{Shown, counted};
use braid_ipc::protocol::{Job, JobKind, JobState};
use std::fmt::Write as _;

/// A table of all jobs.
pub(super) fn list(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "there are no jobs\n".into();
    }
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("STATE", Align::Left),
        ("DONE", Align::Right),
        ("OF", Align::Right),
        ("RATE", Align::Right),
        ("LEFT", Align::Right),
        ("WHAT", Align::Left),
    ]);
    for job in jobs {
        table.row(vec![
            job.id.to_string(),
            job.state.name().to_owned(),
            show_size(job.done.bytes),
            job.total.map_or("-".into(), |total| show_size(total.bytes)),
            if job.rate > 0.0 { format!("{}/s", show_size(job.rate as u64)) } else { "-".into() },
            job.eta_seconds.map_or("-".into(), show_duration),
            job.text.clone(),
        ]);
    }
    table.render()
}

/// All details of one job.
pub(super) fn all(job: &Job) -> String {
    // Writing to a string does not fail.
    let mut text = line(job);
    let of = |done: u64, total: Option<u64>, what: &str| match total {
        Some(total) if !job.is_over() => format!("{done} of {}", counted(total, what)),
        _ => counted(done, what),
    };
    let bytes = match job.total.filter(|_| !job.is_over()) {
        Some(total) => format!("{} of {}", show_size(job.done.bytes), show_size(total.bytes)),
        None => show_size(job.done.bytes),
    };
    let ranges = of(job.done.ranges, job.total.map(|total| total.ranges), "range");
    let files = of(job.done.files, job.total.map(|total| total.files), "file");
    // Movers do not count files.
    let files = if job.what.is_some() { format!(", {files}") } else { String::new() };
    _ = match job.what {
        Some(JobKind::Import { .. }) => writeln!(text, "brought in: {bytes}{files}"),
        Some(JobKind::Scrub { .. }) => writeln!(text, "read: {bytes}{files}"),
        _ => writeln!(text, "moved: {bytes}, {ranges}{files}"),
    };
    if let Some(bandwidth) = job.bandwidth {
        _ = writeln!(text, "at most: {}/s", show_size(bandwidth));
    }
    if let Some(bandwidth) = job.tier_bandwidth.filter(|_| !job.is_over()) {
        _ = writeln!(text, "at most on each tier: {}/s", show_size(bandwidth));
    }
    if !job.guarded && !job.is_over() {
        _ = writeln!(text, "guard: off: applications may wait for it");
    }
    for (tier, rate) in &job.slowed {
        _ = match *rate > 0.0 {
            true => {
                writeln!(text, "slowed down for applications: to {}/s on {tier}", show_size(*rate as u64))
            }
            false => {
                writeln!(text, "held up for a moment on {tier}: to see what applications wait without it")
            }
        };
    }
    if job.rate > 0.0 {
        let left = job.eta_seconds.map_or(String::new(), |eta| format!(", {} left", show_duration(eta)));
        _ = writeln!(text, "now: {}/s{left}", show_size(job.rate as u64));
    }
    for (why, files) in &job.skipped {
        _ = writeln!(text, "left where they are: {}: {why}", counted(*files, "file"));
    }
    if job.errors > 0 {
        _ = writeln!(text, "errors: {}", job.errors);
    }
    if let Some(message) = &job.message {
        _ = writeln!(text, "why: {message}");
    }
    text + &changed(job)
}

/// The changes of the tiers at its end, and whether the stack file has them.
fn changed(job: &Job) -> String {
    let mut text = match (&job.what, job.what.as_ref().and_then(JobKind::removed_tier)) {
        _ if job.state != JobState::Done => String::new(),
        (Some(JobKind::ReplaceHome { dir }), _) => format!("home is at {} now\n", dir.shown()),
        (_, Some(tier)) => format!("tier {tier} is not part of the volume any more\n"),
        (_, None) => String::new(),
    };
    text.extend(job.stack_file.as_ref().map(saved::render));
    text
}

/// The job and its state.
pub(super) fn line(job: &Job) -> String {
    format!("job {}: {}: {}{}\n", job.id, job.text, job.state.name(), waiting(job))
}

fn waiting(job: &Job) -> String {
    match (job.waiting_for, &job.phase) {
        (0, None) => String::new(),
        (0, Some(phase)) => format!(", {phase}"),
        (files, _) => format!(", waiting for {} in use", counted(files, "file")),
    }
}

/// How it ended.
pub(super) fn end(job: &Job) -> String {
    let skipped: String =
        job.skipped.iter().map(|(why, files)| format!("; {} left: {why}", counted(*files, "file"))).collect();
    // The failure message has that of a failed job.
    let but = job.message.as_ref().filter(|_| job.state == JobState::Done);
    let but = but.map_or(String::new(), |what| format!("; {what}"));
    let (bytes, files) = (show_size(job.done.bytes), counted(job.done.files, "file"));
    let done = match job.what {
        Some(JobKind::Import { .. }) => format!("brought in {files} of {bytes}"),
        Some(JobKind::Scrub { .. }) => format!("read {files} of {bytes}"),
        _ => format!("moved {bytes} in {} of {files}", counted(job.done.ranges, "range")),
    };
    format!("job {}: {}: {}: {done}{skipped}{but}\n", job.id, job.text, job.state.name()) + &changed(job)
}

/// Its progress, in one line.
pub(super) fn progress(job: &Job) -> String {
    let head = format!("job {} {}{}", job.id, job.state.name(), waiting(job));
    let Some(total) = job.total else { return head };
    let rate = match job.rate > 0.0 {
        true => format!(", {}/s", show_size(job.rate as u64)),
        false => String::new(),
    };
    let left = job.eta_seconds.map_or(String::new(), |eta| format!(", {} left", show_duration(eta)));
    let (done, all) = (show_size(job.done.bytes), show_size(total.bytes));
    format!("{head} {} {done}/{all}{rate}{left}", bar(job.done.bytes, total.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_ipc::protocol::Amount;

    fn job() -> Job {
        Job {
            id: 3.into(),
            what: Some(JobKind::Rebalance {}),
            text: "rebalance".into(),
            state: JobState::Running,
            done: Amount { bytes: 1 << 20, ranges: 1, files: 0 },
            total: Some(Amount { bytes: 2 << 20, ranges: 2, files: 1 }),
            skipped: [("pinned".to_owned(), 2)].into(),
            errors: 0,
            waiting_for: 1,
            phase: None,
            bandwidth: Some(1 << 20),
            tier_bandwidth: Some(50 << 20),
            guarded: true,
            slowed: [("fast".to_owned(), 524_288.0)].into(),
            rate: 524_288.0,
            eta_seconds: Some(2.0),
            created_ns: 0,
            started_ns: None,
            ended_ns: None,
            message: None,
            stack_file: None,
        }
    }

    #[test]
    fn a_job_is_told_in_one_line_and_in_several() {
        let expected = "job 3 running, waiting for 1 file in use \
            [###############---------------] 1.00 MiB/2.00 MiB, 512 KiB/s, 2 s left";
        assert_eq!(progress(&job()), expected);
        let expected = "\
job 3: rebalance: running, waiting for 1 file in use
moved: 1.00 MiB of 2.00 MiB, 1 of 2 ranges, 0 of 1 file
at most: 1.00 MiB/s
at most on each tier: 50.0 MiB/s
slowed down for applications: to 512 KiB/s on fast
now: 512 KiB/s, 2 s left
left where they are: 2 files: pinned
";
        assert_eq!(all(&job()), expected);
        let table = list(&[job()]);
        assert!(table.contains("JOB  STATE") && table.contains("512 KiB/s   2 s  rebalance"), "{table}");
        assert_eq!(list(&[]), "there are no jobs\n");
    }

    #[test]
    fn what_a_job_that_is_done_left_undone_is_told() {
        let message = Some("/d could not be cleared (EIO)".to_owned());
        let done = Job { state: JobState::Done, skipped: [].into(), message: message.clone(), ..job() };
        let expected = "job 3: rebalance: done: moved 1.00 MiB in 1 range of 0 files; \
            /d could not be cleared (EIO)\n";
        assert_eq!(end(&done), expected);
        assert!(!end(&Job { state: JobState::Failed, message, ..job() }).contains("cleared"));
    }
}
