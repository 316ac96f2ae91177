//! The process that serves a mount, for tests that kill it.

use crate::common::{Bench, kill_and_wait, until};

pub(crate) fn pid(bench: &Bench) -> i32 {
    i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap()
}

/// Processes that end at once make the guard suspect requests.
pub(crate) fn serves_for_a_while(bench: &Bench) {
    until("it serves for a while", || bench.status()["uptime_seconds"].as_f64().unwrap() > 0.5);
}

/// Kills the process that serves the mount; another one does then.
pub(crate) fn crash(bench: &Bench) {
    let before = pid(bench);
    kill_and_wait(before);
    // A request meanwhile waits.
    let status = bench.status();
    assert_ne!(status["pid"], before);
    let restarts = &status["restarts"];
    assert!(restarts["how"] == "signal 9" && restarts["paused_ns"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["outlives_crash"], true);
}

/// The same, once it has served for a while.
pub(crate) fn crash_in_a_while(bench: &Bench) {
    serves_for_a_while(bench);
    crash(bench);
}
