//! Refusals as answers of the control socket.

use crate::refusal::Refusal;
use braid_contract::{Errno, Error, Shown};
use braid_ipc::protocol::ErrorReply;
use std::path::Path;

/// A finding, and advice.
pub(crate) fn refused(errno: Errno, what: &str, advice: &str) -> ErrorReply {
    ErrorReply { errno: Some(errno.0), message: format!("{what}\n  help: {advice}") }
}

/// The request is wrong.
pub(crate) fn invalid(refusal: Refusal) -> ErrorReply {
    ErrorReply { errno: Some(Errno::EINVAL.0), message: refusal.to_string() }
}

/// Advice on a device that is in use otherwise.
pub(crate) const DEVICE_IN_USE: &str = "end what uses it; lsblk and fuser tell what that is";

/// Advice on a zoned device with other contents.
pub(crate) const EMPTY_IT: &str = "name another device, or empty this one: blkzone reset DEVICE, and zeros over \
    the first two conventional zones, if there are any";

/// Advice on a path that can't be opened as a tier, by the error.
pub(crate) fn advice_on(dir: &Path, error: &Error) -> &'static str {
    match error.errno() {
        Errno::ENOTEMPTY => {
            "name another device, or put zeros there: blkdiscard --zeroout --length BYTES DEVICE"
        }
        Errno::EUCLEAN if braid_log::is_log_at(dir) => {
            "see what is wrong: braid log check DEVICE; read what is left: braid log mount --salvage DEVICE DIRECTORY"
        }
        Errno::EINVAL if !dir.is_dir() => {
            "mend `zoned: { unit: SIZE }` of the tier; to cut the device anew, put zeros over its beginning"
        }
        _ => "check the directory and its file system",
    }
}

/// A directory or a device can't be opened as a tier.
pub(crate) fn cant_open(dir: &Path, error: &Error) -> ErrorReply {
    match error.errno() {
        Errno::EBUSY if !dir.is_dir() => refused(Errno::EBUSY, &error.to_string(), DEVICE_IN_USE),
        Errno::EBUSY => {
            let what = format!("{}: the directory is a tier of a volume that is mounted now", dir.shown());
            refused(Errno::EBUSY, &what, "name an empty directory of its own")
        }
        errno => refused(errno, &error.to_string(), advice_on(dir, error)),
    }
}
