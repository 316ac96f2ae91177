//! Tests with unmet requirements: they print the reason, and pass only where
//! that is allowed.

use std::io::Write;

/// Fails tests that would be skipped, if it is set to anything but `0`: where
/// all of them are to run.
pub const ALL_TESTS: &str = "BRAID_TESTS_NEED_ROOT";

/// Says that the test of this thread is skipped, and which rights or devices it
/// needs. The line `SKIPPED: TEST: needs WHAT` is seen without `--nocapture`
/// too, and counted by `cargo xtask test`.
///
/// # Panics
///
/// Where [`ALL_TESTS`] says that nothing may be skipped.
#[track_caller]
pub fn skipped(needs: &str) {
    assert!(!must_run_all(), "this test needs {needs}, and {ALL_TESTS} is set");
    unsupported(needs);
}

/// Whether [`ALL_TESTS`] says that nothing may be skipped.
#[must_use]
pub fn must_run_all() -> bool {
    std::env::var_os(ALL_TESTS).is_some_and(|value| value != "0" && !value.is_empty())
}

/// As [`skipped`], for needs that no rights help with, such as a newer kernel.
pub fn unsupported(needs: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // The macros' output is kept back of a test that passes.
    let _ = std::io::stdout().write_all(format!("\nSKIPPED: {test}: needs {needs}\n").as_bytes());
}
