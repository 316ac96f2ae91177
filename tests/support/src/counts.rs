//! How many checks ended how: counted by the suites, summed by
//! `cargo xtask test`.

use crate::error::{Failure, fail};
use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

/// How many checks ended how.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// As they should.
    pub passed: u64,
    /// Otherwise.
    pub failed: u64,
    /// Not made.
    pub skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

/// Parses the displayed form, and the figures of Rust's test harness.
impl FromStr for Counts {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let mut counts = Self::default();
        let mut is_known = false;
        for part in text.split([',', ';']).map(str::trim) {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse() else { continue };
            let count = match what {
                "passed" => &mut counts.passed,
                "failed" => &mut counts.failed,
                "skipped" | "ignored" => &mut counts.skipped,
                _ => continue,
            };
            *count = number;
            is_known = true;
        }
        if is_known { Ok(counts) } else { fail(format!("no counts: {text:?}")) }
    }
}

/// Reads `SKIPPED: test: needs root`, the line of a skipped test.
pub fn skipped_test(line: &str) -> Option<&str> {
    Some(line.split_once("SKIPPED: ")?.1)
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub fn test_result(line: &str) -> Option<Counts> {
    let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    figures.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_can_be_read() {
        for counts in [
            Counts { passed: 12, failed: 2, skipped: 1 },
            Counts { passed: 3, failed: 0, skipped: 0 },
            Counts { passed: 0, failed: 0, skipped: 7 },
            Counts::default(),
        ] {
            assert_eq!(counts.to_string().parse(), Ok(counts));
        }
        assert!("error: 3".parse::<Counts>().is_err());
    }

    #[test]
    fn the_harness_s_figures_are_read() {
        let figures = "12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(figures.parse(), Ok(Counts { passed: 12, failed: 2, skipped: 1 }));
    }

    #[test]
    fn results_of_cargo_test_are_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some(Counts { passed: 12, failed: 2, skipped: 1 }));
        assert_eq!(test_result("running 3 tests"), None);
        assert_eq!(skipped_test("SKIPPED: a_test: needs root"), Some("a_test: needs root"));
        assert_eq!(skipped_test("test a_test ... ok"), None);
    }
}
