//! The volume as the crash explorer's subject.

use braid_contract::{Errno, Error, FileSystem, InodeId, JobKind, JobState, Result, Store};
use braid_modules::frames::{Framed, Pipeline};
use braid_placement::{Condition, PolicyConfig, Reserve, RuleConfig, SettingValue};
use braid_stores::dir::DirStore;
use braid_stores::zoned::{ZonedSettings, ZonedStore};
use braid_testkit::conformance::store::AppendOnlyStore;
use braid_testkit::crash::{Drives, Mounted, RANGE, Setup, Subject};
use braid_volume::{
    HomeConfig, JobStatus, OpenError, Problem, RangeSize, Severity, TierConfig, Volume, VolumeConfig,
};
use std::sync::Arc;

/// Names of the policies, and what they stand for.
const POLICIES: [&str; 10] = [
    "weighted",
    "adaptive",
    "home-first",
    "size-spread",
    "size-tier",
    "range-sizes",
    "elsewhere",
    ONCE,
    FRAMES,
    "frames-elsewhere",
];

/// As `weighted`, with files in frames. Names that begin so are as the rest says.
const FRAMES: &str = "frames-weighted";

/// As `weighted`, and all tiers but home write each byte once, and free only
/// whole objects.
const ONCE: &str = "once";

#[cfg(feature = "failpoints")]
type Failpoint = braid_volume::Failpoint;
/// Without the feature there is none.
#[cfg(not(feature = "failpoints"))]
#[derive(Clone, Copy)]
enum Failpoint {}

/// Names of the bugs that can be planted.
pub(crate) const FAILPOINTS: &[&str] = match cfg!(feature = "failpoints") {
    true => &[
        "switch-before-copy",
        "punch-before-entry",
        "grow-over-uncleared",
        "attributes-not-synced",
        "links-forgotten",
        "failed-spread",
        "failed-sync",
        "growth-unrecorded",
    ],
    false => &[],
};

/// Volumes, perhaps with a bug planted.
pub(crate) struct Braid {
    failpoint: Option<Failpoint>,
}

struct Open {
    volume: Arc<Volume>,
    /// On top of the volume.
    frames: Option<Framed>,
    drives: Drives,
    setup: Setup,
}

impl Braid {
    /// Volumes without a planted bug.
    pub(crate) fn sound() -> Self {
        Self { failpoint: None }
    }

    /// Volumes with the bug of this name.
    ///
    /// # Errors
    /// The bug is unknown, or this was built without the feature.
    pub(crate) fn planted(name: &str) -> std::result::Result<Self, String> {
        Ok(Self { failpoint: Some(failpoint_of(name)?) })
    }
}

#[cfg(feature = "failpoints")]
fn failpoint_of(name: &str) -> std::result::Result<Failpoint, String> {
    Ok(match name {
        "switch-before-copy" => Failpoint::SwitchBeforeCopyIsDurable,
        "punch-before-entry" => Failpoint::PunchBeforeEntryIsDurable,
        "grow-over-uncleared" => Failpoint::GrowOverUnclearedEntries,
        "attributes-not-synced" => Failpoint::AttributesAreNotSynced,
        "links-forgotten" => Failpoint::LinksAreForgotten,
        "failed-spread" => Failpoint::FailedSpreadLeavesIndex,
        "failed-sync" => Failpoint::FailedSyncIsForgotten,
        "growth-unrecorded" => Failpoint::GrowthIsNotRecorded,
        _ => return Err(format!("there is no bug {name}; there are {}", FAILPOINTS.join(", "))),
    })
}

#[cfg(not(feature = "failpoints"))]
fn failpoint_of(_: &str) -> std::result::Result<Failpoint, String> {
    Err("bugs are planted only with `--features failpoints`".into())
}

impl Subject for Braid {
    fn policies(&self) -> &[&str] {
        // A replay may name those with frames. The search does without: a write to frames
        // that finds no room may leave a longer file (docs/configuration.md).
        let frames =
            POLICIES.iter().position(|policy| policy.starts_with("frames")).unwrap_or(POLICIES.len());
        &POLICIES[..frames]
    }

