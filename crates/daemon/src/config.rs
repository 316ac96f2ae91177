//! All settings, typed. Each value knows its place, so that a later error can
//! name that.

use crate::cache::CacheSettings;
use crate::drill::FaultRule;
use crate::kv::settings::KvSettings;
use crate::logfs::settings::LogSettings;
use crate::metrics::Address;
use crate::profile::Profile;
use crate::refusal::{Located, Place, Refusal};
use crate::runtime::RuntimeSettings;
use crate::source::Source;
use crate::view::settings::ViewSettings;
use braid_contract::units::parse_duration;
use braid_contract::{OpenFlags, Shown};
use braid_fuse::CacheMode;
use braid_hint::HintConfig;
use braid_modules::frames::{Framed, Pipeline};
use braid_modules::{Configured, fused};
use braid_placement::{Condition, PolicyConfig, Reserve, RuleConfig};
use braid_stores::zoned::ZonedSettings;
use braid_volume::{PARALLEL_JOBS_MAX, RangeSize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of a mount: the stack, and how it is served.
#[derive(Debug)]
pub struct Config {
    /// The file system.
    pub stack: StackNode,
    /// Where it is carried out, if that is said.
    pub exec: Option<Located<Exec>>,
    /// How it is mounted.
    pub mount: MountSettings,
    /// Whether to create the volume if its tiers are new, by the flag
    /// `--create`.
    pub create: bool,
    /// The source of the configuration.
    pub(crate) source: Source,
}

/// Where a stack is carried out (LabStor §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exec {
    /// In the daemon that mounts it.
    Runtime,
    /// In the threads of each program that opens it.
    Direct,
}

impl Exec {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "runtime" => Ok(Self::Runtime),
            "direct" => Ok(Self::Direct),
            _ => Err("write runtime or direct".into()),
        }
    }
}

/// A node of the tree of modules.
#[derive(Debug)]
pub enum StackNode {
    /// A module on top of another node.
    Wrapper {
        /// The module, with its settings.
        module: Arc<dyn Configured>,
        /// The place of its settings.
        place: Place,
        /// The node below it.
        child: Box<StackNode>,
    },
    /// The file system over tiers, at the bottom.
    Volume(Box<VolumeSettings>),
    /// The log-structured file system on a device of its own, at the bottom.
    Log(Box<LogSettings>),
    /// The file system of another mount, at the bottom.
    View(Box<ViewSettings>),
}

impl StackNode {
    /// The volume at the bottom, if it is one.
    #[must_use]
    pub fn volume(&self) -> Option<&VolumeSettings> {
        match self.bottom() {
            BottomNode::Volume(volume) => Some(volume),
            _ => None,
        }
    }

    /// The log file system at the bottom, if it is one.
    #[must_use]
    pub fn log(&self) -> Option<&LogSettings> {
        match self.bottom() {
            BottomNode::Log(log) => Some(log),
            _ => None,
        }
    }

    /// The settings of the view at the bottom, if it is one.
    #[must_use]
    pub fn view(&self) -> Option<&ViewSettings> {
        match self.bottom() {
            BottomNode::View(view) => Some(view),
            _ => None,
        }
    }

