//! Sizes, rates, percentages, durations and truth values as people write and
//! read them, in stack files, flags, conditions of rules and messages.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const KB: u64 = 1000;

/// Units by name, with their values.
pub type Units = [(&'static str, u64)];

/// Units of sizes, in bytes, by the names that [`write_size`] has for them.
pub const SIZES: &Units = &[
    ("KiB", KIB),
    ("MiB", KIB.pow(2)),
    ("GiB", KIB.pow(3)),
    ("TiB", KIB.pow(4)),
    ("KB", KB),
    ("MB", KB.pow(2)),
    ("GB", KB.pow(3)),
    ("TB", KB.pow(4)),
];

/// Units of durations, in nanoseconds.
pub const DURATIONS: &Units = &[
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The value of the unit with exactly this name.
#[must_use]
pub fn unit(units: &Units, name: &str) -> Option<u64> {
    units.iter().find(|(known, _)| *known == name).map(|(_, factor)| *factor)
}

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
        unit => SIZES
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

/// Whether `written` names the unit: in full, or by its first letter or two for
/// binary units.
fn is_unit(written: &str, name: &str) -> bool {
    let short =
        name.strip_suffix("ib").is_some_and(|letter| written.strip_suffix('i').unwrap_or(written) == letter);
    written == name || short
}

/// The leading digits of a text, and the unit after them, with or without a
/// blank between.
fn split(text: &str) -> (&str, &str) {
    let (number, unit) = split_number(text);
    (number, unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit))
}

/// The leading digits of a text, and the rest.
#[must_use]
pub fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
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
    let (number, name) = split(text);
    let factor = unit(DURATIONS, name).ok_or_else(|| format!("a duration is {DURATION_FORMS}"))?;
    let nanos = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    nanos.ok_or_else(|| format!("a duration is {DURATION_FORMS}"))
}

/// Seconds, with decimals and an `s` or without, within `range`; the error says
/// how to write it.
///
/// # Errors
/// If `text` is something else, or out of range.
pub fn parse_seconds(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| range.contains(seconds));
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("write seconds, from {} to {}", range.start(), range.end()))
}

/// Bytes a second; the error says how to write it.
///
/// # Errors
/// If `text` does not have the [`RATE_FORMS`]. The `/s` may be left out.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    parse_size(size).map_err(|_| format!("a rate is {RATE_FORMS}; a size is {SIZE_FORMS}"))
}

/// A truth value; the error says how to write it.
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
    let unit = SIZES[..4].iter().rev().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match unit {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => bytes.to_string(),
    }
}

/// A size, exact below 1 MiB, otherwise rounded up.
#[must_use]
pub fn show_size_up(bytes: u64) -> String {
    let tenths = (bytes as f64 * 10.0 / KIB.pow(2) as f64).ceil() / 10.0;
    if bytes < KIB.pow(2) { format!("{bytes} bytes") } else { format!("{tenths:.1} MiB") }
}

/// A latency in the unit that suits it.
#[must_use]
pub fn show_latency(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A duration, in its two largest units.
#[must_use]
pub fn show_duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}
