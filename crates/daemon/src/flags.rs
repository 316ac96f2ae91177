//! A stack from flags, without a stack file.

use crate::config::{Config, MountSettings, StackNode, TierSettings, VolumeSettings};
use crate::cross_check;
use crate::logfs::settings::{LogFlags, LogSettings};
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use crate::source::Source;
use crate::stack_text::entry;
use crate::yaml::{Node, Value};
use crate::{hints, movers, policy, values, volume_settings};
use std::path::Path;
use std::sync::Arc;

/// The flags of a stack, as written.
#[derive(Clone, Debug, Default)]
pub struct StackFlags {
    /// Each `--tier`.
    pub tiers: Vec<String>,
    /// `--home`; the first tier without it.
    pub home: Option<String>,
    /// `--policy`; `weighted` without it.
    pub policy: Option<String>,
    /// `--range`.
    pub range: Option<String>,
    /// `--movers`.
    pub movers: Option<String>,
}

/// The forms of `--policy`, for its help.
#[must_use]
pub fn policy_help() -> String {
    format!("{} [default: {}]", policy::forms(), policy::DEFAULT)
}

/// Reads the flags.
///
/// # Errors
/// The first error in them.
pub fn parse(flags: &StackFlags) -> Result<Config, Refusal> {
    let tiers = flags.tiers.iter().map(|text| tier(text)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = tiers.first() else {
        return Err(
            Place::flag("--tier").refuse("there are no tiers", "give a stack file, or --tier NAME=DIR")
        );
    };
    let home = match &flags.home {
        Some(home) => Located::new(home.clone(), Place::flag(format!("--home {home}"))),
        None => Located::new(first.name.clone(), first.place.clone()),
    };
    let policy = flags.policy.as_deref().unwrap_or(policy::DEFAULT);
    let policy = policy::from_flag(policy, &Place::flag(format!("--policy {policy}")))?;
    let range = flags.range.as_ref().map(|text| {
        let node = Node::new(Value::Scalar(text.clone()));
        let place = Place::flag(format!("--range {text}"));
        values::range(&Field { name: "range".into(), place, node })
    });
    let volume = VolumeSettings {
        place: Place::flag("--tier"),
        home,
        policy,
        rules: Vec::new(),
        hints: hints::usual()?,
        epoch: None,
        profile: None,
        range: range.transpose()?,
        jobs: None,
        tiers,
        memory: Vec::new(),
        heat_budget: None,
        monitor: None,
        measure: None,
        cache: None,
        movers: flags.movers.as_deref().map(movers::from_flag).transpose()?,
    };
    cross_check::check(&volume)?;
    let source =
        Source { root: document(flags, &volume), base: "/".into(), file: None, registry: Arc::default() };
    Ok(Config {
        source,
        stack: StackNode::Volume(Box::new(volume)),
        exec: None,
        mount: MountSettings::default(),
        create: false,
    })
}

/// The stack of `braid log mount`: a log file system, with nothing on top; with `salvage`, it is
/// only read, and may be damaged.
///
/// # Errors
/// If there can't be that many workers, or there is no such driver.
pub fn log(flags: &LogFlags) -> Result<Config, Refusal> {
    let settings = LogSettings::from_flags(flags)?;
    let absolute = std::path::absolute(&flags.device).unwrap_or_else(|_| flags.device.clone());
    let mut keys = vec![entry("device", Value::Scalar(absolute.to_string_lossy().into_owned()))];
    keys.extend(flags.driver.as_ref().map(|driver| entry("driver", Value::Scalar(driver.clone()))));
    keys.extend(flags.workers.map(|count| entry("workers", Value::Scalar(count.to_string()))));
    keys.extend(flags.salvage.then(|| entry("salvage", Value::Scalar("true".into()))));
    let stack = Value::Map(vec![entry("log", Value::Map(keys))]);
    let root = Node::new(Value::Map(vec![entry("stack", stack)]));
    Ok(Config {
        source: Source { root, base: "/".into(), file: None, registry: Arc::default() },
        stack: StackNode::Log(Box::new(settings)),
        exec: None,
        mount: MountSettings::default(),
        create: false,
    })
}

/// The stack file equivalent to the flags.
fn document(flags: &StackFlags, volume: &VolumeSettings) -> Node {
    let text = |text: &str| Value::Scalar(text.to_owned());
    // It parsed before.
    let policy = flags.policy.as_deref().unwrap_or(policy::DEFAULT);
    let policy = policy::node(policy, &volume.policy.place).map_or_else(|_| text(policy), |node| node.value);
    let mut keys = vec![entry("home", text(&volume.home.value)), entry("policy", policy)];
    keys.extend(flags.range.as_ref().map(|range| entry("range", text(range))));
    if let Some(movers) = &volume.movers {
        let on = [("promote", &movers.promote), ("demote", &movers.demote), ("balance", &movers.balance)];
        let on = on.map(|(name, set)| (name, set.as_ref().is_some_and(|set| set.value)));
        let on = on.map(|(name, on)| entry(name, text(if on { "true" } else { "false" })));
        keys.push(entry("movers", Value::Map(on.into())));
    }
    let tier = |(tier, flag): (&TierSettings, &String)| {
        let dir = std::path::absolute(&tier.dir.value).unwrap_or_else(|_| tier.dir.value.clone());
        let (_, settings) = split(flag);
        let settings = settings.iter().map(|(key, value)| entry(key, text(value)));
        let dir = entry("dir", Value::Scalar(dir.to_string_lossy().into_owned()));
        entry(&tier.name, Value::Map([dir].into_iter().chain(settings).collect()))
    };
    keys.push(entry("tiers", Value::Map(volume.tiers.iter().zip(&flags.tiers).map(tier).collect())));
    let volume = Value::Map(vec![entry("volume", Value::Map(keys))]);
    Node::new(Value::Map(vec![entry("stack", volume)]))
}

/// Splits a tier's flag into the part before the settings, and these.
#[must_use]
pub fn split(text: &str) -> (&str, Vec<(&str, &str)>) {
    let (mut dir, mut settings) = (text, Vec::new());
    while let Some((before, setting)) = dir.rsplit_once(',') {
        let Some(setting) = setting.split_once('=') else { break };
        settings.insert(0, setting);
        dir = before;
    }
    (dir, settings)
}

/// `NAME=DIR[,weight=N][,reserve=AMOUNT]`. Settings are split off from the
/// right, so that a directory may contain commas.
fn tier(text: &str) -> Result<TierSettings, Refusal> {
    let place = Place::flag(format!("--tier {text}"));
    let Some((name, rest)) = text.split_once('=') else {
        return Err(place.refuse("expected NAME=DIR", "write --tier fast=/mnt/nvme"));
    };
    values::check_name(name, &place)?;
    let (dir, mut parts) = split(rest);
    parts.insert(0, ("dir", dir));
    let known = volume_settings::TIER_KEYS;
    let section = Section::from_parts(place.clone(), &parts, known)?;
    let mut settings = volume_settings::tier_settings(name, section, Path::new(""))?;
    // A flag has no visible key for its directory.
    settings.dir.place = place;
    Ok(settings)
}
