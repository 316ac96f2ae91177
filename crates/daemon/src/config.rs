//! Everything that can be set, typed. Each value knows where it was set, so
//! that whoever finds it wrong later can say so.

use crate::drill::FaultRule;
use crate::metrics::Address;
use crate::profile::Profile;
use crate::refusal::{Located, Place, Refusal};
use crate::source::Source;
use braid_contract::StreamId;
use braid_modules::Configured;
use braid_placement::{Condition, PolicyConfig, Reserve, RuleConfig};
use braid_volume::{PARALLEL_JOBS_MAX, RangeSize};
use std::path::PathBuf;
use std::sync::Arc;

/// A mount: the stack, and how it is served.
#[derive(Debug)]
pub struct Config {
    /// What the file system is made of.
    pub stack: StackNode,
    /// How it is mounted.
    pub mount: MountSettings,
    /// Whether the volume is made if its tiers are new, by the flag `--create`.
    pub create: bool,
    /// Where all this is from.
    pub(crate) source: Source,
}

/// A node of the tree of modules.
#[derive(Debug)]
pub enum StackNode {
    /// A module on top of another node.
    Wrapper {
        /// The module, with its settings.
        module: Arc<dyn Configured>,
        /// What it wraps.
        child: Box<StackNode>,
    },
    /// The file system over tiers, at the bottom.
    Volume(Box<VolumeSettings>),
}

impl StackNode {
    /// The volume at the bottom.
    #[must_use]
    pub fn volume(&self) -> &VolumeSettings {
        match self {
            Self::Wrapper { child, .. } => child.volume(),
            Self::Volume(volume) => volume,
        }
    }
}

impl Config {
    /// Leaves the tiers of these names out of the mount, each given by a flag
    /// `--without`.
    ///
    /// # Errors
    /// If there is no such tier, or it is home.
    pub fn without(&mut self, names: &[String]) -> Result<(), Refusal> {
        let mut node = &mut self.stack;
        while let StackNode::Wrapper { child, .. } = node {
            node = child;
        }
        let StackNode::Volume(volume) = node else { return Ok(()) };
        for name in names {
            let named = Located::new(name.clone(), Place::flag(format!("--without {name}")));
            known(&volume.tiers, &named)?;
            if volume.home.value == *name {
                let advice = "the home tier holds the names of all files: there is no volume without it";
                return Err(named.place.refuse(format!("'{name}' is the home tier"), advice));
            }
            for tier in volume.tiers.iter_mut().filter(|tier| tier.name == *name) {
                tier.absent = Some(named.place.clone());
            }
        }
        Ok(())
    }
}

/// The settings of a volume.
#[derive(Debug)]
pub struct VolumeSettings {
    /// Where the volume's settings stand.
    pub place: Place,
    /// Name of the home tier.
    pub home: Located<String>,
    /// Which tier a new range goes to.
    pub policy: PolicySettings,
    /// Which files go elsewhere; the first that matches counts.
    pub rules: Vec<Rule>,
    /// How long an epoch is, in nanoseconds.
    pub epoch: Option<Located<u64>>,
    /// What calibration found of the tiers, and the file that says it.
    pub profile: Option<Located<Profile>>,
    /// How long ranges are; the volume's own, or the default for a new one, if it
    /// is not set.
    pub range: Option<Located<RangeSize>>,
    /// Jobs that run at the same time; the default if it is not set.
    pub jobs: Option<Located<usize>>,
    /// The tiers, home among them, in the order in which they were written.
    pub tiers: Vec<TierSettings>,
    /// The tiers in memory, in the order in which they were written.
    pub memory: Vec<MemoryTier>,
    /// Memory for the heat of ranges, in bytes; 0 keeps none.
    pub heat_budget: Option<Located<u64>>,
    /// Whether latencies and threads are watched.
    pub monitor: Option<Located<bool>>,
    /// What moves ranges in the background.
    pub movers: Option<Movers>,
}

impl VolumeSettings {
    /// The tier called `name`.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<&TierSettings> {
        self.tiers.iter().find(|tier| tier.name == name)
    }
}

/// What moves ranges in the background; what is not set has a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Movers {
    /// Whether ranges that are frequently used go to faster tiers.
    pub promote: Option<Located<bool>>,
    /// Whether a tier that ran full gives cold ranges to slower ones.
    pub demote: Option<Located<bool>>,
    /// Bytes a second on each tier, at most.
    pub bandwidth: Option<Located<u64>>,
    /// Bytes a second on each tier that jobs are left for certain.
    pub job_floor: Option<Located<u64>>,
    /// How full a tier becomes before it is relieved, in percent.
    pub watermark_high: Option<Located<f64>>,
    /// How full it is left, in percent.
    pub watermark_low: Option<Located<f64>>,
    /// From which heat on a range is frequently used, in percent.
    pub heat_threshold: Option<Located<f64>>,
    /// How many times longer operations may take while movers are at work.
    pub latency_factor: Option<Located<f64>>,
}

/// The settings of a tier.
#[derive(Debug)]
pub struct TierSettings {
    /// Its name.
    pub name: String,
    /// Where its settings stand.
    pub place: Place,
    /// Its directory, as it was written but relative to the working directory
    /// of this process.
    pub dir: Located<PathBuf>,
    /// Its share when ranges are dealt by weight; measured if it is not set.
    pub weight: Option<Located<f64>>,
    /// Space that Braid leaves free there.
    pub reserve: Option<Located<Reserve>>,
    /// Whether it is read only.
    pub readonly: Option<Located<bool>>,
    /// What its directory must be.
    pub require: Option<Located<Require>>,
    /// Faults that are armed on it for a drill.
    pub faults: Vec<Located<FaultRule>>,
    /// Where it is said that the mount is to go without it.
    pub absent: Option<Place>,
}

