//! `braid tier replace` of the home tier: progress while it is copied, and what
//! it came to.

use crate::args::ReplaceArgs;
use crate::failure::{Failure, Result};
use crate::{job, movers, table};
use braid_daemon::units::show_size;
use braid_ipc::Client;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{HomeReplaced, Job, JobKind, Reply, Request};
use signal_hook::consts::SIGINT;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal.
const PACE: Duration = Duration::from_secs(5);

/// Asks for it, and waits. Ctrl-C ends that, and not the job.
pub(crate) fn replace(daemon: &mut Client, mount: &Mount, dir: String, args: &ReplaceArgs) -> Result<()> {
    if args.start.background {
        return movers::start(mount, JobKind::ReplaceHome { dir }, &args.start);
    }
    let bandwidth = args.start.bandwidth.as_deref().map(job::rate).transpose()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    // Without it, Ctrl-C ends the command without a word.
    let _registered = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted));
    let (mut shown, mut replaced, mut left) = (Shown::new(), None, None);
    let asked = daemon.request_all(&Request::ReplaceHome { dir, bandwidth }, &mut |reply| {
        match reply {
            Reply::Job(now) if interrupted.load(Ordering::Relaxed) => {
                left = Some(now.id);
                return false;
            }
            Reply::Job(now) => shown.show(&now),
            Reply::HomeReplaced(done) => replaced = Some(done),
            _ => return false,
        }
        true
    });
    drop(shown);
    if let Some(id) = left {
        return Err(job::goes_on(id, mount));
    }
    asked.map_err(|error| Failure::new(error.to_string()))?;
    let replaced = replaced.ok_or_else(|| Failure::new("the daemon did not finish the replacement"))?;
    if args.start.json { table::print_json(&replaced) } else { table::print(&render(&replaced)) }
}

/// Progress on standard error; gone from a terminal when it is dropped.
struct Shown {
    terminal: bool,
    told: Option<(String, Instant)>,
}

impl Shown {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), told: None }
    }

    fn show(&mut self, now: &Job) {
        let mut stderr = io::stderr().lock();
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{}", line(now)).and_then(|()| stderr.flush());
            return;
        }
        let phase = phase(now);
        let first = self.told.get_or_insert_with(|| (phase.to_owned(), Instant::now()));
        if first.1.elapsed() >= PACE || first.0 != phase && now.waiting_for > 0 {
            *first = (phase.to_owned(), Instant::now());
            let _ = writeln!(stderr, "{}", line(now));
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// What the job is at; before it runs, that it does not.
fn phase(now: &Job) -> &str {
    now.phase.as_deref().unwrap_or(now.state.name())
}

fn line(now: &Job) -> String {
    if now.waiting_for > 0 {
        let waiting = now.waiting_for;
        return format!("home: waiting for {waiting} files that are open by passthrough to be closed");
    }
    let (done, total) = (now.done, now.total.unwrap_or_default());
    let (bytes, all) = (show_size(done.bytes), show_size(total.bytes));
    format!("home: {}: {} of {} files, {bytes} of {all}", phase(now), done.files, total.files)
}

fn render(replaced: &HomeReplaced) -> String {
    let HomeReplaced { tier, old_location, location, files, held_up, next_mount, saved, .. } = replaced;
    let next_mount = match saved.written {
        true => crate::tier::render_saved(saved),
        false => format!("before the next mount, set\n  {next_mount}\n"),
    };
    let bytes = show_size(replaced.bytes);
    format!(
        "tier {} is at {location} now: {files} files and {bytes} were copied, and operations held up for {held_up:.3} s\n\
         {old_location} is not used any more, and can be removed\n\
         {next_mount}",
        tier.name
    )
}