    /// The file system below all modules.
    pub(crate) fn bottom(&self) -> BottomNode<'_> {
        match self {
            Self::Wrapper { child, .. } => child.bottom(),
            Self::Volume(volume) => BottomNode::Volume(volume),
            Self::Log(log) => BottomNode::Log(log),
            Self::View(view) => BottomNode::View(view),
        }
    }

    /// The volume at the bottom, for requests that need one.
    ///
    /// # Errors
    /// If something else is at the bottom.
    pub fn need_volume(&self) -> Result<&VolumeSettings, Refusal> {
        match self.bottom() {
            BottomNode::Volume(volume) => Ok(volume),
            BottomNode::Log(log) => Err(log.place.refuse(NO_VOLUME, "docs/log.md says what there is")),
            BottomNode::View(view) => {
                let advice =
                    format!("name the stack file of what it is a view of: {}", view.of.value.shown());
                Err(view.place.refuse(NO_VOLUME, advice))
            }
        }
    }

    /// The modules of frames, which lie on each other: the place of the first, the settings of all
    /// together, and the node below them; `None` if there are none. The stack file's reader has
    /// refused those that don't go together.
    pub(crate) fn first_frames(&self) -> Option<(&Place, Pipeline, &StackNode)> {
        let Self::Wrapper { module, place, child } = self else { return None };
        if module.frames().is_none() {
            return child.first_frames();
        }
        let (mut below, mut rest) = (Vec::new(), &**child);
        while let Self::Wrapper { module, child, .. } = rest
            && module.frames().is_some()
        {
            below.push(&**module);
            rest = child;
        }
        Some((place, fused(&**module, &below).ok()??, rest))
    }

    /// A module of frames: it keeps open files to itself, so that it can't be exchanged.
    pub(crate) fn framed_module(&self) -> Option<&str> {
        let framed = self.wrappers().into_iter().find(|module| module.frames().is_some());
        framed.map(|module| module.name())
    }

    /// How the file system at the bottom opens a file that a program opens with `flags`.
    pub(crate) fn flags_below(&self, flags: OpenFlags) -> OpenFlags {
        if self.framed_module().is_some() { Framed::flags_below(flags) } else { flags }
    }

    /// All modules, from the top down.
    pub(crate) fn wrappers(&self) -> Vec<&dyn Configured> {
        match self {
            Self::Wrapper { module, child, .. } => [vec![&**module], child.wrappers()].concat(),
            Self::Volume(_) | Self::Log(_) | Self::View(_) => Vec::new(),
        }
    }

    /// The names of the modules, from the top down; that of the file system at the bottom is
    /// the last.
    #[must_use]
    pub fn modules(&self) -> Vec<&str> {
        match self {
            Self::Wrapper { module, child, .. } => [vec![module.name()], child.modules()].concat(),
            Self::Volume(_) | Self::Log(_) | Self::View(_) => vec![self.bottom().name()],
        }
    }
}

/// The file system at the bottom of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BottomNode<'a> {
    /// A volume over tiers.
    Volume(&'a VolumeSettings),
    /// A log file system.
    Log(&'a LogSettings),
    /// The file system of another mount.
    View(&'a ViewSettings),
}

impl<'a> BottomNode<'a> {
    /// Its key in a stack file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Volume(_) => BOTTOMS[0],
            Self::Log(_) => BOTTOMS[1],
            Self::View(_) => BOTTOMS[2],
        }
    }

    /// The place of its settings.
    pub(crate) fn place(self) -> &'a Place {
        match self {
            Self::Volume(volume) => &volume.place,
            Self::Log(log) => &log.place,
            Self::View(view) => &view.place,
        }
    }
}

/// The keys of the file systems that may be at the bottom of a stack: a volume over tiers,
/// a log file system, and the file system of another mount.
pub(crate) const BOTTOMS: [&str; 3] = ["volume", "log", "view"];

/// The refusal where a volume is needed.
pub(crate) const NO_VOLUME: &str =
    "this stack has a log file system or a view at the bottom, and no volume: there are no tiers";

impl Config {
    /// The place that says that programs carry the stack out themselves, if one does.
    pub(crate) fn direct(&self) -> Option<&Place> {
        let direct = self.exec.as_ref().filter(|exec| exec.value == Exec::Direct);
        direct.map(|exec| &exec.place)
    }

    /// Refuses a stack that programs carry out themselves where one is to be mounted.
    pub(crate) fn refuse_direct(&self) -> Result<(), Refusal> {
        let advice = "open it with libbraid or braid kv; or leave exec out, and mount it";
        let refuse = |place: &Place| place.refuse("a stack with 'exec: direct' is not mounted", advice);
        self.direct().map_or(Ok(()), |place| Err(refuse(place)))
    }

