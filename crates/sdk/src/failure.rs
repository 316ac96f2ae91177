//! Errors on both sides of the interface.

use braid_contract::{Errno, Error};
use braid_sys::module::Failure;

/// The interface's form of an error.
pub(crate) fn of_error(error: &Error) -> Failure {
    let (errno, text) = (error.errno(), error.to_string());
    let plain = Error::from(errno).to_string();
    // The other side adds the meaning of the number again.
    let why = text.strip_suffix(&plain).unwrap_or(&text).trim_end_matches(": ");
    Failure { errno: errno.0, why: why.to_owned() }
}

/// The error of a failure that comes from the interface.
#[must_use]
pub fn error_of(failure: Failure) -> Error {
    match failure.why.as_str() {
        "" => Errno(failure.errno).into(),
        _ => Error::new(Errno(failure.errno), failure.why),
    }
}

/// The other side's answer breaks the rules of the interface.
pub(crate) fn breach(what: &str) -> Failure {
    Failure { errno: Errno::EIO.0, why: format!("a module breaks the rules of the interface: {what}") }
}
