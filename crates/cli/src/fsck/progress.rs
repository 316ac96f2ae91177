//! How far a check has come, on standard error: a bar that is drawn over and
//! over on a terminal, a line now and then elsewhere.

use braid_ipc::protocol::FsckProgress;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR_WIDTH: u64 = 30;

/// Time between two lines. A check that ends before says nothing.
const PACE: Duration = Duration::from_secs(5);

/// Shows progress; leaves no trace on a terminal when it is dropped.
pub(super) struct Progress {
    terminal: bool,
    /// When the last line was written.
    told: Instant,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), told: Instant::now() }
    }

    pub(super) fn show(&mut self, now: &FsckProgress) {
        let mut stderr = io::stderr().lock();
        // Nobody has to see it.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{}", render(now)).and_then(|()| stderr.flush());
        } else if self.told.elapsed() >= PACE {
            self.told = Instant::now();
            let _ = writeln!(stderr, "{}", render(now));
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

fn render(now: &FsckProgress) -> String {
    match now.total.filter(|total| *total > 0) {
        None if now.done == 0 => format!("checking {}", now.phase),
        None => format!("checking {}: {}", now.phase, now.done),
        Some(total) => {
            let done = now.done.min(total);
            let full = (done * BAR_WIDTH / total) as usize;
            let bar = format!("{:-<width$}", "#".repeat(full), width = BAR_WIDTH as usize);
            format!("checking {} [{bar}] {done}/{total}", now.phase)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_where_the_end_is_known() {
        let now = |done, total| FsckProgress { phase: "files".into(), done, total };
        assert_eq!(render(&now(0, None)), "checking files");
        assert_eq!(render(&now(7, None)), "checking files: 7");
        let bar = render(&now(1, Some(2)));
        assert_eq!(bar, "checking files [###############---------------] 1/2");
        assert!(render(&now(9, Some(2))).ends_with("] 2/2"));
    }
}
