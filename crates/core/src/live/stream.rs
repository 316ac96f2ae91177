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
    /// What was found; looks it up, by `ask`, the first time.
    pub(crate) fn get_or(&self, ask: impl FnOnce() -> Option<StreamId>) -> Option<StreamId> {
        self.get().unwrap_or_else(|| {
            let stream = ask();
            self.set(stream);
            stream
        })
    }

    /// What was found; `None` if it was not looked up.
    pub(crate) fn get(&self) -> Option<Option<StreamId>> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            known => Some(u32::try_from(known).ok().map(StreamId)),
        }
    }

    /// Notes what is found now.
    pub(crate) fn set(&self, stream: Option<StreamId>) {
        self.0.store(stream.map_or(NONE, |stream| stream.0.into()), Ordering::Relaxed);
    }
}
