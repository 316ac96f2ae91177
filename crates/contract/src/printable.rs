//! Printing names safely. The creator of a file chooses its name, which may
//! have line breaks, escape sequences of terminals and characters that reverse
//! the text after them: printed unchanged, it can forge a command's output.
//! This is the only place that escapes; `cargo xtask tidy` refuses `display()`,
//! which does not.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name that is printed unchanged if that is harmless, and else quoted for a
/// shell: `$'two\nlines'`.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(&'a [u8]);

/// A thing with a name to be printed.
pub trait Shown {
    /// The name, for messages, tables and logs.
    fn shown(&self) -> Printable<'_>;
}

impl Shown for Path {
    fn shown(&self) -> Printable<'_> {
        Printable(self.as_os_str().as_bytes())
    }
}

impl Shown for OsStr {
    fn shown(&self) -> Printable<'_> {
        Printable(self.as_bytes())
    }
}

impl Shown for str {
    fn shown(&self) -> Printable<'_> {
        Printable(self.as_bytes())
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if is_harmless(text) => f.write_str(text),
            _ => quote(self.0, f),
        }
    }
}

/// Whether the text can't be mistaken for something else.
fn is_harmless(text: &str) -> bool {
    let blank_ends = text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
    !text.is_empty() && !blank_ends && !text.starts_with("$'") && !text.chars().any(is_unprintable)
}

fn quote(name: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("$'")?;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\'' => write!(f, "\\{c}")?,
                c if is_unprintable(c) => escape(c, f)?,
                c => f.write_char(c)?,
            }
        }
        chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
    }
    f.write_str("'")
}

fn escape(c: char, to: &mut impl Write) -> fmt::Result {
    match (c, u32::from(c)) {
        ('\n', _) => to.write_str("\\n"),
        ('\t', _) => to.write_str("\\t"),
        ('\r', _) => to.write_str("\\r"),
        (_, code @ 0..0x80) => write!(to, "\\x{code:02x}"),
        (_, code @ 0x80..0x1_0000) => write!(to, "\\u{code:04x}"),
        (_, code) => write!(to, "\\U{code:08x}"),
    }
}

/// Whether a character is not seen as itself: it controls a terminal, breaks
/// lines, changes the direction of text, or has no width. Joiners, which some
/// scripts need, are allowed.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A count with its noun: `1 file`, `2 files`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Text of several lines, such as a message or a table, without characters that
/// a terminal acts on. Names in it are quoted already; this is for text from
/// other sources.
#[must_use]
pub fn tame(text: &str) -> Cow<'_, str> {
    let is_wild = |c: char| c != '\n' && is_unprintable(c);
    if !text.contains(is_wild) {
        return text.into();
    }
    replace(text, is_wild, escape)
}

/// The same for JSON: strings are escaped in JSON's way.
#[must_use]
pub fn tame_json(text: &str) -> Cow<'_, str> {
    // Outside strings, only white space is below 32.
    let is_wild = |c: char| c >= ' ' && is_unprintable(c);
    if !text.contains(is_wild) {
        return text.into();
    }
    replace(text, is_wild, |c, to| {
        c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(to, "\\u{unit:04x}"))
    })
}

fn replace<'a>(
    text: &str,
    is_wild: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String) -> fmt::Result,
) -> Cow<'a, str> {
    let mut tamed = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !is_wild(c) {
            tamed.push(c);
        } else if write(c, &mut tamed).is_err() {
            // Writing to a string does not fail.
            tamed.push(char::REPLACEMENT_CHARACTER);
        }
    }
    tamed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_harmless_is_shown_as_it_is() {
        for name in ["a/b.txt", "with blank", "it's", "ünï", "日本", "a\\b", "👩\u{200d}🚀", "نامه\u{200c}ای"]
        {
            assert_eq!(name.shown().to_string(), name);
        }
    }

    #[test]
    fn what_could_be_mistaken_is_quoted() {
        for (name, shown) in [
            (&b"x\n0 problems"[..], r"$'x\n0 problems'"),
            (b"\xc2\x9b31m", r"$'\u009b31m'"),
            (b"\x1b[31mred", r"$'\x1b[31mred'"),
            ("\u{202e}txt.exe".as_bytes(), r"$'\u202etxt.exe'"),
            ("a\u{2066}b\u{2028}".as_bytes(), r"$'a\u2066b\u2028'"),
            ("tag\u{e0041}".as_bytes(), r"$'tag\U000e0041'"),
            (b"latin\xe4", r"$'latin\xe4'"),
            (b"it's\x7f\\", r"$'it\'s\x7f\\'"),
            (b"end ", "$'end '"),
            (b"$'x'", r"$'$\'x\''"),
            (b"", "$''"),
        ] {
            assert_eq!(OsStr::from_bytes(name).shown().to_string(), shown);
        }
    }

    #[test]
    fn text_keeps_its_lines_and_loses_what_acts_on_a_terminal() {
        assert_eq!(tame("one\n  two\n"), "one\n  two\n");
        assert_eq!(tame("a\u{9b}31m\u{202e}\tb\n"), "a\\u009b31m\\u202e\\tb\n");
        assert_eq!(
            tame_json("{\n\"a\": \"\u{9b}\u{202e}\u{e0041}\u{7f}\"\n}"),
            "{\n\"a\": \"\\u009b\\u202e\\udb40\\udc41\\u007f\"\n}"
        );
    }
}
