//! A part of the load in the virtual machine, and what it says.

use braid_tests_support::error::Result;
use serde_json::{Value, json};

/// The volume's mount point.
pub(super) const VOLUME: &str = "/mnt/all";

/// What a part of the load found of its own data, or what is wrong with it.
pub(super) type Found = std::result::Result<Value, String>;

/// A part of the load, with what it checks.
pub(super) trait Part: Sync {
    /// The word in its acknowledgements.
    fn name(&self) -> String;

    /// What is there on a new volume, made now.
    fn create(&self) -> Result<Value>;

    /// Compares what is there with what was found before, the seed of the load
    /// since then and the last number that it acknowledged. An error begins
    /// with the kind of finding.
    fn check(&self, state: &Value, seed: u64, acknowledged: u64) -> Found;

    /// Goes on from what was found until the power goes.
    fn load(&self, state: &Value, seed: u64) -> Result<()>;
}

/// Says a line. When this returns, the line has left the machine.
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
