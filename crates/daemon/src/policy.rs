//! The settings of a policy. It is written as `NAME`, as `NAME:key=value,…` or
//! as `{ NAME: { key: value, … } }`, in a stack file and as a flag alike.

use crate::config::{
    Large, Policy, SATURATING_DEFAULT, SMALL_DEFAULT, SYNC_DEFAULT, THRESHOLD_DEFAULT, WATERMARK_DEFAULT,
};
use crate::refusal::{Place, Refusal};
use crate::section::{Field, Section, nearest, one_of};
use crate::yaml::{self, Node, Value};
use braid_contract::units;

/// More threads than that are never needed to saturate a tier.
const SATURATING_MAX: usize = 1024;
/// The policies.
pub(crate) const NAMES: &[&str] = &["adaptive", "weighted", "static", "dynamic", "home-first", "size"];

/// The settings that the policy `name` has; `None` if there is no such policy.
fn keys(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "adaptive" | "weighted" => &[],
        "static" => &["threads"],
        "dynamic" => &["threads", "threshold", "global-threshold"],
        "home-first" => &["watermark"],
        "size" => &["small", "sync", "large"],
        _ => return None,
    })
}

/// A policy in a document.
pub(crate) fn from_node(field: &Field) -> Result<Policy, Refusal> {
    if let Value::Scalar(text) = &field.node.value {
        return from_parts(text, &field.place);
    }
    let chosen = Section::open(field)?.into_only(NAMES)?;
    let Some(known) = keys(&chosen.name) else { return Err(unknown(&chosen.place, &chosen.name)) };
    if known.is_empty() && !matches!(&chosen.node.value, Value::Null | Value::Map(_)) {
        let advice = format!("write {}: {{ }}", chosen.name);
        return Err(chosen.place.refuse("this policy has no settings", advice));
    }
    build(&chosen.name, Section::of(&chosen, known)?)
}

/// A policy in a flag.
pub(crate) fn from_flag(text: &str, place: &Place) -> Result<Policy, Refusal> {
    from_node(&Field { name: "policy".into(), place: place.clone(), node: node(text, place)? })
}

/// What a flag says, as a stack file has it.
pub(crate) fn node(text: &str, place: &Place) -> Result<Node, Refusal> {
    match text.trim_start().starts_with('{') {
        true => yaml::parse(text, place),
        false => Ok(Node::new(Value::Scalar(text.to_owned()))),
    }
}

/// `NAME[:key=value[,key=value]…]`
fn from_parts(text: &str, place: &Place) -> Result<Policy, Refusal> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let Some(known) = keys(name) else { return Err(unknown(place, name)) };
    let mut parts = Vec::new();
    for part in settings.split(',').filter(|part| !part.is_empty()) {
        let Some(part) = part.split_once('=') else {
            let found = format!("found '{part}', expected a setting of the policy");
            return Err(place.refuse(found, "write settings as NAME:key=value,key=value"));
        };
        parts.push(part);
    }
    build(name, Section::from_parts(place.clone(), &parts, known)?)
}

fn unknown(place: &Place, name: &str) -> Refusal {
    let advice = match nearest(name, NAMES) {
        Some(nearest) => format!("did you mean '{nearest}'? The policies are {}", NAMES.join(", ")),
        None => format!("a policy is {}", one_of(NAMES)),
    };
    place.refuse(format!("there is no policy '{name}'"), advice)
}

/// `name` is one of [`NAMES`], and the section has no keys but its own.
fn build(name: &str, mut settings: Section) -> Result<Policy, Refusal> {
    Ok(match name {
        "home-first" => {
            let watermark = settings.take("watermark").map(|field| watermark(&field)).transpose()?;
            Policy::HomeFirst { watermark: watermark.unwrap_or(WATERMARK_DEFAULT) }
        }
        "size" => {
            let small = settings.take("small").map(|field| field.size()).transpose()?;
            let sync = settings.take("sync").map(|field| field.size()).transpose()?;
            let large = settings.take("large").map(|field| large(&field)).transpose()?;
            Policy::Size {
                small: small.map_or(SMALL_DEFAULT, |small| small.value),
                sync: sync.map_or(SYNC_DEFAULT, |sync| sync.value),
                large: large.unwrap_or(Large::Spread),
            }
        }
        "adaptive" => Policy::Adaptive,
        "static" => Policy::Static { threads: threads(&mut settings)? },
        "dynamic" => Policy::Dynamic {
            threads: threads(&mut settings)?,
            threshold: threshold(&mut settings, "threshold")?,
            global_threshold: threshold(&mut settings, "global-threshold")?,
        },
        _ => Policy::Weighted,
    })
}

fn threads(settings: &mut Section) -> Result<u32, Refusal> {
    let threads = settings.take("threads").map(|field| field.count(1..=SATURATING_MAX)).transpose()?;
    Ok(threads.map_or(SATURATING_DEFAULT, |threads| threads.value as u32))
}

fn threshold(settings: &mut Section, key: &str) -> Result<f64, Refusal> {
    let Some(field) = settings.take(key) else { return Ok(THRESHOLD_DEFAULT) };
    let threshold = field.parse("a percentage", units::parse_percent)?;
    if threshold.value > 0.0 {
        return Ok(threshold.value);
    }
    Err(field.place.refuse("at 0% every change would count", "write a percentage from 1% to 100%"))
}

fn watermark(field: &Field) -> Result<f64, Refusal> {
    let watermark = field.parse("a percentage", units::parse_percent)?;
    if watermark.value > 0.0 {
        return Ok(watermark.value);
    }
    Err(field.place.refuse("at 0% nothing would ever go home", "write a percentage from 1% to 100%"))
}

fn large(field: &Field) -> Result<Large, Refusal> {
    let target = field.text("spread or the name of a tier")?;
    Ok(if target.value == "spread" { Large::Spread } else { Large::Tier(target) })
}
