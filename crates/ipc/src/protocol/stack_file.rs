//! What is told of the stack file: what became of it, what was read from it
//! anew, and what one would say.

use serde::{Deserialize, Serialize};

/// What became of the stack file when tiers were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The stack file; `None` where the volume was mounted by flags.
    pub file: Option<String>,
    /// It says what is in force now.
    pub written: bool,
    /// Why it does not.
    pub why_not: Option<String>,
    /// What to change by hand before the next mount, one by one.
    pub by_hand: Vec<String>,
}

/// A stack file that makes a mount like this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackDump {
    /// Its text.
    pub text: String,
}

/// A stack file that was read anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The stack file.
    pub file: String,
    /// What changed by it, one by one; what would, if that was asked.
    pub changes: Vec<String>,
}
