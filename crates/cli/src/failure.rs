//! How a command that failed says so.

use braid_daemon::Refusal;
use std::fmt;
use std::process::ExitCode;

/// A message for the user, and the exit status that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    usage: bool,
    told: bool,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false, told: false }
    }

    /// The command was called in a way that makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true, told: false }
    }

    /// The same, after the user was told in another way.
    pub(crate) fn told(self) -> Self {
        Self { told: true, ..self }
    }

    /// Whether the command was called in a way that makes no sense.
    pub(crate) fn is_usage(&self) -> bool {
        self.usage
    }

    /// Prints the message to standard error, unless it was told already: status 2 for a wrong call, 1 for
    /// everything else.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.told {
            eprintln!("braid: {self}");
        }
        ExitCode::from(if self.usage { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.to_string())
    }
}
