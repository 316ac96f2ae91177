//! The settings of a policy, written as `NAME`, as `NAME:key=value,…` or as `{
//! NAME: { key: value, … } }`, in stack files and flags.

use crate::config::PolicySettings;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section, nearest, one_of};
use crate::yaml::{self, Node, Value};
use braid_contract::units;
use braid_placement::{POLICIES, PolicyConfig, PolicyKind, Setting, SettingKind, SettingValue, Target};

/// The policy of a volume that names none.
pub(crate) const DEFAULT: &str = "adaptive";

/// The value of the setting for all tiers.
const SPREAD: &str = "spread";

/// The names of the policies.
pub(crate) fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|kind| kind.name).collect()
}

/// The forms of a policy in a flag: each with its settings and their defaults.
#[must_use]
pub(crate) fn forms() -> String {
    let forms: Vec<String> = POLICIES.iter().map(|kind| form(kind)).collect();
    one_of(&forms.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `NAME[:key=default,…]`
fn form(kind: &PolicyKind) -> String {
    let default = |setting: &Setting| match setting.kind {
        SettingKind::Threads { default, .. } => default.to_string(),
        SettingKind::Percent { default, .. } => format!("{default}%"),
        SettingKind::Size { default } => units::write_size(default),
        SettingKind::Target => format!("{SPREAD}|TIER"),
    };
    let setting = |setting: &Setting| format!("{}={}", setting.key, default(setting));
    match kind.settings {
        [] => kind.name.to_owned(),
        settings => format!("{}[:{}]", kind.name, settings.iter().map(setting).collect::<Vec<_>>().join(",")),
    }
}

fn keys(kind: &PolicyKind) -> Vec<&'static str> {
    kind.settings.iter().map(|setting| setting.key).collect()
}

/// The policy that is called `name`.
fn find(name: &str, place: &Place) -> Result<&'static PolicyKind, Refusal> {
    POLICIES.iter().find(|kind| kind.name == name).copied().ok_or_else(|| unknown(place, name))
}

/// A policy in a document.
pub(crate) fn from_node(field: &Field) -> Result<PolicySettings, Refusal> {
    if let Value::Scalar(text) = &field.node.value {
        return from_parts(text, &field.place);
    }
    let chosen = Section::open(field)?.into_only(&names())?;
    let kind = find(&chosen.name, &chosen.place)?;
    if kind.settings.is_empty() && !matches!(&chosen.node.value, Value::Null | Value::Map(_)) {
        let advice = format!("write {}: {{ }}", chosen.name);
        return Err(chosen.place.refuse("this policy has no settings", advice));
    }
    build(kind, Section::of(&chosen, &keys(kind))?, &field.place)
}

/// A policy in a flag.
pub(crate) fn from_flag(text: &str, place: &Place) -> Result<PolicySettings, Refusal> {
    from_node(&Field { name: "policy".into(), place: place.clone(), node: node(text, place)? })
}

/// The equivalent of a flag in a stack file.
pub(crate) fn node(text: &str, place: &Place) -> Result<Node, Refusal> {
    match text.trim_start().starts_with('{') {
        true => yaml::parse(text, place),
        false => Ok(Node::new(Value::Scalar(text.to_owned()))),
    }
}

/// `NAME[:key=value[,key=value]…]`
fn from_parts(text: &str, place: &Place) -> Result<PolicySettings, Refusal> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let kind = find(name, place)?;
    let mut parts = Vec::new();
    for part in settings.split(',').filter(|part| !part.is_empty()) {
        let Some(part) = part.split_once('=') else {
            let found = format!("found '{part}', expected a setting of the policy");
            return Err(place.refuse(found, "write settings as NAME:key=value,key=value"));
        };
        parts.push(part);
    }
    build(kind, Section::from_parts(place.clone(), &parts, &keys(kind))?, place)
}

fn unknown(place: &Place, name: &str) -> Refusal {
    let names = names();
    let advice = match nearest(name, &names) {
        Some(nearest) => format!("did you mean '{nearest}'? The policies are {}", names.join(", ")),
        None => format!("a policy is {}", one_of(&names)),
    };
    place.refuse(format!("there is no policy '{name}'"), advice)
}

/// Reads the settings of a policy; the section has only its keys. `place` is
/// the policy's.
fn build(kind: &'static PolicyKind, mut settings: Section, place: &Place) -> Result<PolicySettings, Refusal> {
    let mut tiers = Vec::new();
    let value = PolicyConfig::read(kind, |setting| {
        settings.take(setting.key).map(|field| value(setting.kind, &field, &mut tiers)).transpose()
    })?;
    Ok(PolicySettings { value, place: place.clone(), tiers })
}

/// Reads one setting; adds a tier that it names to `tiers`.
fn value(
    kind: SettingKind,
    field: &Field,
    tiers: &mut Vec<Located<String>>,
) -> Result<SettingValue, Refusal> {
    Ok(match kind {
        SettingKind::Threads { max, .. } => {
            SettingValue::Threads(field.count(1..=max as usize)?.value as u32)
        }
        SettingKind::Percent { why_not_zero, .. } => {
            let percent = field.parse("a percentage", units::parse_percent)?;
            if percent.value <= 0.0 {
                return Err(field.place.refuse(why_not_zero, "write a percentage from 1% to 100%"));
            }
            SettingValue::Percent(percent.value)
        }
        SettingKind::Size { .. } => SettingValue::Size(field.size()?.value),
        SettingKind::Target => SettingValue::Target(target(field, tiers)?),
    })
}

fn target(field: &Field, tiers: &mut Vec<Located<String>>) -> Result<Target, Refusal> {
    let target = field.text("spread or the name of a tier")?;
    if target.value == SPREAD {
        return Ok(Target::Spread);
    }
    tiers.push(target.clone());
    Ok(Target::Tier(target.value))
}
