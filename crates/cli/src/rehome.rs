//! `braid tier replace` of the home tier: progress while it is copied, and what
//! it came to.

use crate::args::ReplaceArgs;
use crate::failure::{Failure, Result};
use crate::table;
use braid_daemon::units::show_size;
use braid_ipc::Client;
use braid_ipc::protocol::{HomeProgress, HomeReplaced, Reply, Request};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal.
const PACE: Duration = Duration::from_secs(5);

/// Asks for it. To end this command before it is done gives it up.
pub(crate) fn replace(daemon: &mut Client, dir: String, args: &ReplaceArgs) -> Result<()> {
    let (mut shown, mut replaced) = (Shown::new(), None);
    let asked = daemon.request_all(&Request::ReplaceHome { dir }, &mut |reply| {
        match reply {
            Reply::HomeProgress(now) => shown.show(&now),
            Reply::HomeReplaced(done) => replaced = Some(done),
            _ => return false,
        }
        true
    });
    drop(shown);
    asked.map_err(|error| Failure::new(error.to_string()))?;
    let replaced = replaced.ok_or_else(|| Failure::new("the daemon did not finish the replacement"))?;
    if args.json { table::print_json(&replaced) } else { table::print(&render(&replaced)) }
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

    fn show(&mut self, now: &HomeProgress) {
        let mut stderr = io::stderr().lock();
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{}", line(now)).and_then(|()| stderr.flush());
            return;
        }
        let first = self.told.get_or_insert_with(|| (now.phase.clone(), Instant::now()));
        if first.1.elapsed() >= PACE || first.0 != now.phase && now.phase == "waiting" {
            *first = (now.phase.clone(), Instant::now());
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

fn line(now: &HomeProgress) -> String {
    let HomeProgress { phase, files, total_files, bytes, total_bytes, waiting } = now;
    match waiting {
        0 => {
            let (bytes, total) = (show_size(*bytes), show_size(*total_bytes));
            format!("home: {phase}: {files} of {total_files} files, {bytes} of {total}")
        }
        waiting => format!("home: waiting for {waiting} files that are open by passthrough to be closed"),
    }
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
