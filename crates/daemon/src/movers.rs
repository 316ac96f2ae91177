//! The settings of background work: heat, monitor and movers, from the keys of
//! a stack file, with their defaults.

use crate::config::{Movers, VolumeSettings};
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use braid_contract::{Mover, units};
use braid_volume::{HEAT_BUDGET_DEFAULT, MoverScope, MoversConfig};

/// Smallest useful memory, in bytes.
const BUDGET_MIN: u64 = 64 << 10;

/// Lowest limit that may be set, in bytes a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

const BANDWIDTH_ADVICE: &str = "write 1MiB/s or more; promote, demote and balance: false move nothing";
const FLOOR_ADVICE: &str = "write 1MiB/s or more: jobs that were started must end";

const MOVER_KEYS: &[&str] = &[
    "promote",
    "demote",
    "balance",
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
        balance: section.take("balance").map(|field| field.truth()).transpose()?,
        bandwidth: section.take("bandwidth").map(|field| rate(&field, BANDWIDTH_ADVICE)).transpose()?,
        job_floor: section.take("job_floor").map(|field| rate(&field, FLOOR_ADVICE)).transpose()?,
        watermark_high: high,
        watermark_low: low,
        heat_threshold: threshold,
        latency_factor: section.take("latency_factor").map(|field| factor(&field)).transpose()?,
    };
    Ok(movers)
}

/// `--movers`: the movers that are to be on, separated by commas, or `none`.
pub(crate) fn from_flag(text: &str) -> Result<Movers, Refusal> {
    let place = Place::flag(format!("--movers {text}"));
    let mut on: Vec<Mover> = Vec::new();
    for name in text.split(',').filter(|_| text != "none") {
        let Some(mover) = Mover::ALL.into_iter().find(|mover| mover.name() == name) else {
            let advice = "write none, or some of promote, demote and balance, separated by commas";
            return Err(place.refuse(format!("there is no mover '{name}'"), advice));
        };
        on.push(mover);
    }
    let set = |mover: Mover| Some(Located::new(on.contains(&mover), place.clone()));
    Ok(Movers {
        promote: set(Mover::Promote),
        demote: set(Mover::Demote),
        balance: set(Mover::Balance),
        ..Movers::default()
    })
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
    if volume.heat_budget.as_ref().is_none_or(|budget| budget.value != 0) {
        return Ok(());
    }
    for (name, set) in [("promote", &movers.promote), ("balance", &movers.balance)] {
        if let Some(set) = set.as_ref().filter(|set| set.value) {
            let advice = format!("give heat a budget, or write {name}: false");
            return Err(set
                .place
                .refuse("nothing is known to be in use while heat has a budget of 0", advice));
        }
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

/// The settings with defaults. Each policy says which movers are on for its
/// files; where none has any, the key `movers` brings those of the paper.
pub(crate) fn config(volume: &VolumeSettings) -> MoversConfig {
    let home_first = volume.policy.value.home_watermark().is_some();
    let given = volume.movers.as_ref();
    let of_rules = volume.rules.iter().filter_map(|rule| rule.policy.as_ref());
    let of_policies: Vec<Mover> = of_rules
        .chain([&volume.policy])
        .flat_map(|policy| policy.value.kind().movers.iter().copied())
        .collect();
    let by_default = |mover: Mover| match &of_policies[..] {
        [] if given.is_some() && mover != Mover::Balance => MoverScope::All,
        movers if movers.contains(&mover) => MoverScope::OfPolicy,
        _ => MoverScope::None,
    };
    let scope = |mover: Mover, set: Option<&Option<Located<bool>>>| match set.and_then(Option::as_ref) {
        Some(set) if set.value => MoverScope::All,
        Some(_) => MoverScope::None,
        None => by_default(mover),
    };
    let (high, low) = watermarks(volume);
    let threshold = given.and_then(|movers| movers.heat_threshold.as_ref()).map(|set| set.value / 100.0);
    let rate = |set: fn(&Movers) -> &Option<Located<u64>>| {
        given.and_then(|movers| set(movers).as_ref()).map(|set| set.value)
    };
    let default = MoversConfig::NONE;
    MoversConfig {
        promote: scope(Mover::Promote, given.map(|movers| &movers.promote)),
        demote: scope(Mover::Demote, given.map(|movers| &movers.demote)),
        balance: scope(Mover::Balance, given.map(|movers| &movers.balance)),
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
