//! A part of the load in the virtual machine, and its output.

use braid_tests_support::error::Result;
use serde_json::{Value, json};

/// The volume's mount point.
pub(super) const VOLUME: &str = "/mnt/all";

/// The state that a part of the load found in its data, or its finding.
pub(super) type Found = std::result::Result<Value, String>;

/// A part of the load, with its check.
pub(super) trait Part: Sync {
    /// The word in its acknowledgements.
    fn name(&self) -> String;

    /// Creates the state for a new volume.
    fn create(&self) -> Result<Value>;

    /// Compares the data with the previous state, the seed of the load since
    /// then and its last acknowledged number. An error begins with the kind of
    /// finding.
    fn check(&self, state: &Value, seed: u64, acknowledged: u64) -> Found;

    /// Works on from this state until the power goes.
    fn load(&self, state: &Value, seed: u64) -> Result<()>;
}

/// Prints a line. When this returns, the line is on its way out of the machine.
pub(super) fn say(line: &str) {
    println!("{line}");
}

/// A number in a part's state.
pub(super) fn number(state: &Value, key: &str) -> u64 {
    state[key].as_u64().unwrap_or(0)
}

/// A state that is one number.
pub(super) fn state_of(key: &str, number: u64) -> Value {
    json!({ key: number })
}
