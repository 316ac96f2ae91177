//! A file for the tests of rules.

use super::facts::Facts;
use braid_hint::Task;

/// A file with this path.
pub(super) struct Sample(pub(super) &'static str);

impl Facts for Sample {
    fn path(&self) -> &str {
        self.0
    }

    fn owner(&self) -> i64 {
        1000
    }

    fn age_ns(&self) -> i64 {
        5 * 60_000_000_000
    }

    fn task(&self, thread: u32) -> Option<Task> {
        Some(Task { program: "postgres".to_owned(), thread: format!("worker {thread}") })
    }
}