    fn open(&self, setup: &Setup, drives: Drives) -> Result<Box<dyn Mounted>> {
        let volume = Volume::open(config(setup, &drives)?).map_err(plain)?;
        #[cfg(feature = "failpoints")]
        if let Some(failpoint) = self.failpoint {
            volume.set_failpoint(failpoint);
        }
        #[cfg(not(feature = "failpoints"))]
        if let Some(failpoint) = self.failpoint {
            match failpoint {}
        }
        let frames = setup.policy.starts_with("frames-").then(|| frames_on(&volume)).transpose()?;
        Ok(Box::new(Open { volume, frames, drives, setup: setup.clone() }))
    }

    fn check(&self, setup: &Setup, drives: Drives) -> Result<Vec<String>> {
        let config = config(setup, &drives)?;
        let report = braid_volume::check(config, false, &mut |_| {}).map_err(plain)?;
        let problems = report.problems.iter().filter(|problem| is_wrong(setup, problem));
        let lines = problems.map(|problem| {
            let path = problem.path.as_ref().map(|path| path.display().to_string());
            let id = problem.id.map(|id| id.to_string());
            let of = path.or(id).unwrap_or_else(|| "the volume".into());
            format!("{}: {of}: {}", problem.severity, problem.what)
        });
        Ok(lines.collect())
    }
}

impl Mounted for Open {
    fn fs(&self) -> &dyn FileSystem {
        match &self.frames {
            Some(frames) => frames,
            None => &*self.volume,
        }
    }

    fn tick(&self) {
        self.volume.tick();
        if let Some(frames) = &self.frames {
            // A tier may be failing; the next time may do better.
            let _ = frames.settle();
        }
    }

    fn migrate(&self, ino: InodeId, offset: u64, to_tier: usize, between: &mut dyn FnMut()) -> Result<()> {
        self.volume.move_range(ino, offset, &tier_name(to_tier), between)
    }

    fn evacuate(&self, tier: usize) -> Result<()> {
        let what = JobKind::Evacuate { tier: tier_name(tier), then_remove: false };
        let under_way = |job: &&JobStatus| job.record.what == what && !job.record.state.is_final();
        let id = match self.volume.start_job(what.clone(), None) {
            // Resumes an interrupted one.
            Err(error) if error.errno() == Errno::EEXIST => {
                self.volume.jobs().iter().find(under_way).map_or(0, |job| job.record.id)
            }
            started => started?.record.id,
        };
        self.volume.tick();
        let record = self.volume.job(id)?.record;
        match record.state {
            JobState::Done => self.volume.undo_evacuation(&tier_name(tier)),
            _ => {
                let why = record.message.unwrap_or_default();
                let errno = if why.contains("no room") { Errno::ENOSPC } else { Errno::EIO };
                Err(Error::new(errno, format!("{}: {why}", record.state.name())))
            }
        }
    }

    fn remove_tier(&self, disk: usize) -> Result<()> {
        self.volume.remove_tier(&tier_name(disk)).map(drop)
    }

    fn add_tier(&self, disk: usize) -> Result<()> {
        self.volume.add_tier(tier(disk, &self.drives, &self.setup.policy)?).map(drop)
    }

    fn hand_over(&self) -> Result<Option<Box<dyn Mounted>>> {
        // Frames keep open files to themselves.
        if self.frames.is_some() || self.volume.may_be_given().is_err() {
            return Ok(None);
        }
        let (drives, setup) = (self.drives.clone(), self.setup.clone());
        let state = self.volume.give();
        let volume = Volume::open_taken(config(&setup, &drives)?, state).map_err(plain)?;
        Ok(Some(Box::new(Self { volume, frames: None, drives, setup })))
    }

    fn shutdown(&self) -> Result<()> {
        if let Some(frames) = &self.frames {
            frames.end();
        }
        self.volume.shutdown()
    }
}

/// Whether this must not remain after a clean unmount.
fn is_wrong(setup: &Setup, problem: &Problem) -> bool {
    match problem.severity {
        Severity::Damage => true,
        // The mark of a removed file is not synced before its name goes: where
        // the file system keeps no order, its data may remain for the check to
        // find. That is space, and belongs to no file.
        Severity::Leak => setup.journal_order,
        // Data beyond a file's end does not count.
        Severity::Note => ["not-clean", "counts-wrong"].contains(&problem.code),
    }
}

fn tier_name(disk: usize) -> String {
    format!("t{disk}")
}

