//! Patterns of paths, as shells and `.gitignore` have them.
//!
//! `*` stands for any characters but `/`, `**` for any at all, `?` for one but
//! `/`, `[a-z]` and `[!a-z]` for one of some. A pattern without `/` is matched
//! against the name alone, any other one against the path from the volume's
//! root.
//!
//! A pattern becomes a regular expression, of which `regex` promises that it
//! takes no longer than its length times that of the path. The crates for globs
//! match bytes instead of characters, read `{}` and `\` as well, or promise no
//! time.

use crate::sync::RwLock;
use regex::Regex;
use std::collections::BTreeMap;

/// So many patterns are kept compiled.
const KEPT_MAX: usize = 256;

/// Whether `path` matches. No path matches what is no pattern.
pub fn matches(pattern: &str, path: &str) -> bool {
    let path = match pattern.contains('/') {
        true => path,
        false => path.rsplit('/').next().unwrap_or(path),
    };
    compiled(pattern).is_some_and(|regex| regex.is_match(path))
}

/// Whether a pattern can be read; the error is what is wrong.
pub fn check(pattern: &str) -> Result<(), String> {
    compile(pattern).map(drop)
}

/// The pattern's expression. It is kept, because a condition has only the text
/// of its patterns when it is looked at.
fn compiled(pattern: &str) -> Option<Regex> {
    static KEPT: RwLock<BTreeMap<String, Regex>> = RwLock::new(BTreeMap::new());
    if let Some(regex) = KEPT.read().get(pattern) {
        return Some(regex.clone());
    }
    let regex = compile(pattern).ok()?;
    let mut kept = KEPT.write();
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    Some(regex)
}

fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("it is empty".into());
    }
    let expression = expression(pattern.strip_prefix('/').unwrap_or(pattern))?;
    Regex::new(&expression).map_err(|_| "it is too long".into())
}

/// The regular expression of a pattern.
fn expression(mut rest: &str) -> Result<String, String> {
    let mut expression = String::from("(?s)^");
    while let Some(first) = rest.chars().next() {
        // "a/**/b" is for "a/b" too.
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

/// What stands in the brackets that `text` begins with: one character at least.
fn set(text: &str) -> Result<&str, String> {
    let inside = &text[1..];
    let begins = inside.chars().next().map_or(0, char::len_utf8);
    let end = inside[begins..].find(']').ok_or("a '[' is not closed")?;
    Ok(&inside[..begins + end])
}

/// The class of characters of such a set.
fn class(set: &str) -> Result<String, String> {
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
            return Err(format!("'{first}-{last}' is no range"));
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
            ("", "a"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(check("[a").is_err() && check("").is_err() && check("a/**/[b]?").is_ok());
        assert_eq!(check("x[z-a]"), Err("'z-a' is no range".into()));
    }
}
