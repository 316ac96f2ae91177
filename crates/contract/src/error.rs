//! The one error type of every operation.

use crate::{Errno, Retry};
use std::fmt;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed: the error number that the application sees, and,
/// where it will be logged or shown, the operation and its object.
///
/// An error without context is two words and allocates nothing, since `ENOENT`
/// is an ordinary answer. Context is added where the name of the thing is
/// known; the error is logged where it is consumed, not where it passes.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    errno: Errno,
    context: Option<Box<Contexts>>,
}

/// Boxed, so that an error without context stays small.
#[derive(Clone, Default, PartialEq, Eq)]
struct Contexts {
    /// Innermost first.
    texts: Vec<String>,
    refusal: Option<RefusalKind>,
}

/// Why the volume refused a request about its tiers and jobs: the daemon
/// chooses its advice by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// It makes no sense, or not now; the text gives the whole reason.
    Request,
    /// A job that has not ended is in the way.
    Job,
    /// There is no room for the data that would have to move.
    Room,
    /// The tier is home, which has to stay.
    Home,
    /// The policy, or a rule of it, names the tier.
    Policy,
    /// The tier holds data.
    Occupied,
    /// The tier is healthy: its data would be lost.
    Healthy,
    /// The tier is failing, hangs or is absent.
    Trouble,
    /// The directory or the name already belongs to a tier.
    Taken,
    /// An operation is under way that ends by itself.
    Busy,
}

impl Error {
    /// An error with a description of the operation, outermost context last.
    #[must_use]
    pub fn new(errno: Errno, context: impl Into<String>) -> Self {
        Self::with_text(errno, context.into(), None)
    }

    /// A refusal. The text says it all: the system's words for the number are
    /// not added to it.
    #[must_use]
    pub fn refused(errno: Errno, why: RefusalKind, text: impl Into<String>) -> Self {
        Self::with_text(errno, text.into(), Some(why))
    }

    fn with_text(errno: Errno, text: String, refusal: Option<RefusalKind>) -> Self {
        Self { errno, context: Some(Box::new(Contexts { texts: vec![text], refusal })) }
    }

    /// The error number that the application sees.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The kind of a [refusal](Self::refused); `None` for other errors.
    #[must_use]
    pub fn refusal(&self) -> Option<RefusalKind> {
        self.context.as_ref()?.refusal
    }

    /// Adds the operation during which this error passed.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context.get_or_insert_default().texts.push(context.into());
        self
    }

    /// Whether, when and where a retry makes sense ([`Errno::retry`]). A
    /// [refusal](Self::refused) is final, whatever its number.
    #[must_use]
    pub fn retry(&self) -> Retry {
        if self.refusal().is_some() { Retry::Never } else { self.errno.retry() }
    }

    /// Whether the same request may succeed in a moment.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retry() == Retry::Soon
    }

    /// Whether the tier that answered this has no room ([`Errno::is_full`]).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.errno.is_full()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self { errno, context: None }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Errno(errno.raw_os_error()).into()
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Errno(number).into(),
            None => Self::new(Errno::EIO, error.to_string()),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno.0).kind();
        Self::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(contexts) = &self.context {
            f.write_str(&contexts.texts.iter().rev().map(String::as_str).collect::<Vec<_>>().join(": "))?;
            if contexts.refusal.is_some() {
                return Ok(());
            }
            f.write_str(": ")?;
        }
        let text = std::io::Error::from_raw_os_error(self.errno.0);
        write!(f, "{text}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Adds context to any result whose error becomes an [`Error`].
pub trait Context<T> {
    /// Adds `context` to the error, if it is one.
    ///
    /// # Errors
    /// The error it was called on.
    fn context(self, context: &str) -> Result<T>;

    /// Adds the context that `context` builds to the error, if it is one.
    ///
    /// # Errors
    /// The error it was called on.
    fn with_context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, context: &str) -> Result<T> {
        self.map_err(|error| error.into().context(context))
    }

    fn with_context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final_and_other_errors_go_by_their_number() {
        assert!(Error::new(Errno::EAGAIN, "busy").context("reading").is_retryable());
        assert!(!Error::from(Errno::ENOENT).is_retryable());
        assert_eq!(Error::from(Errno::EDQUOT).retry(), Retry::Elsewhere);
        assert_eq!(Error::from(Errno::ESTALE).retry(), Retry::AfterRecovery);
        assert_eq!(Error::refused(Errno::EAGAIN, RefusalKind::Job, "later").retry(), Retry::Never);
    }

    #[test]
    fn context_reads_from_the_outside_in() {
        let error = Error::from(Errno::ENOSPC).context("writing the index").context("file 7");
        assert_eq!(error.to_string(), "file 7: writing the index: No space left on device (os error 28)");
        assert_eq!(error.errno(), Errno::ENOSPC);
    }

    #[test]
    fn a_refusal_has_words_of_its_own_and_keeps_its_kind() {
        let error =
            Error::refused(Errno::EBUSY, RefusalKind::Policy, "the policy names tier a").context("tier a");
        assert_eq!(error.to_string(), "tier a: the policy names tier a");
        assert_eq!((error.errno(), error.refusal()), (Errno::EBUSY, Some(RefusalKind::Policy)));
        assert_eq!(Error::new(Errno::EBUSY, "the policy").refusal(), None);
    }

    #[test]
    fn errno_survives_io_error() {
        let error: std::io::Error = Error::new(Errno::ENOENT, "x").into();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
