//! Patterns of paths, as in shells and `.gitignore`.
//!
//! `*` stands for any characters but `/`, `**` for any at all, `?` for one but
//! `/`, `[a-z]` and `[!a-z]` for one of some. A pattern without `/` is matched
//! against the name alone, any other one against the path from the volume's
//! root.
//!
//! A pattern becomes a regular expression, since `regex` guarantees a time of
//! at most the pattern's length times the path's. The crates for globs match
//! bytes instead of characters, interpret `{}` and `\` as well, or guarantee no
//! time.

use regex::Regex;
use std::fmt;

/// A pattern of paths, compiled.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: String,
    regex: Regex,
    /// It is matched against the name alone.
    name_only: bool,
}

/// Why a pattern is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GlobError {
    /// It is empty.
    Empty,
    /// A set of characters has no end.
    Open,
    /// A range of characters is reversed.
    Range(char, char),
    /// It needs too much memory.
    TooLong,
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Open => f.write_str("a '[' is not closed"),
            Self::Range(first, last) => write!(f, "'{first}-{last}' is no range"),
            Self::TooLong => f.write_str("it is too long"),
        }
    }
}

impl std::error::Error for GlobError {}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        let expression = expression(pattern.strip_prefix('/').unwrap_or(pattern))?;
        let regex = Regex::new(&expression).map_err(|_| GlobError::TooLong)?;
        Ok(Self { pattern: pattern.to_owned(), regex, name_only: !pattern.contains('/') })
    }

    /// As it was written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether the path, from the volume's root on and without a leading `/`,
    /// matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path = if self.name_only { path.rsplit('/').next().unwrap_or(path) } else { path };
        self.regex.is_match(path)
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

/// The regular expression of a pattern.
fn expression(mut rest: &str) -> Result<String, GlobError> {
    let mut expression = String::from("(?s)^");
    while let Some(first) = rest.chars().next() {
        // "a/**/b" also matches "a/b".
        let len = if let Some(after) = rest.strip_prefix("**") {
            expression += if after.starts_with('/') { "(?:.*/)?" } else { ".*" };
            2 + usize::from(after.starts_with('/'))
        } else {
            match first {
                '*' => expression += "[^/]*",
                '?' => expression += "[^/]",
                '[' => {
                    let set = set(rest)?;
                    expression += &class(set)?;
                    rest = &rest[set.len() + 1..];
                }
                c => expression += &regex::escape(c.encode_utf8(&mut [0; 4])),
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    Ok(expression + "$")
}

/// The set in the brackets that `text` begins with: one character at least.
fn set(text: &str) -> Result<&str, GlobError> {
    let inside = &text[1..];
    let begins = inside.chars().next().map_or(0, char::len_utf8);
    let end = inside[begins..].find(']').ok_or(GlobError::Open)?;
    Ok(&inside[..begins + end])
}

/// The class of characters of such a set.
fn class(set: &str) -> Result<String, GlobError> {
    let inner = set.strip_prefix(['!', '^']);
    let (mut class, members) = match inner {
        Some(members) => (String::from("[^/"), members),
        None => (String::from("[[^/]&&["), set),
    };
    let members: Vec<char> = members.chars().collect();
    let mut rest = &members[..];
    while let [first, after @ ..] = rest {
        let (last, beyond) = match after {
            ['-', last, beyond @ ..] => (last, beyond),
            _ => (first, after),
        };
        if last < first {
            return Err(GlobError::Range(*first, *last));
        }
        class += &format!("\\x{{{:x}}}-\\x{{{:x}}}", u32::from(*first), u32::from(*last));
        rest = beyond;
    }
    class += if inner.is_some() { "]" } else { "]]" };
    Ok(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::new(pattern).unwrap().matches(path)
    }

    #[test]
    fn patterns() {
        for (pattern, path) in [
            ("*.wal", "a/b/x.wal"),
            ("*", "a/b"),
            ("a/*.wal", "a/x.wal"),
            ("/a/*", "a/x"),
            ("a/**", "a/b/c"),
            ("a/**/c", "a/b/b/c"),
            ("a/**/c", "a/c"),
            ("**/c", "a/b/c"),
            ("**/c", "c"),
            ("x?[0-9a]", "xy7"),
            ("x?[!0-9a]", "xyb"),
            ("*é*", "d/caféx"),
            ("[]]", "]"),
            ("[é-ü]?", "öñ"),
            ("d/a**b", "d/a/x/b"),
            ("{a,b}.(x)|$", "{a,b}.(x)|$"),
            ("a\\*", "a\\b"),
            ("*", "two\nlines"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.wal", "x.wal.old"),
            ("a/*", "a/b/c"),
            ("a/*", "b/a/c"),
            ("/x", "a/x"),
            ("x?", "x"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("a/**/c", "a/xc"),
            ("a/[.-0]b", "a//b"),
            ("d/a[!x]b", "d/a/b"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (pattern, found) in [
            ("", "it is empty"),
            ("[a", "a '[' is not closed"),
            ("x[z-a]", "'z-a' is no range"),
            (&"[!a]".repeat(1 << 16), "it is too long"),
        ] {
            assert_eq!(Glob::new(pattern).unwrap_err().to_string(), found);
        }
        assert!(Glob::new("a/**/[b]?").is_ok());
    }
}
