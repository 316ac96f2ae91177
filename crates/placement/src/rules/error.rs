//! Why a condition is refused.

use std::fmt;

/// Why a condition is refused: the finding, and advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionError {
    /// The finding.
    pub found: String,
    /// The advice.
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