    /// Has no tier measured: a flag says so.
    pub fn without_measuring(&mut self) {
        if let Some(volume) = self.volume_mut() {
            volume.measure = Some(Located::new(false, Place::flag("--no-measure")));
        }
    }

    fn volume_mut(&mut self) -> Option<&mut VolumeSettings> {
        let mut node = &mut self.stack;
        while let StackNode::Wrapper { child, .. } = node {
            node = child;
        }
        match node {
            StackNode::Volume(volume) => Some(volume),
            StackNode::Wrapper { .. } | StackNode::Log(_) | StackNode::View(_) => None,
        }
    }

    /// Leaves these tiers out of the mount, each named by a flag `--without`.
    ///
    /// # Errors
    /// If there is no such tier, or it is home.
    pub fn without(&mut self, names: &[String]) -> Result<(), Refusal> {
        for name in names {
            let named = Located::new(name.clone(), Place::flag(format!("--without {name}")));
            let Some(volume) = self.volume_mut() else {
                return Err(named.place.refuse(NO_VOLUME, "leave the flag out"));
            };
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
    /// The place of the volume's settings.
    pub place: Place,
    /// Name of the home tier.
    pub home: Located<String>,
    /// The policy that chooses the tier of a new range.
    pub policy: PolicySettings,
    /// Rules that send files elsewhere; the first that matches counts.
    pub rules: Vec<Rule>,
    /// Further knowledge of streams.
    pub hints: HintConfig,
    /// Length of an epoch, in nanoseconds.
    pub epoch: Option<Located<u64>>,
    /// The calibrated profile of the tiers, and its file.
    pub profile: Option<Located<Profile>>,
    /// Range size; if not set, the volume's own, or the default for a new one.
    pub range: Option<Located<RangeSize>>,
    /// Jobs that run at the same time; the default if it is not set.
    pub jobs: Option<Located<usize>>,
    /// The tiers, including home, in the order of the file.
    pub tiers: Vec<TierSettings>,
    /// The tiers in memory, in the order of the file.
    pub memory: Vec<MemoryTier>,
    /// Memory for the heat of ranges, in bytes; 0 keeps none.
    pub heat_budget: Option<Located<u64>>,
    /// Whether latencies and threads are monitored.
    pub monitor: Option<Located<bool>>,
    /// Whether tiers of unknown speed are measured at the mount.
    pub measure: Option<Located<bool>>,
    /// The cache in memory of the tiers' data.
    pub cache: Option<CacheSettings>,
    /// Settings of the movers, which move ranges in the background.
    pub movers: Option<Movers>,
}

impl VolumeSettings {
    /// The tier called `name`.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<&TierSettings> {
        self.tiers.iter().find(|tier| tier.name == name)
    }
}

/// Settings of the movers; unset ones have defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Movers {
    /// Whether frequently used ranges go to faster tiers.
    pub promote: Option<Located<bool>>,
    /// Whether a full tier gives cold ranges to slower ones.
    pub demote: Option<Located<bool>>,
    /// Whether ranges in use go off tiers that hold applications up.
    pub balance: Option<Located<bool>>,
    /// Limit on each tier, in bytes a second.
    pub bandwidth: Option<Located<u64>>,
    /// Bytes a second that jobs always keep on each tier.
    pub job_floor: Option<Located<u64>>,
    /// Used space from which on a tier is relieved, in percent.
    pub watermark_high: Option<Located<f64>>,
    /// Used space at which relief ends, in percent.
    pub watermark_low: Option<Located<f64>>,
    /// Heat from which on a range counts as frequently used, in percent.
    pub heat_threshold: Option<Located<f64>>,
    /// Factor by which operations may slow down while movers work.
    pub latency_factor: Option<Located<f64>>,
}

