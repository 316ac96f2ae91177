//! Parsing of values that occur in several places: of tiers in a stack file, a
//! flag and a request, of volumes and of rules.

use crate::refusal::{Located, Place, Refusal};
use crate::section::Field;
use braid_contract::units::{self, parse_size, write_size};
use braid_placement::Reserve;
use braid_volume::{RANGE_SIZE_MAX, RANGE_SIZE_MIN, RangeSize};

/// Longest name of a tier.
const NAME_BYTES_MAX: usize = 48;

/// Refuses a name that is invalid for a tier.
pub(crate) fn check_name(name: &str, place: &Place) -> Result<(), Refusal> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(good) {
        return Ok(());
    }
    let found = format!("'{name}' can't be the name of a tier");
    Err(place.refuse(found, format!("use 1 to {NAME_BYTES_MAX} of the characters a-z, 0-9, - and _")))
}

/// The size of a range.
pub(crate) fn range(field: &Field) -> Result<Located<RangeSize>, Refusal> {
    let Located { value: size, place } = field.size()?;
    if let Some(size) = u32::try_from(size).ok().and_then(RangeSize::new) {
        return Ok(Located::new(size, place));
    }
    let (least, most) = (u64::from(RANGE_SIZE_MIN), u64::from(RANGE_SIZE_MAX));
    let bounds = format!("{} to {}", write_size(least), write_size(most));
    let above = size.clamp(least, most).next_power_of_two();
    let advice = match above {
        _ if size >= above || size < least => format!("write {}", write_size(above)),
        _ => format!("write {} or {}", write_size(above / 2), write_size(above)),
    };
    Err(place.refuse(format!("a range of {} is not a power of two from {bounds}", write_size(size)), advice))
}

/// A tier's share.
pub(crate) fn weight(field: &Field) -> Result<Located<f64>, Refusal> {
    field.parse("a positive number", |text| {
        let weight = text.parse::<f64>().ok().filter(|weight| weight.is_finite() && *weight > 0.0);
        weight.ok_or_else(|| {
            "write the tier's share against the others, such as its bandwidth in MB/s: weight: 400".into()
        })
    })
}

/// Space to leave free on a tier.
pub(crate) fn reserve(field: &Field) -> Result<Located<Reserve>, Refusal> {
    field.parse("a percentage or a size", |text| {
        if text.ends_with('%') {
            let percent = units::parse_percent(text)?;
            return if percent < 100.0 {
                Ok(Reserve::Percent(percent))
            } else {
                Err("a reserve of 100% leaves nothing to use; write less".into())
            };
        }
        parse_size(text)
            .map(Reserve::Bytes)
            .map_err(|advice| format!("write a percentage such as 5%, or a size: {advice}"))
    })
}
