//! A file for the tests of rules.

use super::facts::Facts;
use braid_contract::StreamId;
use braid_hint::{Hints, Task};

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

    fn task(&self, thread: u32) -> Task {
        Task { program: "postgres".to_owned(), thread: format!("worker {thread}") }
    }

    fn profiled(&self, hints: &Hints, thread: u32) -> Option<StreamId> {
        let found = hints.classify(self.path(), &|| self.task(thread));
        found.map(|stream| StreamId::named(&stream.name))
    }
}
