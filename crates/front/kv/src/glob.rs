//! Patterns of keys as Redis has them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a
//! literal character.

/// Whether a key matches. Takes time by the product of the lengths, not more.
pub(crate) fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut at, mut byte) = (0, 0);
    // The last star, and how far the key is taken by it.
    let mut star: Option<(usize, usize)> = None;
    while byte < key.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, byte));
            at += 1;
            continue;
        }
        if let Some(next) = one(pattern, at, key[byte]) {
            (at, byte) = (next, byte + 1);
            continue;
        }
        let Some((begun, taken)) = star else { return false };
        star = Some((begun, taken + 1));
        (at, byte) = (begun + 1, taken + 1);
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

/// Where the pattern goes on behind the part that matches one byte.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        same => (same == byte).then_some(at + 1),
    }
}

fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match *pattern.get(at)? {
            b']' => break,
            b'\\' if at + 1 < pattern.len() => {
                found |= pattern[at + 1] == byte;
                at += 2;
            }
            low if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                let high = pattern[at + 2];
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            same => {
                found |= same == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at + 1)
}

/// The prefix of all matching keys.
pub(crate) fn prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: [(&str, &str, bool); 18] = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbc", false),
            ("[a", "a", false),
            ("a**", "a", true),
            ("*ab", "aab", true),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), key.as_bytes()), expected, "{pattern} {key}");
        }
        assert_eq!(prefix(b"user:*:x"), b"user:");
    }

    #[test]
    fn many_stars_take_no_forever() {
        let pattern = b"*a".repeat(100);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &[b'a'; 250]));
    }
}
