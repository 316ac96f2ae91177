//! A pattern of paths as a setting.

use braid_hint::Glob;
use serde::Deserialize;
use std::path::Path;

/// A pattern of paths, as in rules; checked when it is parsed.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(Glob);

impl Pattern {
    /// Whether the path, from the root on and without a leading `/`, matches.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        self.0.matches(&path.to_string_lossy())
    }

    /// Whether the path matches, or is the directory of all that matches: `a/**`
    /// includes `a`.
    pub(crate) fn includes(&self, path: &Path) -> bool {
        self.matches(path) || self.covers_below(path)
    }

    /// Whether all paths below the directory match for sure.
    pub(crate) fn covers_below(&self, dir: &Path) -> bool {
        self.0.pattern().ends_with("**") && self.0.matches(&below(dir))
    }

    /// Whether a path below the directory may match: `true` in doubt.
    pub(crate) fn may_match_below(&self, dir: &Path) -> bool {
        if self.is_of_names() {
            return true;
        }
        let pattern = self.0.pattern();
        let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
        let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
        let dir = below(dir);
        literal.starts_with(&dir) || dir.starts_with(literal)
    }

    /// Whether it is matched against the name alone, wherever that is.
    pub(crate) fn is_of_names(&self) -> bool {
        !self.0.pattern().contains('/')
    }
}

/// The beginning of all paths below a directory.
fn below(dir: &Path) -> String {
    let dir = dir.to_string_lossy();
    if dir.is_empty() { String::new() } else { format!("{dir}/") }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Glob::new(&text).map(Self).map_err(|what| format!("'{text}' is not a pattern of paths: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_pattern_of_all_below_a_directory_includes_it() {
        for (text, path) in [("a/**", "a"), ("a/**", "a/b"), ("/a/**", "a"), ("**", ""), ("*/c/**", "b/c")] {
            assert!(pattern(text).includes(Path::new(path)), "{text} {path}");
        }
        for (text, path) in [("a/**", "ab"), ("a/**", ""), ("a/*", "a"), ("a/**/b", "a")] {
            assert!(!pattern(text).includes(Path::new(path)), "{text} {path}");
        }
    }

    #[test]
    fn what_may_be_below_a_directory() {
        let cases = [
            ("a/b/**", "a", false, true),
            ("a/b/**", "a/b", true, true),
            ("a/b/**", "a/b/c", true, true),
            ("a/b/**", "a/bc", false, false),
            ("a/b/**", "", false, true),
            ("/a/b/**", "a", false, true),
            ("**", "x", true, true),
            ("*.key", "x", false, true),
            ("a/*.key", "a", false, true),
            ("a/*.key", "b", false, false),
            ("?/b", "a", false, true),
        ];
        for (text, dir, covers, may) in cases {
            let (pattern, dir) = (pattern(text), Path::new(dir));
            let found = (pattern.covers_below(dir), pattern.may_match_below(dir));
            assert_eq!(found, (covers, may), "{text} {}", dir.display());
        }
    }
}
