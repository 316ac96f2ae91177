//! How far something has come, on standard error: a line that is drawn over and
//! over on a terminal, a line now and then elsewhere. `fsck` and jobs use it.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR_WIDTH: u64 = 30;

/// Time between two lines. What ends before says nothing.
const PACE: Duration = Duration::from_secs(5);

/// Shows progress; leaves no trace on a terminal when it is dropped.
pub(crate) struct Progress {
    terminal: bool,
    /// When the last line was written.
    told: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), told: Instant::now() }
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal || self.told.elapsed() >= PACE {
            self.show_now(text);
        }
    }

    /// Shows what is to be seen at once, on a terminal or not.
    pub(crate) fn show_now(&mut self, text: &str) {
        let mut stderr = io::stderr().lock();
        // Nobody has to see it.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
        } else {
            self.told = Instant::now();
            let _ = writeln!(stderr, "{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A bar, filled as far as `done` is of `total`.
pub(crate) fn bar(done: u64, total: u64) -> String {
    let full = (u128::from(done.min(total)) * u128::from(BAR_WIDTH) / u128::from(total.max(1))) as usize;
    format!("[{:-<width$}]", "#".repeat(full), width = BAR_WIDTH as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_it_should_be() {
        assert_eq!(bar(0, 0), format!("[{}]", "-".repeat(30)));
        assert_eq!(bar(1, 3), format!("[{}{}]", "#".repeat(10), "-".repeat(20)));
        assert_eq!(bar(u64::MAX, u64::MAX), format!("[{}]", "#".repeat(30)));
    }
}
