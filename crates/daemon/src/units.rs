//! Sizes, rates, percentages, durations and truth values as people write them:
//! in stack files, flags and settings alike.

#[cfg(test)]
mod tests;

const KIB: u64 = 1 << 10;
const KB: u64 = 1000;

/// Units by the names that [`write_size`] has for them.
const UNITS: &[(&str, u64)] = &[
    ("KiB", KIB),
    ("MiB", KIB.pow(2)),
    ("GiB", KIB.pow(3)),
    ("TiB", KIB.pow(4)),
    ("KB", KB),
    ("MB", KB.pow(2)),
    ("GB", KB.pow(3)),
    ("TB", KB.pow(4)),
];

/// The forms of a size, for messages.
pub const SIZE_FORMS: &str =
    "a whole number of bytes, or one with K, M, G, T or KiB, MiB, GiB, TiB (1024s) or KB, MB, GB, TB (1000s)";

/// The forms of a rate, for messages.
pub const RATE_FORMS: &str = "a size a second, such as 50MiB/s";

/// The forms of a percentage, for messages.
pub const PERCENT_FORMS: &str = "a number and %, such as 5% or 0.5%";

/// The forms of a truth value, for messages.
pub const TRUTH_FORMS: &str = "yes or no (or true or false, on or off)";

/// A size in bytes; the error says how to write it.
///
/// # Errors
/// If `text` has none of the [`SIZE_FORMS`].
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        unit => UNITS
            .iter()
            .find(|(name, _)| is_unit(unit, &name.to_ascii_lowercase()))
            .map(|(_, factor)| *factor),
    };
    let Some(factor) = factor.filter(|_| !number.is_empty()) else {
        return Err(format!("a size is {SIZE_FORMS}"));
    };
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    size.ok_or_else(|| "the largest size is 16777215TiB".into())
}

/// Whether a unit is written so: in full, or by its first letter or two where
/// it is one of 1024s.
fn is_unit(written: &str, name: &str) -> bool {
    let short =
        name.strip_suffix("ib").is_some_and(|letter| written.strip_suffix('i').unwrap_or(written) == letter);
    written == name || short
}

/// The digits that a text begins with, and what comes after them and a blank.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number, unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit))
}

/// A percentage, 0 to 100; the error says how to write it.
///
/// # Errors
/// If `text` does not have the [`PERCENT_FORMS`].
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(|number| number.strip_suffix(' ').unwrap_or(number));
    let number = number.filter(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let percent = number.and_then(|number| number.parse::<f64>().ok());
    let percent = percent.ok_or_else(|| format!("a percentage is {PERCENT_FORMS}"))?;
    if percent <= 100.0 { Ok(percent) } else { Err("the largest percentage is 100%".into()) }
}

/// The forms of a duration, for messages.
pub const DURATION_FORMS: &str = "a whole number and ns, us, ms, s, m, h or d, such as 90s";

/// A duration in nanoseconds; the error says how to write it.
///
/// # Errors
/// If `text` has none of the [`DURATION_FORMS`].
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("a duration is {DURATION_FORMS}")),
    };
    let nanos = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    nanos.ok_or_else(|| format!("a duration is {DURATION_FORMS}"))
}

/// Bytes a second; the error says how to write it.
///
/// # Errors
/// If `text` does not have the [`RATE_FORMS`]. The `/s` may be left out.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    parse_size(size).map_err(|_| format!("a rate is {RATE_FORMS}; a size is {SIZE_FORMS}"))
}

/// Whether it is so; the error says how to write it.
///
/// # Errors
/// If `text` has none of the [`TRUTH_FORMS`].
pub fn parse_truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" => Ok(true),
        "no" | "false" | "off" => Ok(false),
        _ => Err(format!("write {TRUTH_FORMS}")),
    }
}

/// A size for messages and tables: three significant digits, binary units.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        // At 999.5 the number would round to four digits.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = match value {
        _ if unit == "B" => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// An exact size in the form that [`parse_size`] reads.
#[must_use]
pub fn write_size(bytes: u64) -> String {
    let unit = UNITS[..4].iter().rev().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match unit {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => bytes.to_string(),
    }
}
