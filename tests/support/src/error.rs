//! The error type of the project's commands: a sentence for their user.

use std::fmt;
use std::path::Path;

/// The error message, as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// The result of a command or a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.to_string())
    }
}

/// Ends with a failure of this text.
pub fn fail<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure(text.into()))
}

/// Ends with a failure of this text unless `held`.
pub fn ensure(held: bool, text: impl FnOnce() -> String) -> Result<()> {
    if held { Ok(()) } else { Err(Failure(text())) }
}

/// Adds the operation during which an error occurred.
pub trait Context<T> {
    /// Puts `what` before the error.
    fn context(self, what: impl fmt::Display) -> Result<T>;

    /// Puts the path before the error.
    fn at(self, path: &Path) -> Result<T>
    where
        Self: Sized,
    {
        self.context(path.display())
    }
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
