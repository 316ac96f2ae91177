//! The writers of the kill test, with every operation acknowledged to the
//! outside. Their operations are replayed from the seed.

use super::part::{Found, Part, VOLUME, say};
use crate::suites::kill9::writer::{Target, Writer};
use braid_tests_support::error::{Context, Failure, Result};
use serde_json::Value;
use std::path::Path;

/// Blocks of 16 KiB that a file may have.
const BLOCKS: u64 = 96;

/// One writer, by its number.
pub(super) struct Records(pub(super) u64);

impl Records {
    fn resume(&self, state: &Value, seed: u64) -> std::result::Result<Writer, String> {
        Writer::resume(Path::new(VOLUME), self.0, BLOCKS, seed + self.0, state)
            .ok_or_else(|| format!("machine got no state of a writer: {state}"))
    }

    /// [`check`](Part::check), if it carried out so many operations, and began one more.
    fn check_after(&self, state: &Value, seed: u64, done: u64) -> Found {
        let mut writer = self.resume(state, seed)?;
        for _ in 0..done {
            writer.step(&Target::Replay).map_err(|error| format!("machine {error}"))?;
        }
        let _ = writer.step(&Target::Cut);
        writer.verify().map_err(|Failure(reason)| format!("lost {reason}"))?;
        Ok(writer.state())
    }
}

impl Part for Records {
    fn name(&self) -> String {
        format!("writer{}", self.0)
    }

    fn create(&self) -> Result<Value> {
        Ok(Writer::new(Path::new(VOLUME), self.0, BLOCKS, 0)?.state())
    }

    fn check(&self, state: &Value, seed: u64, acknowledged: u64) -> Found {
        // The last acknowledgement may have been lost with the power.
        let found = self.check_after(state, seed, acknowledged);
        found.or_else(|reason| self.check_after(state, seed, acknowledged + 1).map_err(|_| reason))
    }

    fn load(&self, state: &Value, seed: u64) -> Result<()> {
        let mut writer = self.resume(state, seed).map_err(Failure)?;
        let files = writer.open()?;
        for done in 1_u64.. {
            writer.step(&Target::Files(&files)).context(self.name())?;
            say(&format!("ack {} {done}", self.name()));
        }
        Ok(())
    }
}
