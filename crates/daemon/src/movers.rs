//! The settings of background work: heat, monitor and movers, from the keys of
//! a stack file, with their defaults.

use crate::config::{Movers, VolumeSettings};
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use braid_contract::units;
use braid_volume::{HEAT_BUDGET_DEFAULT, MoversConfig};

/// Smallest useful memory, in bytes.
const BUDGET_MIN: u64 = 64 << 10;

/// Lowest limit that may be set, in bytes a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

const BANDWIDTH_ADVICE: &str = "write 1MiB/s or more; promote: false and demote: false move nothing";
const FLOOR_ADVICE: &str = "write 1MiB/s or more: what somebody has started must end";

const MOVER_KEYS: &[&str] = &[
    "promote",
    "demote",
    "bandwidth",
    "job_floor",
    "watermark_high",
    "watermark_low",
    "heat_threshold",
    "latency_factor",
];

/// `heat: { budget: SIZE }`
pub(crate) fn heat_budget(field: &Field) -> Result<Option<Located<u64>>, Refusal> {
    let mut section = Section::of(field, &["budget"])?;
    let Some(budget) = section.take("budget").map(|field| field.size()).transpose()? else { return Ok(None) };
    if budget.value != 0 && budget.value < BUDGET_MIN {
        let found = format!("{} is too little to remember anything", units::write_size(budget.value));
        let advice = format!("write {} or more, or 0 to keep no heat", units::write_size(BUDGET_MIN));
        return Err(budget.place.refuse(found, advice));
    }
    Ok(Some(budget))
}

/// `movers: { … }`
pub(crate) fn from_file(field: &Field) -> Result<Movers, Refusal> {
    let mut section = Section::of(field, MOVER_KEYS)?;
    let mut percent = |name: &str| section.take(name).map(|field| share(&field)).transpose();
    let (high, low, threshold) =
        (percent("watermark_high")?, percent("watermark_low")?, percent("heat_threshold")?);
    let movers = Movers {
        promote: section.take("promote").map(|field| field.truth()).transpose()?,
        demote: section.take("demote").map(|field| field.truth()).transpose()?,
        bandwidth: section.take("bandwidth").map(|field| rate(&field, BANDWIDTH_ADVICE)).transpose()?,
        job_floor: section.take("job_floor").map(|field| rate(&field, FLOOR_ADVICE)).transpose()?,
        watermark_high: high,
        watermark_low: low,
        heat_threshold: threshold,
        latency_factor: section.take("latency_factor").map(|field| factor(&field)).transpose()?,
    };
    Ok(movers)
}

fn share(field: &Field) -> Result<Located<f64>, Refusal> {
    field.parse("a percentage", units::parse_percent)
}

fn rate(field: &Field, advice: &str) -> Result<Located<u64>, Refusal> {
    let rate = field.parse("a rate", units::parse_rate)?;
    if rate.value >= BANDWIDTH_MIN {
        return Ok(rate);
    }
    let found = format!("{}/s is too slow for anything to be moved", units::write_size(rate.value));
    Err(rate.place.refuse(found, advice))
}

fn factor(field: &Field) -> Result<Located<f64>, Refusal> {
    field.parse("a number above 1", |text| {
        let factor = text.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor > 1.0);
        factor.ok_or_else(|| "write how many times longer operations may take, such as 2".into())
    })
}

/// Refuses watermarks without space between them, and movers without heat.
pub(crate) fn check(volume: &VolumeSettings) -> Result<(), Refusal> {
    let Some(movers) = &volume.movers else { return Ok(()) };
    let (high, low) = watermarks(volume);
    let place = |set: &Option<Located<f64>>| set.as_ref().map(|set| set.place.clone());
    if low >= high || high <= 0.0 {
        let place = place(&movers.watermark_low).or(place(&movers.watermark_high));
        let place: Place = place.unwrap_or_else(|| volume.place.clone());
        let found = format!("a tier is relieved from {high}% used down to {low}%");
        return Err(place.refuse(found, "the low watermark must be below the high one: 90% and 80%"));
    }
    if volume.heat_budget.as_ref().is_some_and(|budget| budget.value == 0)
        && movers.promote.as_ref().is_some_and(|promote| promote.value)
    {
        let place = movers.promote.as_ref().map_or_else(|| volume.place.clone(), |set| set.place.clone());
        let advice = "give heat a budget, or write promote: false";
        return Err(place.refuse("nothing is known to be in use while heat has a budget of 0", advice));
    }
    Ok(())
}

/// High and low watermark in percent.
fn watermarks(volume: &VolumeSettings) -> (f64, f64) {
    let set = |get: fn(&Movers) -> &Option<Located<f64>>| {
        volume.movers.as_ref().and_then(|movers| get(movers).as_ref()).map(|set| set.value)
    };
    // Room is made down to the point where the policy stops filling home.
    let of_policy = volume.policy.value.home_watermark();
    let of_policy = of_policy.unwrap_or(MoversConfig::NONE.watermark_high * 100.0);
    let high = set(|movers| &movers.watermark_high).unwrap_or(of_policy);
    (high, set(|movers| &movers.watermark_low).unwrap_or_else(|| (high - 10.0).max(high / 2.0)))
}

/// The settings with defaults. Without `movers`, only a policy that puts home
/// first has movers, since they are its other half.
pub(crate) fn config(volume: &VolumeSettings) -> MoversConfig {
    let home_first = volume.policy.value.home_watermark().is_some();
    let given = volume.movers.as_ref();
    let on = home_first || given.is_some();
    let truth =
        |set: Option<&Option<Located<bool>>>| set.and_then(Option::as_ref).map_or(on, |set| set.value);
    let (high, low) = watermarks(volume);
    let threshold = given.and_then(|movers| movers.heat_threshold.as_ref()).map(|set| set.value / 100.0);
    let rate = |set: fn(&Movers) -> &Option<Located<u64>>| {
        given.and_then(|movers| set(movers).as_ref()).map(|set| set.value)
    };
    let default = MoversConfig::NONE;
    MoversConfig {
        promote: truth(given.map(|movers| &movers.promote)),
        demote: truth(given.map(|movers| &movers.demote)),
        bandwidth: rate(|movers| &movers.bandwidth),
        job_floor: rate(|movers| &movers.job_floor).unwrap_or(default.job_floor),
        watermark_high: high / 100.0,
        watermark_low: low / 100.0,
        // Home takes every range that is accessed (Mux's promotion on access).
        heat_threshold: threshold.unwrap_or(if home_first { 0.0 } else { default.heat_threshold }),
        latency_factor: given
            .and_then(|movers| movers.latency_factor.as_ref())
            .map_or(default.latency_factor, |set| set.value),
    }
}

/// Memory for heat.
pub(crate) fn budget(volume: &VolumeSettings) -> u64 {
    volume.heat_budget.as_ref().map_or(HEAT_BUDGET_DEFAULT, |budget| budget.value)
}
