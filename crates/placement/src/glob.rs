//! Patterns of paths, as shells and `.gitignore` have them.
//!
//! `*` stands for any characters but `/`, `**` for any at all, `?` for one but
//! `/`, `[a-z]` and `[!a-z]` for one of some. A pattern without `/` is matched
//! against the name alone, any other one against the path from the volume's
//! root.

/// Whether `path` matches.
pub fn matches(pattern: &str, path: &str) -> bool {
    let path = match pattern.contains('/') {
        true => path,
        false => path.rsplit('/').next().unwrap_or(path),
    };
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    // What is left to match after each place of the pattern, from the end on:
    // no pattern takes longer than its length times that of the path.
    let mut fits: Vec<bool> = (0..=path.len()).map(|at| at == path.len()).collect();
    for token in tokens(&pattern).into_iter().rev() {
        fits = (0..=path.len()).map(|at| fits_at(&token, &path, at, &fits)).collect();
        if matches!(token, Token::Some | Token::Any) {
            spread(&token, &path, &mut fits);
        }
    }
    fits[0]
}

/// Whether a pattern can be read; the error is what is wrong.
pub fn check(pattern: &str) -> Result<(), String> {
    let mut open = false;
    for c in pattern.chars() {
        match c {
            '[' if !open => open = true,
            ']' => open = false,
            _ => {}
        }
    }
    match open {
        true => Err("a '[' is not closed".into()),
        false if pattern.is_empty() => Err("it is empty".into()),
        false => Ok(()),
    }
}

enum Token<'a> {
    One(char),
    /// `?`
    AnyOne,
    /// `*`
    Some,
    /// `**`, and a `/` after it
    Any,
    /// `[…]`
    Of(&'a [char]),
}

fn tokens(pattern: &[char]) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.first() {
        let (token, len) = match (first, rest.get(1), rest.get(2)) {
            // "a/**/b" is for "a/b" too.
            ('*', Some('*'), Some('/')) => (Token::Any, 3),
            ('*', Some('*'), _) => (Token::Any, 2),
            ('*', ..) => (Token::Some, 1),
            ('?', ..) => (Token::AnyOne, 1),
            ('[', ..) => match rest.iter().skip(2).position(|c| *c == ']') {
                Some(end) => (Token::Of(&rest[1..end + 2]), end + 3),
                None => (Token::One('['), 1),
            },
            (c, ..) => (Token::One(*c), 1),
        };
        tokens.push(token);
        rest = &rest[len..];
    }
    tokens
}

/// Whether `path` from `at` on matches the token and what comes after it, for
/// which `fits` says where it may begin.
fn fits_at(token: &Token<'_>, path: &[char], at: usize, fits: &[bool]) -> bool {
    let next = || fits.get(at + 1).copied().unwrap_or(false);
    let Some(c) = path.get(at) else { return matches!(token, Token::Some | Token::Any) && fits[at] };
    match token {
        Token::One(wanted) => c == wanted && next(),
        Token::AnyOne => *c != '/' && next(),
        Token::Of(set) => *c != '/' && is_of(set, *c) && next(),
        Token::Some | Token::Any => fits[at],
    }
}

/// A star takes any number of characters before what comes after it.
fn spread(token: &Token<'_>, path: &[char], fits: &mut [bool]) {
    for at in (0..path.len()).rev() {
        let takes = matches!(token, Token::Any) || path[at] != '/';
        fits[at] = fits[at] || takes && fits[at + 1];
    }
}

fn is_of(set: &[char], c: char) -> bool {
    let (inverted, mut rest) = match set {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    while let [first, after @ ..] = rest {
        match after {
            ['-', last, beyond @ ..] => {
                found |= (*first..=*last).contains(&c);
                rest = beyond;
            }
            _ => {
                found |= *first == c;
                rest = after;
            }
        }
    }
    found != inverted
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
            ("", "a"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(check("[a").is_err() && check("").is_err() && check("a/**/[b]?").is_ok());
    }
}