impl TierSettings {
    /// Space that Braid leaves free there, by default if nothing is set.
    pub(crate) fn reserve_or_default(&self) -> Reserve {
        self.reserve.as_ref().map_or_else(Reserve::default, |reserve| reserve.value)
    }
}

/// The settings of a tier in memory.
#[derive(Debug)]
pub struct MemoryTier {
    /// Its name.
    pub name: String,
    /// Where its settings stand.
    pub place: Place,
    /// Bytes that it may take.
    pub size: Located<u64>,
    /// Its share when ranges are dealt by weight; measured if it is not set.
    pub weight: Option<Located<f64>>,
    /// Space that is left free of its size; nothing if it is not set.
    pub reserve: Option<Located<Reserve>>,
}

/// What a tier's directory must be, so that it is not taken for the tier while
/// the device is not mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Require {
    /// A mount point.
    MountPoint,
    /// On the file system that has this UUID.
    Uuid(String),
}

/// A policy and where it is set.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// The policy.
    pub value: PolicyConfig,
    /// Where it stands.
    pub place: Place,
    /// The tiers that its settings name, each with its own place.
    pub tiers: Vec<Located<String>>,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// For which files, and when.
    pub when: Located<Condition>,
    /// The tiers that it names, in the order in which they are tried.
    pub tiers: Vec<Located<String>>,
    /// The policy in place of the volume's.
    pub policy: Option<PolicySettings>,
    /// Whether movers leave what it places where it is.
    pub pin: bool,
    /// How long the ranges of what matches are, in place of the volume's.
    pub range: Option<Located<RangeSize>>,
    /// The stream that what matches belongs to, for conditions of rules below.
    pub stream: Option<Located<StreamId>>,
}

impl Rule {
    /// The rule as placement takes it.
    pub(crate) fn config(&self) -> RuleConfig {
        RuleConfig {
            when: self.when.value.clone(),
            stream: self.stream.as_ref().map(|stream| stream.value),
            tiers: self.tiers.iter().map(|tier| tier.value.clone()).collect(),
            policy: self.policy.as_ref().map(|policy| policy.value.clone()),
            pin: self.pin,
            range_size: self.range.as_ref().map(|range| range.value),
        }
    }
}

/// How a file system is mounted; what is not set has a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MountSettings {
    /// Where, unless the command says where.
    pub point: Option<Located<PathBuf>>,
    /// Options that mean the same for every mount, each known; of two that
    /// speak of one matter the last counts.
    pub options: Vec<String>,
    /// Threads that answer the kernel.
    pub threads: Option<Located<usize>>,
    /// Whether other users may use the mount.
    pub allow_other: Option<Located<bool>>,
    /// Whether the kernel may do I/O on a plain file by itself.
    pub passthrough: Option<Located<bool>>,
    /// Where Prometheus finds metrics; nowhere if it is not set.
    pub metrics: Option<Located<Address>>,
}

/// The options that mean the same for every mount.
pub fn mount_options() -> impl Iterator<Item = &'static str> {
    braid_fuse::generic_options()
}

/// Refuses an option that is not one of those that mean the same for every
/// mount, with what to write.
///
/// # Errors
/// If it is not one of them.
pub fn mount_option(text: &str) -> Result<String, String> {
    let known: Vec<&str> = mount_options().collect();
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("the options are {}", known.join(", ")))
}

/// Threads that answer the kernel, unless set otherwise.
pub const THREADS_DEFAULT: usize = 48;
/// The bounds of [`MountSettings::threads`].
pub const THREADS: std::ops::RangeInclusive<usize> = 1..=512;
/// Jobs at the same time that a stack may ask for.
pub const PARALLEL: std::ops::RangeInclusive<usize> = 1..=PARALLEL_JOBS_MAX;
/// The bounds of an epoch, in nanoseconds.
pub const EPOCH: std::ops::RangeInclusive<u64> = 10_000_000..=60_000_000_000;

impl MountSettings {
    /// Settings of flags, and of the file for what no flag sets.
    #[must_use]
    pub fn or(self, file: Self) -> Self {
        Self {
            point: self.point.or(file.point),
            options: file.options.into_iter().chain(self.options).collect(),
            threads: self.threads.or(file.threads),
            allow_other: self.allow_other.or(file.allow_other),
            passthrough: self.passthrough.or(file.passthrough),
            metrics: self.metrics.or(file.metrics),
        }
    }
}

/// Refuses a name that no tier has.
pub(crate) fn known(tiers: &[TierSettings], named: &Located<String>) -> Result<(), Refusal> {
    if tiers.iter().any(|tier| tier.name == named.value) {
        return Ok(());
    }
    let (found, advice) = no_such_tier(&named.value, tiers.iter().map(|tier| tier.name.as_str()));
    Err(named.place.refuse(found, advice))
}

/// What to say of a name that none of these tiers has, and what to do.
pub(crate) fn no_such_tier<'a>(name: &str, tiers: impl Iterator<Item = &'a str>) -> (String, String) {
    let names: Vec<&str> = tiers.collect();
    let advice = match crate::section::nearest(name, &names) {
        Some(nearest) => format!("did you mean '{nearest}'? The tiers are {}", names.join(", ")),
        None => format!("the tiers are {}", names.join(", ")),
    };
    (format!("there is no tier '{name}'"), advice)
}