/// The settings of a tier.
#[derive(Debug)]
pub struct TierSettings {
    /// Its name.
    pub name: String,
    /// The place of its settings.
    pub place: Place,
    /// Its directory, as written but relative to the working directory of this
    /// process.
    pub dir: Located<PathBuf>,
    /// Its share when ranges are dealt by weight; measured if it is not set.
    pub weight: Option<Located<f64>>,
    /// Space that Braid leaves free there.
    pub reserve: Option<Located<Reserve>>,
    /// Whether it is read only.
    pub readonly: Option<Located<bool>>,
    /// A requirement on its directory.
    pub require: Option<Located<Require>>,
    /// How a tier in zones is kept.
    pub zoned: Option<Located<ZonedTier>>,
    /// Faults that are armed on it for a drill.
    pub faults: Vec<Located<FaultRule>>,
    /// The place of the setting that the mount goes without it.
    pub absent: Option<Place>,
}

/// How a tier in zones is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ZonedTier {
    /// How its data is gathered and moved.
    pub settings: ZonedSettings,
    /// Bytes of the units that a block device without zones is cut into.
    pub unit: Option<u64>,
}

impl TierSettings {
    /// The place of its settings of zones, or else of its directory.
    pub(crate) fn zoned_place(&self) -> &Place {
        self.zoned
            .as_ref()
            .filter(|zoned| zoned.value.unit.is_some())
            .map_or(&self.dir.place, |zoned| &zoned.place)
    }

    /// Space that Braid leaves free there, with the default.
    pub(crate) fn reserve_or_default(&self) -> Reserve {
        self.reserve.as_ref().map_or_else(Reserve::default, |reserve| reserve.value)
    }
}

/// The settings of a tier in memory.
#[derive(Debug)]
pub struct MemoryTier {
    /// Its name.
    pub name: String,
    /// The place of its settings.
    pub place: Place,
    /// Its size in bytes.
    pub size: Located<u64>,
    /// Its share when ranges are dealt by weight; measured if it is not set.
    pub weight: Option<Located<f64>>,
    /// Space of its size that is left free; none if it is not set.
    pub reserve: Option<Located<Reserve>>,
}

/// A requirement on a tier's directory, so that the bare mount point is not
/// taken for the tier while the device is not mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Require {
    /// A mount point.
    MountPoint,
    /// On the file system that has this UUID.
    Uuid(String),
}

/// A policy and its place.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// The policy.
    pub value: PolicyConfig,
    /// Its place.
    pub place: Place,
    /// The tiers that its settings name, each with its own place.
    pub tiers: Vec<Located<String>>,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Its condition: which files, and when.
    pub when: Located<Condition>,
    /// The tiers that it names, in the order in which they are tried.
    pub tiers: Vec<Located<String>>,
    /// The policy in place of the volume's.
    pub policy: Option<PolicySettings>,
    /// Whether movers leave matching files in place.
    pub pin: bool,
    /// Range size of matching files, in place of the volume's.
    pub range: Option<Located<RangeSize>>,
    /// The stream that matching files belong to, for conditions of later rules.
    pub stream: Option<Located<String>>,
}

impl Rule {
    /// The rule, for placement.
    pub(crate) fn config(&self) -> RuleConfig {
        RuleConfig {
            when: self.when.value.clone(),
            stream: self.stream.as_ref().map(|stream| stream.value.clone()),
            tiers: self.tiers.iter().map(|tier| tier.value.clone()).collect(),
            policy: self.policy.as_ref().map(|policy| policy.value.clone()),
            pin: self.pin,
            range_size: self.range.as_ref().map(|range| range.value),
        }
    }
}

/// Whether a mount with these options is read-only: the last one that says so counts.
pub(crate) fn is_readonly(options: &[String]) -> bool {
    let last = options.iter().rfind(|option| ["ro", "rw"].contains(&option.as_str()));
    last.is_some_and(|option| option == "ro")
}

