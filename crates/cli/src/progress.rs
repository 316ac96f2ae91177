//! Progress on standard error: one line that is redrawn on a terminal, or a
//! line now and then elsewhere. `fsck` and jobs use it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR_WIDTH: u64 = 30;

/// Time between two lines. Shorter work prints none.
const PACE: Duration = Duration::from_secs(5);

/// Shows progress; leaves no trace on a terminal when it is dropped.
pub(crate) struct Progress {
    /// The line on a terminal, cut at the terminal's width.
    line: Option<ProgressBar>,
    /// When the last line was written elsewhere.
    written: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let line = io::stderr().is_terminal().then(|| ProgressBar::new_spinner().with_style(style));
        Self { line, written: Instant::now() }
    }

    pub(crate) fn show(&mut self, text: &str) {
        match &self.line {
            Some(line) => line.set_message(text.to_owned()),
            None if self.written.elapsed() >= PACE => self.write(text),
            None => {}
        }
    }

    /// Shows a text at once, on a terminal or not.
    pub(crate) fn show_now(&mut self, text: &str) {
        match &self.line {
            Some(line) => {
                line.set_message(text.to_owned());
                line.force_draw();
            }
            None => self.write(text),
        }
    }

    fn write(&mut self, text: &str) {
        self.written = Instant::now();
        // A reader that went away is no reason to end.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
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
