//! Sizes and durations in conditions: `64KiB` becomes `65536`, and `5m` a call
//! of [`NANOSECONDS`], which distinguishes the two.

use super::error::ConditionError;
use braid_contract::units::{DURATIONS, SIZES, split_number, unit};

/// The function that a duration becomes a call of.
pub(super) const NANOSECONDS: &str = "nanoseconds";

/// The text with numbers in place of sizes and durations. Quoted text stays as
/// it is.
pub(super) fn replace(text: &str) -> Result<String, ConditionError> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' | '\'' => quoted(rest, first),
            _ if is_word(first) => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(len);
        match first.is_ascii_digit() {
            true => plain.push_str(&number(token)?),
            false => plain.push_str(token),
        }
        rest = after;
    }
    Ok(plain)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Length of the text in quotes that `text` begins with.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A word that begins with a digit.
fn number(word: &str) -> Result<String, ConditionError> {
    let (number, name) = split_number(word);
    if name.is_empty() {
        return Ok(word.to_owned());
    }
    let times =
        |factor: u64| number.parse::<u64>().ok()?.checked_mul(factor).filter(|n| i64::try_from(*n).is_ok());
    let (size, duration) = (unit(SIZES, name), unit(DURATIONS, name));
    let value = size.or(duration).and_then(times).ok_or_else(|| {
        ConditionError::new(
            format!("found '{word}', expected a number, a size or a duration"),
            "write 4096, 64KiB (1024s), 64KB (1000s), or 90s; units are KiB, MiB, GiB, TiB, KB, MB, GB, TB, \
             ns, us, ms, s, m, h and d",
        )
    })?;
    Ok(if size.is_some() { value.to_string() } else { format!("{NANOSECONDS}({value})") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_become_numbers_outside_of_quotes_only() {
        for (text, plain) in [
            ("size < 64KiB", "size < 65536"),
            ("age>2m||age<1d", "age>nanoseconds(120000000000)||age<nanoseconds(86400000000000)"),
            ("path == \"64KiB\" && x5s < 5", "path == \"64KiB\" && x5s < 5"),
            (r#"path == "a\"5s" && size > 1KB"#, r#"path == "a\"5s" && size > 1000"#),
            ("path == '5s' || size == 10", "path == '5s' || size == 10"),
            ("path == \"é5s", "path == \"é5s"),
        ] {
            assert_eq!(replace(text).as_deref(), Ok(plain));
        }
        for wrong in ["64K", "5min", "99999999999TiB", "1e5", "0x10", "3u"] {
            assert!(replace(wrong).is_err(), "{wrong}");
        }
    }
}