/// Settings of a mount; unset ones have defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MountSettings {
    /// The mount point, unless the command names one.
    pub point: Option<Located<PathBuf>>,
    /// Options that mean the same for every mount, all of them known; of two
    /// for the same property the last counts.
    pub options: Vec<String>,
    /// Threads that answer requests of the kernel.
    pub threads: Option<Located<usize>>,
    /// The nice value of the daemon.
    pub nice: Option<Located<i32>>,
    /// Whether other users may use the mount.
    pub allow_other: Option<Located<bool>>,
    /// How the kernel treats the data of open files.
    pub cache: Option<Located<Cache>>,
    /// The most bytes that the kernel keeps before it writes back.
    pub dirty: Option<Located<u64>>,
    /// How many inodes the kernel is to know at most.
    pub inodes: Option<Located<usize>>,
    /// Whether extended attributes are served.
    pub xattr: Option<Located<bool>>,
    /// How requests of the kernel come.
    pub transport: Option<Located<Transport>>,
    /// How long threads poll for requests of the kernel before they sleep.
    pub poll: Option<Located<Duration>>,
    /// Whether another process goes on with the mount if this one crashes.
    pub restart: Option<Located<bool>>,
    /// Whether applications may have sessions with the runtime.
    pub runtime: Option<RuntimeSettings>,
    /// The address for Prometheus; no metrics if it is not set.
    pub metrics: Option<Located<Address>>,
    /// How keys and values are served; not at all if it is not set.
    pub kv: Option<KvSettings>,
    /// Users who may modify and reload the stack, beside root and the user who mounts.
    pub modifiable_by: Vec<u32>,
}

/// How the kernel treats the data of open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// As suits the volume.
    #[default]
    Auto,
    /// Always so.
    Mode(CacheMode),
}

impl Cache {
    const MODES: [(&str, Self); 4] = [
        ("auto", Self::Auto),
        ("writeback", Self::Mode(CacheMode::WriteBack)),
        ("passthrough", Self::Mode(CacheMode::Passthrough)),
        ("direct", Self::Mode(CacheMode::Direct)),
    ];

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::MODES.iter().map(|(name, _)| *name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::MODES.iter().find(|(_, mode)| *mode == self).map_or("auto", |(name, _)| name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Advice, if there is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::MODES.iter().find(|(name, _)| *name == text);
        known.map(|(_, mode)| *mode).ok_or_else(|| "write auto, writeback, passthrough or direct".to_owned())
    }

    /// The mode of a mount of this stack. By default, the kernel does all I/O of files that
    /// can only be on one tier, and gathers the writes of all others.
    pub(crate) fn mode(self, stack: &StackNode) -> CacheMode {
        let has_one_tier = stack.volume().is_some_and(|volume| volume.tiers.len() == 1);
        match self {
            Self::Mode(mode) => mode,
            // Others change it below, without notice to the kernel.
            Self::Auto if stack.view().is_some() => CacheMode::Direct,
            Self::Auto if has_one_tier => CacheMode::Passthrough,
            Self::Auto => CacheMode::WriteBack,
        }
    }
}

/// How requests of the kernel come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Through io_uring, where the kernel has that for FUSE.
    #[default]
    Auto,
    /// By `/dev/fuse`.
    Device,
}

impl Transport {
    const NAMES: [(&str, Self); 2] = [("auto", Self::Auto), ("device", Self::Device)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, transport)| *transport == self).map_or("auto", |(name, _)| name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Advice, if there is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, transport)| *transport).ok_or_else(|| "write auto or device".to_owned())
    }
}

/// The value of [`MountSettings::poll`].
///
/// # Errors
/// Advice, if it is no duration, or too long.
pub fn parse_poll(text: &str) -> Result<Duration, String> {
    let nanos = parse_duration(text)?;
    if nanos > POLL_MAX { Err("at most 1ms".to_owned()) } else { Ok(Duration::from_nanos(nanos)) }
}

