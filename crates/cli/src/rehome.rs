//! `braid tier replace` of the home tier: progress of the copy, and the
//! outcome.

use crate::args::ReplaceArgs;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{interrupt, job, movers, saved, table};
use braid_contract::units::show_size;
use braid_contract::{Shown, counted};
use braid_ipc::Client;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{HomeReplaced, Job, JobKind, Reply, Request};

/// Requests it, and waits. Ctrl-C ends the command, but not the job; a second
/// one even if the daemon does not answer.
pub(crate) fn replace(daemon: &mut Client, mount: &Mount, dir: String, args: &ReplaceArgs) -> Result<()> {
    if args.start.background {
        return movers::start(mount, JobKind::ReplaceHome { dir }, &args.start);
    }
    let bandwidth = args.start.bandwidth.as_deref().map(job::rate).transpose()?;
    interrupt::watch();
    let (mut progress, mut waits) = (Progress::new(), false);
    let (mut replaced, mut left) = (None, None);
    let asked = daemon.request_all(&Request::ReplaceHome { dir, bandwidth }, &mut |reply| {
        match reply {
            Reply::Job(now) if interrupt::came() => {
                left = Some(now.id);
                return false;
            }
            Reply::Job(now) => {
                // An obstacle, which may last long, is shown at once.
                let waited = std::mem::replace(&mut waits, now.waiting_for > 0);
                if waits && !waited { progress.show_now(&line(&now)) } else { progress.show(&line(&now)) }
            }
            Reply::HomeReplaced(done) => replaced = Some(done),
            _ => return false,
        }
        true
    });
    drop(progress);
    if let Some(id) = left {
        return Err(job::goes_on(id, mount));
    }
    asked.map_err(|error| Failure::new(error.to_string()))?;
    let replaced = replaced.ok_or_else(|| Failure::new("the daemon did not finish the replacement"))?;
    if args.start.json { table::print_json(&replaced) } else { table::print(&render(&replaced)) }
}

/// The phase of the job, or its state before it runs.
fn phase(now: &Job) -> &str {
    now.phase.as_deref().unwrap_or(now.state.name())
}

fn line(now: &Job) -> String {
    if now.waiting_for > 0 {
        let waiting = now.waiting_for;
        return format!("home: waiting for {} open by passthrough to be closed", counted(waiting, "file"));
    }
    let (done, total) = (now.done, now.total.unwrap_or_default());
    let (bytes, all) = (show_size(done.bytes), show_size(total.bytes));
    format!("home: {}: {} of {}, {bytes} of {all}", phase(now), done.files, counted(total.files, "file"))
}

fn render(replaced: &HomeReplaced) -> String {
    let HomeReplaced { tier, held_up, next_mount, saved, .. } = replaced;
    let files = counted(replaced.files, "file");
    let (location, old_location) = (replaced.location.shown(), replaced.old_location.shown());
    let next_mount = match saved.written {
        true => saved::render(saved),
        false => format!("before the next mount, set\n  {next_mount}\n"),
    };
    let bytes = show_size(replaced.bytes);
    format!(
        "tier {} is at {location} now: {files} and {bytes} were copied, and operations held up for {held_up:.3} s\n\
         {old_location} is not used any more, and can be removed\n\
         {next_mount}",
        tier.name
    )
}
