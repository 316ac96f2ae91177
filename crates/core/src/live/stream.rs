//! The stream that a file's data belongs to, once the rules were asked.

use braid_contract::StreamId;
use std::sync::atomic::{AtomicU32, Ordering};

/// Not asked yet.
const UNKNOWN: u32 = u32::MAX;
/// None.
const NONE: u32 = u32::MAX - 1;

/// What the rules said.
#[derive(Debug)]
pub(crate) struct StreamCell(AtomicU32);

impl Default for StreamCell {
    fn default() -> Self {
        Self(AtomicU32::new(UNKNOWN))
    }
}

impl StreamCell {
    /// What they said; asks them, by `ask`, the first time.
    pub(crate) fn get_or(&self, ask: impl FnOnce() -> Option<StreamId>) -> Option<StreamId> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                let stream = ask();
                self.set(stream);
                stream
            }
            known => u16::try_from(known).ok().map(StreamId),
        }
    }

    /// Notes what they say now.
    pub(crate) fn set(&self, stream: Option<StreamId>) {
        self.0.store(stream.map_or(NONE, |stream| stream.0.into()), Ordering::Relaxed);
    }
}