/// The options that mean the same for every mount.
pub fn mount_options() -> impl Iterator<Item = &'static str> {
    braid_fuse::generic_options()
}

/// Refuses an option that does not mean the same for every mount, with advice.
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

/// Default of [`MountSettings::dirty`]: enough for all tiers to write at once,
/// and little to wait for at a sync.
pub(crate) const DIRTY_DEFAULT: u64 = 256 << 20;
/// Default of [`MountSettings::poll`]: most requests take less, on a volume too, and a halted
/// processor of a virtual machine wakes in a quarter of it.
pub(crate) const POLL_DEFAULT: Duration = Duration::from_micros(200);
/// The most of it, in nanoseconds.
const POLL_MAX: u64 = 1_000_000;
/// Default for threads that answer requests of the kernel.
pub const THREADS_DEFAULT: usize = 48;
/// The bounds of [`MountSettings::threads`].
pub const THREADS: std::ops::RangeInclusive<usize> = 1..=512;
/// Default of [`MountSettings::inodes`]: about 40 MiB of memory.
const INODES_DEFAULT: u64 = 200_000;
/// The bounds of [`MountSettings::inodes`].
pub const INODES: std::ops::RangeInclusive<usize> = 1_000..=1_000_000_000;
/// Bounds of the number of parallel jobs.
pub const PARALLEL: std::ops::RangeInclusive<usize> = 1..=PARALLEL_JOBS_MAX;
/// The bounds of an epoch, in nanoseconds.
pub const EPOCH: std::ops::RangeInclusive<u64> = 10_000_000..=60_000_000_000;

impl MountSettings {
    /// Combines settings of flags with those of the file; flags take
    /// precedence.
    #[must_use]
    pub fn or(self, file: Self) -> Self {
        Self {
            point: self.point.or(file.point),
            options: file.options.into_iter().chain(self.options).collect(),
            threads: self.threads.or(file.threads),
            nice: self.nice.or(file.nice),
            allow_other: self.allow_other.or(file.allow_other),
            cache: self.cache.or(file.cache),
            dirty: self.dirty.or(file.dirty),
            inodes: self.inodes.or(file.inodes),
            xattr: self.xattr.or(file.xattr),
            transport: self.transport.or(file.transport),
            poll: self.poll.or(file.poll),
            restart: self.restart.or(file.restart),
            runtime: self.runtime.or(file.runtime),
            metrics: self.metrics.or(file.metrics),
            kv: self.kv.or(file.kv),
            modifiable_by: file.modifiable_by,
        }
    }

    /// Whether another process is to go on after a crash.
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.restart.as_ref().is_some_and(|restart| restart.value)
    }

    /// How many inodes the kernel is to know at most.
    pub(crate) fn inodes_max(&self) -> u64 {
        self.inodes.as_ref().map_or(INODES_DEFAULT, |inodes| inodes.value as u64)
    }
}

/// Refuses the name of an unknown tier.
pub(crate) fn known(tiers: &[TierSettings], named: &Located<String>) -> Result<(), Refusal> {
    if tiers.iter().any(|tier| tier.name == named.value) {
        return Ok(());
    }
    let (found, advice) = no_such_tier(&named.value, tiers.iter().map(|tier| tier.name.as_str()));
    Err(named.place.refuse(found, advice))
}

/// The message and advice for an unknown tier.
pub(crate) fn no_such_tier<'a>(name: &str, tiers: impl Iterator<Item = &'a str>) -> (String, String) {
    let names: Vec<&str> = tiers.collect();
    let advice = match crate::section::nearest(name, &names) {
        Some(nearest) => format!("did you mean '{nearest}'? The tiers are {}", names.join(", ")),
        None => format!("the tiers are {}", names.join(", ")),
    };
    (format!("there is no tier '{name}'"), advice)
}
