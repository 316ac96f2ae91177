//! Logs: one line per event, to standard error or to a file.

use crate::refusal::{Place, Refusal};
use braid_contract::Shown;
use rustix::fs::OFlags;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The level without a flag.
pub const LEVEL_DEFAULT: &str = "info";

/// Opens a log for appending; only its owner may read it. Only this user and
/// root decide which file that is: symbolic links of others are not followed,
/// and their files not written to.
///
/// # Errors
/// If it can't be created or opened, or another user could redirect it.
pub fn open(path: &Path) -> io::Result<File> {
    let linked = check_links(path)?;
    // Opening a FIFO must not block; it is refused below.
    let mut flags = OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !linked);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.is_file() && braid_sys::check_owner(&found).is_err() {
        return Err(refused(format!("it belongs to user {}", found.uid())));
    }
    if found.is_file() && found.nlink() > 1 {
        return Err(refused("it has other names (hard links)".into()));
    }
    if !found.is_file() && !found.file_type().is_char_device() {
        return Err(refused("it is not a regular file".into()));
    }
    Ok(file)
}

/// Refuses a path that leads through a symbolic link of another user. Returns
/// whether its end is a link.
fn check_links(path: &Path) -> io::Result<bool> {
    let path = std::path::absolute(path)?;
    let mut linked = false;
    for part in path.ancestors() {
        let Ok(found) = std::fs::symlink_metadata(part) else { continue };
        if found.is_symlink() && braid_sys::check_owner(&found).is_err() {
            let whose = format!("{} is a symbolic link of user {}", part.shown(), found.uid());
            return Err(refused(whose));
        }
        linked |= found.is_symlink() && part == path;
    }
    Ok(linked)
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Sends events from `level` on (or by a filter such as
/// `info,braid_volume=debug`) to `file`, or to standard error.
///
/// # Errors
/// If `level` is not understood.
pub fn start(level: &str, file: Option<File>) -> Result<(), Refusal> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        let advice = "write error, warn, info, debug or trace, or a filter such as info,braid_volume=debug";
        Place::flag(format!("--log-level {level}")).refuse(format!("not understood: {error}"), advice)
    })?;
    let writer = match file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(io::stderr),
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_target(true).with_writer(writer);
    // An error means that a subscriber exists already, and that one stays.
    let _ = tracing_subscriber::registry().with(filter).with(lines).with(WithoutLateAnswers).try_init();
    Ok(())
}

/// Drops harmless errors: the library's answer to an interruption that arrives
/// after the request has ended.
struct WithoutLateAnswers;

impl<S: Subscriber> Layer<S> for WithoutLateAnswers {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut late = Late(false);
        if *event.metadata().level() == Level::ERROR {
            event.record(&mut late);
        }
        !late.0
    }
}

/// Whether an event is about an answer without a waiting request.
struct Late(bool);

impl Visit for Late {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 |= field.name() == "message" && is_late(&format!("{value:?}"));
    }
}

/// The message of the FUSE library when the kernel does not know the request of
/// an answer.
fn is_late(message: &str) -> bool {
    message.starts_with("Failed to send FUSE reply: ") && message.ends_with("(os error 2)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Counts(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Counts {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(event.metadata().level().to_string());
        }
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_no_error() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let counts = Counts(Arc::clone(&seen));
        let subscriber = tracing_subscriber::registry().with(counts).with(WithoutLateAnswers);
        tracing::subscriber::with_default(subscriber, || {
            let [late, other] = [2, 22].map(io::Error::from_raw_os_error);
            tracing::error!("Failed to send FUSE reply: {late}");
            assert!(seen.lock().unwrap().is_empty());
            tracing::error!("Failed to send FUSE reply: {other}");
            tracing::error!("something else: {late}");
        });
        assert_eq!(*seen.lock().unwrap(), ["ERROR", "ERROR"]);
    }
}
