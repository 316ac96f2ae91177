//! Sizes and percentages as people write them.

#[cfg(test)]
mod tests;

const KIB: u64 = 1 << 10;
const KB: u64 = 1000;

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
pub const SIZE_FORMS: &str = "a whole number of bytes, or one followed directly by KiB, MiB, GiB, TiB (1024s) or KB, MB, GB, TB (1000s)";

/// The forms of a percentage, for messages.
pub const PERCENT_FORMS: &str = "a number followed directly by %, such as 5% or 0.5%";

/// A size in bytes; the error says how to write it.
///
/// # Errors
/// If `text` has none of the [`SIZE_FORMS`].
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => Some(1),
        _ => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    let Some(factor) = factor.filter(|_| digits > 0) else {
        return Err(match guess(number, unit) {
            Some(guess) => format!("write {guess}; a size is {SIZE_FORMS}"),
            None => format!("a size is {SIZE_FORMS}"),
        });
    };
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    size.ok_or_else(|| "the largest size is 16777215TiB".into())
}

/// A percentage, 0 to 100; the error says how to write it.
///
/// # Errors
/// If `text` does not have the [`PERCENT_FORMS`].
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number =
        text.strip_suffix('%').filter(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let percent = number.and_then(|number| number.parse::<f64>().ok());
    let percent = percent.ok_or_else(|| format!("a percentage is {PERCENT_FORMS}"))?;
    if percent <= 100.0 { Ok(percent) } else { Err("the largest percentage is 100%".into()) }
}

/// The forms of a duration, for messages.
pub const DURATION_FORMS: &str = "a whole number followed directly by ns, us, ms, s, m, h or d";

/// A duration in nanoseconds; the error says how to write it.
///
/// # Errors
/// If `text` has none of the [`DURATION_FORMS`].
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
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
/// If `text` is not a size followed directly by `/s`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let Some(size) = text.strip_suffix("/s") else {
        return Err(match parse_size(text) {
            Ok(_) => format!("write {text}/s; a rate is a size followed directly by /s"),
            Err(_) => "a rate is a size followed directly by /s, such as 50MiB/s".into(),
        });
    };
    parse_size(size)
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

/// What was probably meant by a unit in another spelling.
fn guess(number: &str, unit: &str) -> Option<String> {
    if number.is_empty() {
        return None;
    }
    let unit = unit.trim().to_ascii_lowercase();
    if unit == "b" || unit == "bytes" {
        return Some(number.to_owned());
    }
    if let Some((name, _)) = UNITS.iter().find(|(name, _)| name.to_ascii_lowercase() == unit) {
        return Some(format!("{number}{name}"));
    }
    let letter = unit.strip_suffix('i').unwrap_or(&unit);
    let binary = UNITS[..4].iter().find(|(name, _)| name[..1].to_ascii_lowercase() == letter)?.0;
    let decimal = binary.replace('i', "");
    if unit.ends_with('i') {
        return Some(format!("{number}{binary}"));
    }
    Some(format!("{number}{binary} (1024s) or {number}{decimal} (1000s)"))
}
