//! Reads a stack from flags, for those who have no stack file.

use crate::config::{Config, MountSettings, Policy, StackNode, TierSettings, VolumeSettings, check_names};
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use crate::yaml::{Node, Value};
use crate::{policy, volume_settings};
use std::path::Path;

/// The flags that make a stack, as they were written.
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
}

/// Reads the flags.
///
/// # Errors
/// The first thing that is wrong with them.
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
    let policy = match &flags.policy {
        Some(text) => {
            let place = Place::flag(format!("--policy {text}"));
            Located::new(policy::from_flag(text, &place)?, place)
        }
        None => Located::new(Policy::Weighted, Place::flag("--policy")),
    };
    let range = flags.range.as_ref().map(|text| {
        let node = Node { line: 0, value: Value::Scalar(text.clone()) };
        let place = Place::flag(format!("--range {text}"));
        volume_settings::range(&Field { name: "range".into(), place, node })
    });
    let volume = VolumeSettings {
        place: Place::flag("--tier"),
        home,
        policy,
        range: range.transpose()?,
        jobs: None,
        tiers,
    };
    check_names(&volume)?;
    Ok(Config { stack: StackNode::Volume(Box::new(volume)), mount: MountSettings::default() })
}

/// `NAME=DIR[,weight=N][,reserve=AMOUNT]`. Settings are split off from the
/// right, so that a directory may have a comma.
fn tier(text: &str) -> Result<TierSettings, Refusal> {
    let place = Place::flag(format!("--tier {text}"));
    let Some((name, rest)) = text.split_once('=') else {
        return Err(place.refuse("expected NAME=DIR", "write --tier fast=/mnt/nvme"));
    };
    volume_settings::check_name(name, &place)?;
    let mut dir = rest;
    let mut parts = Vec::new();
    while let Some((before, setting)) = dir.rsplit_once(',') {
        let Some((key, value)) = setting.split_once('=') else { break };
        parts.insert(0, (key, value));
        dir = before;
    }
    parts.insert(0, ("dir", dir));
    let known = volume_settings::TIER_KEYS;
    let section = Section::from_parts(place.clone(), &parts, known)?;
    let mut settings = volume_settings::tier_settings(name, section, Path::new(""))?;
    // There is no key to be seen before a flag's directory.
    settings.dir.place = place;
    Ok(settings)
}
