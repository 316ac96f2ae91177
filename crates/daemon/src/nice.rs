//! The nice value of the daemon: its priority beside other programs.

use crate::config::MountSettings;
use crate::refusal::{Located, Refusal};
use rustix::process::{getpid, setpriority_process};
use std::io;
use std::ops::RangeInclusive;

/// The nice values that there are.
const VALUES: RangeInclusive<i32> = -20..=19;

/// The nice value that a text stands for.
///
/// # Errors
/// Advice, if there is none.
pub fn parse(text: &str) -> Result<i32, String> {
    let value = text.parse().ok().filter(|value| VALUES.contains(value));
    value.ok_or_else(|| format!("write a whole number from {} to {}", VALUES.start(), VALUES.end()))
}

/// Gives this process the nice value of a mount, if that has one. Threads get it from the one that
/// begins them, so that this comes first.
///
/// # Errors
/// If it may not have that.
pub(crate) fn apply(mount: &MountSettings) -> Result<(), Refusal> {
    let Some(Located { value, place }) = &mount.nice else { return Ok(()) };
    setpriority_process(Some(getpid()), *value).map_err(|error| {
        let advice =
            "a value below the present one needs root, or RLIMIT_NICE: leave it out, or write a higher one";
        place.refuse(format!("{value}: {}", io::Error::from(error)), advice)
    })
}
