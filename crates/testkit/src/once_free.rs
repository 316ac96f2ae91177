//! Waits for resources that a dropped volume still holds.

use braid_contract::{Errno, Result};
use std::time::Instant;

/// Opens a directory, which a thread of a volume that was dropped as if it was
/// killed may hold for a moment.
///
/// # Panics
///
/// If it can't be opened, or is not free within ten seconds.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn once_free<T>(open: impl Fn() -> Result<T>) -> T {
    let since = Instant::now();
    loop {
        match open() {
            Err(error) if error.errno() == Errno::EBUSY && since.elapsed().as_secs() < 10 => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}
