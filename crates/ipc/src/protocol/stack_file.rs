//! Replies about the stack file: how it followed a change, the changes of a
//! reload, and a dump.

use serde::{Deserialize, Serialize};

/// How the stack file followed a change of tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The stack file; `None` where the volume was mounted by flags.
    pub file: Option<String>,
    /// Whether it has the present state.
    pub written: bool,
    /// Why it does not.
    pub why_not: Option<String>,
    /// Edits to make by hand before the next mount.
    pub by_hand: Vec<String>,
}

/// A stack file for a mount like this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackDump {
    /// Its text.
    pub text: String,
}

/// Other modules for a mounted stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModifyStack {
    /// The name of the stack file in messages.
    pub name: String,
    /// Its text. Only its modules count.
    pub text: String,
    /// Whether only to report the changes.
    #[serde(default)]
    pub dry_run: bool,
}

/// The outcome of a change of modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// The modules, from the top down; with a dry run, those that would be there.
    pub modules: Vec<String>,
    /// The changes, one by one.
    pub changes: Vec<String>,
    /// The stack file that the volume was mounted with, if it was by one.
    pub file: Option<String>,
}

/// The outcome of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The stack file.
    pub file: String,
    /// The changes, one by one; with a dry run, those that would be made.
    pub changes: Vec<String>,
}
