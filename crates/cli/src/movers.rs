//! The commands that start a job: `move`, `promote`, `demote`, `rebalance`,
//! `tier evacuate`, and `scrub` in the background.

use crate::args::{EvacuateArgs, MoveArgs, PathArgs, RebalanceArgs, StartArgs};
use crate::failure::Result;
use crate::{job, locate, table};
use braid_contract::Shown;
use braid_ipc::Client;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Job, JobKind, Reply, Request, StartJob};
use std::path::Path;

pub(crate) fn move_to(args: &MoveArgs) -> Result<()> {
    let (mount, path) = locate::within(&args.path)?;
    start(&mount, JobKind::Move { path, to: args.to.clone() }, &args.start)
}

pub(crate) fn promote(args: &PathArgs) -> Result<()> {
    let (mount, path) = locate::within(&args.path)?;
    start(&mount, JobKind::Promote { path }, &args.start)
}

pub(crate) fn demote(args: &PathArgs) -> Result<()> {
    let (mount, path) = locate::within(&args.path)?;
    start(&mount, JobKind::Demote { path }, &args.start)
}

pub(crate) fn rebalance(args: &RebalanceArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    start(&mount, JobKind::Rebalance {}, &args.start)
}

pub(crate) fn evacuate(args: &EvacuateArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    if !args.undo {
        let what = JobKind::Evacuate { tier: args.tier.clone(), then_remove: false };
        return start(&mount, what, &args.start);
    }
    let mut daemon = locate::need_daemon(&mount)?;
    let request = Request::UndoEvacuation { tier: args.tier.clone() };
    locate::ask(&mut daemon, &request, |reply| matches!(reply, Reply::Done(_)).then_some(()))?;
    table::print(&format!("tier {} takes new data again\n", args.tier))
}

/// Starts a job, and waits for it unless in the background.
pub(crate) fn start(mount: &Mount, what: JobKind, args: &StartArgs) -> Result<()> {
    let bandwidth = args.bandwidth.as_deref().map(job::rate).transpose()?;
    if args.background {
        return start_only(mount, what, bandwidth, args.json);
    }
    let (mut daemon, started) = begin(mount, what, bandwidth)?;
    let ended = job::wait(&mut daemon, mount, started)?;
    job::conclude(&ended, args.json)
}

/// Starts a job, and does not wait for it.
pub(crate) fn start_only(mount: &Mount, what: JobKind, bandwidth: Option<u64>, json: bool) -> Result<()> {
    let (_, started) = begin(mount, what, bandwidth)?;
    tell_started(mount, &started, json)
}

fn begin(mount: &Mount, what: JobKind, bandwidth: Option<u64>) -> Result<(Client, Job)> {
    let mut daemon = locate::need_daemon(mount)?;
    let started = job::ask_job(&mut daemon, &Request::StartJob(StartJob { what, bandwidth }))?;
    Ok((daemon, started))
}

/// Prints a job that is not awaited.
pub(crate) fn tell_started(mount: &Mount, started: &Job, json: bool) -> Result<()> {
    if json {
        return table::print_json(started);
    }
    let (id, point) = (started.id, shown(&mount.point));
    table::print(&format!("job {id}: {}\nlook at it: braid job show {id} {point}\n", started.text))
}

fn shown(point: &Path) -> String {
    point.shown().to_string()
}