fn config(setup: &Setup, drives: &Drives) -> Result<VolumeConfig> {
    let home = drives.disks.first().ok_or_else(|| Error::from(Errno::EINVAL))?;
    let tiers = (1..drives.disks.len()).map(|at| tier(at, drives, &setup.policy));
    Ok(VolumeConfig {
        home: HomeConfig {
            name: tier_name(0),
            root: home.root(),
            location: tier_name(0),
            weight: Some(1.0),
            profile: None,
            reserve: Reserve::Bytes(0),
        },
        tiers: tiers.collect::<Result<_>>()?,
        range_size: Some(RANGE as u32),
        policy: policy(&setup.policy)?,
        rules: rules(&setup.policy)?,
        hints: Default::default(),
        epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
        heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
        monitor: true,
        movers: braid_volume::MoversConfig::NONE,
        create: true,
        environment: Arc::clone(&drives.environment) as _,
    })
}

fn tier(at: usize, drives: &Drives, policy: &str) -> Result<TierConfig> {
    let zoned = drives.zoned.as_ref().filter(|_| at + 1 == drives.disks.len());
    let mut store: Arc<dyn Store> = match zoned {
        Some(device) => {
            let settings = ZonedSettings { extent: 16 << 10, memory: 64 << 10, write_through: false, gc: 0 };
            let environment = Arc::clone(&drives.environment);
            Arc::new(ZonedStore::open(Arc::clone(device) as _, settings, environment)?)
        }
        None => Arc::new(DirStore::new(drives.disks[at].root())?),
    };
    if policy == ONCE && zoned.is_none() {
        store = Arc::new(AppendOnlyStore::over(store, true));
    }
    Ok(TierConfig {
        name: tier_name(at),
        store: Some(store),
        location: tier_name(at),
        weight: Some(1.0),
        profile: None,
        reserve: Reserve::Bytes(0),
    })
}

/// Small frames, so that there are many.
fn frames_on(volume: &Arc<Volume>) -> Result<Framed> {
    let pipeline = Pipeline::in_frames_of(4096).ok_or_else(|| Error::from(Errno::EINVAL))?;
    Framed::new(pipeline, Arc::clone(volume) as _, false)
}

fn policy(name: &str) -> Result<PolicyConfig> {
    let name = name.strip_prefix("frames-").unwrap_or(name);
    use SettingValue::{Percent, Size};
    let filled_to = |percent| PolicyConfig::named("home-first")?.with([("watermark", Percent(percent))]);
    let policy = match name {
        "weighted" | "range-sizes" | ONCE => PolicyConfig::named("weighted"),
        // The policy's knowledge of loads depends on the simulated clock.
        "adaptive" => PolicyConfig::named("adaptive"),
        // So low that some workloads exceed it.
        "home-first" => filled_to(0.5),
        // Home always exceeds it: files begin on other tiers.
        "elsewhere" => filled_to(0.0),
        "size-spread" => size_policy([("small", Size(RANGE)), ("sync", Size(RANGE))]),
        "size-tier" => {
            let large = SettingValue::tier(&tier_name(1));
            size_policy([("small", Size(0)), ("sync", Size(0)), ("large", large)])
        }
        _ => None,
    };
    policy.ok_or_else(|| Error::new(Errno::EINVAL, format!("there is no policy {name}")))
}

fn size_policy<const N: usize>(settings: [(&str, SettingValue); N]) -> Option<PolicyConfig> {
    PolicyConfig::named("size")?.with(settings)
}

/// With `range-sizes`, the size of a file when it is spread decides its range
/// size.
fn rules(policy: &str) -> Result<Vec<RuleConfig>> {
    if policy != "range-sizes" {
        return Ok(Vec::new());
    }
    let rule = |(when, times): (&str, u64)| {
        let when = Condition::parse(when).map_err(|error| Error::new(Errno::EINVAL, error.to_string()))?;
        let range_size = RangeSize::new((RANGE * times) as u32);
        Ok(RuleConfig { when, stream: None, tiers: Vec::new(), policy: None, pin: false, range_size })
    };
    [("size % 128KiB < 64KiB", 2), ("size > 200KiB", 4)].into_iter().map(rule).collect()
}

fn plain(error: OpenError) -> Error {
    match error {
        OpenError::Other(error) => error,
        error => Error::new(Errno::EIO, error.to_string()),
    }
}
