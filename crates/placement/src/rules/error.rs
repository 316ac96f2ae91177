//! Why a condition is refused.

use std::fmt;

/// Why a condition is refused: what was found, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionError {
    /// What was found.
    pub found: String,
    /// What to do.
    pub advice: String,
}

impl ConditionError {
    pub(super) fn new(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { found: found.into(), advice: advice.into() }
    }
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.found, self.advice)
    }
}

impl std::error::Error for ConditionError {}
