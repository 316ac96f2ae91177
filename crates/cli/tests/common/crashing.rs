//! The process that serves a mount, for tests that kill it.

use crate::common::{Bench, until};

pub(crate) fn pid(bench: &Bench) -> i32 {
    i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap()
}

/// Processes that end at once make the guard suspect requests.
pub(crate) fn serves_for_a_while(bench: &Bench) {
    until("it serves for a while", || bench.status()["uptime_seconds"].as_f64().unwrap() > 0.5);
}
