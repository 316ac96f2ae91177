//! The failure of a command.

use braid_contract::tame;
use braid_daemon::Refusal;
use braid_ipc::ClientError;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// A message for the user, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    usage: bool,
    told: bool,
    errno: Option<i32>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false, told: false, errno: None }
    }

    /// A wrong call of the command.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true, told: false, errno: None }
    }

    /// The same, with the message already shown.
    pub(crate) fn told(self) -> Self {
        Self { told: true, ..self }
    }

    /// An error of the daemon, or of the connection to it.
    pub(crate) fn of_client(error: &ClientError) -> Self {
        let errno = if let ClientError::Refused(refused) = error { refused.errno } else { None };
        Self { errno, ..Self::new(error.to_string()) }
    }

    /// The error number of the daemon's refusal, if it gave one.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// Whether the command was called wrongly.
    pub(crate) fn is_usage(&self) -> bool {
        self.usage
    }

    /// Prints the message to standard error, unless it was shown already.
    /// Status 2 for a wrong call, 1 for everything else.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.told {
            // Standard error may be closed: the status says it too.
            let _ = writeln!(io::stderr(), "braid: {}", tame(&self.message));
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
