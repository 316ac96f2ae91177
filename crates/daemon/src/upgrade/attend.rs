//! A process that was started in the foreground goes on waiting there for the one that
//! took its mount over: the program that started it would take its end for the mount's.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::process::Child;

/// Waits until `child`, and those that take the mount over from it, have ended; passes
/// signals on to them. Returns the exit status of the last.
///
/// # Errors
/// If it can't be waited for.
pub fn attend(child: &Child) -> io::Result<i32> {
    adopt()?;
    tracing::info!(pid = child.id(), "waiting for the process that serves the mount now");
    let mut status = 0;
    loop {
        match rustix::io::retry_on_intr(|| wait(WaitOptions::empty())) {
            Ok(Some((_, ended))) => status = ended.exit_status().unwrap_or(1),
            Ok(None) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(status),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Passes signals on to the children of this process from now on, and has those that their
/// own start become children of this one when they end.
///
/// # Errors
/// Those of the system calls.
pub(crate) fn adopt() -> io::Result<()> {
    set_child_subreaper(Pid::from_raw(std::process::id().cast_signed()))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            pass_on(signal);
        }
    })?;
    Ok(())
}

fn pass_on(signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    for child in children() {
        // It may have ended.
        let _ = kill_process(child, signal);
    }
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()
        })
        .collect()
}
