//! The stream that a file's data belongs to, once it was looked up.

use braid_contract::StreamId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Not looked up yet.
const UNKNOWN: u64 = u64::MAX;
/// None.
const NONE: u64 = u64::MAX - 1;

/// What was found.
#[derive(Debug)]
pub(crate) struct StreamCell(AtomicU64);

impl Default for StreamCell {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl StreamCell {
    /// What was found; looks it up, by `ask`, until it was found for a writer.
    pub(crate) fn get_or(&self, thread: u32, ask: impl FnOnce() -> Option<StreamId>) -> Option<StreamId> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                let stream = ask();
                self.set(thread, stream);
                stream
            }
            known => u32::try_from(known).ok().map(StreamId),
        }
    }

    /// Notes what is found now for a thread. Without a writer, which is 0, less is
    /// known, and nothing is noted.
    pub(crate) fn set(&self, thread: u32, stream: Option<StreamId>) {
        if thread != 0 {
            self.0.store(stream.map_or(NONE, |stream| stream.0.into()), Ordering::Relaxed);
        }
    }
}
