//! The error of a mount that is not served.

use crate::refusal::Refusal;
use std::fmt;

/// The error of a daemon that did not start, or failed.
#[derive(Debug)]
pub enum ServeError {
    /// The configuration can't be mounted; nothing is.
    Refused(Refusal),
    /// It was mounted, and ended with this error.
    Failed(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<Refusal> for ServeError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
