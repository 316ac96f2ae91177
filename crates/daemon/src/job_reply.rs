//! Jobs and movers in the form of the control socket.

use braid_contract::JobId;
use braid_ipc::protocol::Job;
use braid_volume::{JobStatus, MoverStatus, Volume};
use std::collections::BTreeMap;

/// A mover, as a job.
pub(crate) fn mover(volume: &Volume, status: MoverStatus) -> Job {
    Job {
        id: JobId::Mover(status.mover),
        text: status.mover.to_string(),
        what: None,
        state: status.state,
        done: status.done,
        total: None,
        skipped: BTreeMap::new(),
        errors: 0,
        waiting_for: 0,
        phase: None,
        bandwidth: status.bandwidth,
        tier_bandwidth: Some(volume.mover_bandwidth()),
        guarded: true,
        slowed: BTreeMap::new(),
        rate: if status.rate.is_finite() { status.rate } else { 0.0 },
        eta_seconds: None,
        created_ns: status.since_ns,
        started_ns: None,
        ended_ns: None,
        message: None,
        stack_file: None,
    }
}

/// A job.
pub(crate) fn job(volume: &Volume, job: JobStatus) -> Job {
    let record = job.record;
    Job {
        id: record.id.into(),
        text: record.what.to_string(),
        what: Some(record.what),
        state: record.state,
        done: record.done,
        total: record.total,
        skipped: record.skipped,
        errors: record.errors,
        waiting_for: job.waiting_for,
        phase: job.phase.map(|phase| phase.name().to_owned()),
        bandwidth: record.bandwidth,
        tier_bandwidth: volume.job_bandwidth(),
        guarded: !record.unguarded,
        slowed: job.slowed,
        // JSON has no infinity.
        rate: if job.rate.is_finite() { job.rate } else { 0.0 },
        eta_seconds: job.eta_seconds.filter(|seconds| seconds.is_finite()),
        created_ns: record.created_ns,
        started_ns: record.started_ns,
        ended_ns: record.ended_ns,
        message: record.message,
        stack_file: None,
    }
}
