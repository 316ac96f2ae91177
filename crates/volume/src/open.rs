//! Opening a volume: everything is checked before anything changes, then the
//! volume is created or recovered.

use crate::background::start_threads;
use crate::cache_work::{CacheWork, CacheWorkEnd};
use crate::config::VolumeConfig;
use crate::eject;
use crate::heat::Heat;
use crate::import::Importer;
use crate::jobs::Jobs;
use crate::membership::{Membership, join, leave_out_removed};
use crate::movers::Movers;
use crate::notice::leave_notices;
use crate::placement::Placement;
use crate::placement::sizes_of;
use crate::rehome::Changes;
use crate::rehome::HomeReplacement;
use crate::speeds;
use crate::strays::look_for_strays;
use crate::streams;
use crate::threads::BackgroundThreads;
use crate::volume::Volume;
use crate::watch::Watch;
use braid_contract::{Access, Environment, Errno, Error, Fd, InodeId, Result, TierId, VolumeId};
use braid_core::Core;
use braid_core::handover::{CrashState, LiveState, go_on, take};
use braid_core::live::{Freed, Handles, InodeTable, Learning, NameLocks, Removals};
use braid_core::recover::recover;
use braid_format::RANGE_SIZE_DEFAULT;
use braid_format::{FORMAT_VERSION, FormatError, Label, RangeSize, Seal, Secret, TABLE_LEN, VolumeTable};
use braid_home::OpenError;
use braid_home::{Home, names_in};
use braid_home::{clean_up, guard};
use braid_index::IndexDir;
use braid_sys::is_privileged;
use braid_tiers::rate::{Paces, Throttles};
use braid_tiers::{Counts, Place, Tier, TierParts, Tiers};
use braid_tiers::{HomeConfig, TierConfig};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Threads for work on several tiers at once: more than two hanging tiers can
/// block.
const POOL_THREADS: usize = 48;

type Opening<T> = std::result::Result<T, OpenError>;

/// The checked contents of the tiers' labels.
struct Plan {
    volume: VolumeId,
    range_size: RangeSize,
    user_xattr: bool,
    home: TierId,
    /// Number of each tier of the configuration, in its order.
    tiers: Vec<TierId>,
    table: VolumeTable,
    /// The table on the home tier has to be written.
    table_is_new: bool,
    /// Tiers, by position in the configuration, that have no label yet.
    unlabelled: Vec<usize>,
    home_unlabelled: bool,
    /// Tiers whose label lacks the volume's key: it is of version 1, or they
    /// were absent when the volume got the key.
    behind: Vec<usize>,
    home_behind: bool,
    secret: Secret,
}

impl Plan {
    /// The label of a tier.
    fn label(&self, tier: TierId, name: &str) -> Label {
        Label {
            volume: self.volume,
            tier,
            home: tier == self.home,
            user_xattr: self.user_xattr,
            range_size: self.range_size,
            name: name.to_owned(),
            secret: Some(self.secret),
        }
    }
}

impl Volume {
    /// Creates the volume that `config` describes, and leaves it closed. Its
    /// tiers must all be new.
    ///
    /// # Errors
    /// An [`OpenError`]; then nothing was created, unless a tier failed midway:
    /// a second call continues from there.
    pub fn create(mut config: VolumeConfig) -> Opening<VolumeId> {
        config.create = true;
        let (home, plan) = examine(&config)?;
        if !plan.home_unlabelled {
            return Err(OpenError::VolumeExists { tier: config.home.name, found: plan.volume });
        }
        prepare(&home, &config, &plan)?;
        Ok(plan.volume)
    }

    /// Opens the volume that `config` describes, and creates it first if
    /// `config` asks for that and its tiers are new. A volume that was not
    /// unmounted cleanly is recovered.
    ///
    /// # Errors
    /// An [`OpenError`]; then nothing was created or changed, unless a tier
    /// failed while the volume was created or recovered.
    pub fn open(config: VolumeConfig) -> Opening<Arc<Self>> {
        Self::open_by(config, recover)
    }

    /// Opens the volume that another process [gave](Self::give), and goes on with its
    /// open files. Nothing is recovered: nothing was interrupted.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the state is not understood.
    pub fn open_taken(config: VolumeConfig, state: LiveState) -> Opening<Arc<Self>> {
        Self::open_by(config, |core| take(core, state))
    }

    /// Opens the volume whose process crashed, recovers it, and goes on with its open
    /// files.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_after_crash(config: VolumeConfig, state: CrashState) -> Opening<Arc<Self>> {
        Self::open_by(config, |core| go_on(core, state))
    }

    fn open_by(mut config: VolumeConfig, begin: impl FnOnce(&Core) -> Result<()>) -> Opening<Arc<Self>> {
        let left_out = leave_out_removed(&mut config);
        let (mut home, plan) = examine(&config)?;
        home.use_seal(Seal { volume: plan.volume, secret: Some(plan.secret) });
        prepare(&home, &config, &plan)?;
        clean_up(&home)?;
        let mut volume = assemble(home, config, &plan)?;
        begin(&volume.core)?;
        if plan.home_unlabelled {
            // A new volume has nothing to count.
            volume.core.tiers.set_counts(Counts::Exact);
            match look_for_strays(&volume.core.home) {
                Ok(strays) => volume.strays = strays,
                Err(error) => {
                    tracing::warn!(%error, "can't tell whether the new volume's tree has files of another volume");
                }
            }
        }
        volume.movers.heat.load(&volume.core.home);
        speeds::load(&volume.core);
        streams::load(&volume.core);
        volume.jobs.load();
        volume.membership.finish_removals(left_out)?;
        leave_notices(&volume.core);
        let volume = Arc::new(volume);
        if volume.core.environment.threads() {
            start_threads(&volume).map_err(Error::from)?;
        }
        Ok(volume)
    }
}

/// Checks everything, without changing anything.
fn examine(config: &VolumeConfig) -> Opening<(Home, Plan)> {
    let mut home = open_home(&config.home)?;
    guard(&home, &config.home.name)?;
    if eject::begun(&home.root())? {
        return Err(OpenError::Ejected { tier: config.home.name.clone() });
    }
    let home_label = read_home_label(&home, &config.home.name)?;
    let table = read_table(&home, &config.home.name)?;
    let user_xattr = home_label.as_ref().map_or(!is_privileged(), |label| label.user_xattr);
    if !user_xattr && !is_privileged() {
        return Err(OpenError::NeedsRoot { tier: config.home.name.clone() });
    }
    home.use_user_xattr(user_xattr);
    let namespace = if user_xattr { "user" } else { "trusted" };
    home.try_xattr().map_err(|error| match error.errno() {
        Errno::EROFS => OpenError::ReadOnly { tier: config.home.name.clone() },
        _ => OpenError::NoXattrs { tier: config.home.name.clone(), namespace },
    })?;
    let labels = config.tiers.iter().map(read_label).collect::<Opening<Vec<_>>>()?;
    let plan = match (home_label, table) {
        (Some(label), Some(table)) => plan_existing(config, &label, table, &labels)?,
        (Some(_), None) => {
            let what = "the home tier has a label and no volume table".to_owned();
            return Err(OpenError::Damaged { tier: config.home.name.clone(), what });
        }
        (None, Some(_)) if has_indexes(&home)? => {
            let what = "the home tier has a volume table and no label".to_owned();
            return Err(OpenError::Damaged { tier: config.home.name.clone(), what });
        }
        // A crash interrupted the creation of the volume; it is empty.
        (None, table) => plan_new(config, user_xattr, table.as_ref(), &labels)?,
    };
    Ok((home, plan))
}

/// Whether the home tier has anything in `.braid/index`.
fn has_indexes(home: &Home) -> Opening<bool> {
    match home.root().open_at(OsStr::new(".braid/index"), Access::Directory) {
        Ok(dir) => Ok(!names_in(&*dir)?.is_empty()),
        Err(error) if error.errno() == Errno::ENOENT => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open_home(config: &HomeConfig) -> Opening<Home> {
    let failed = |error| OpenError::Tier { tier: config.name.clone(), error };
    let home = Home::open(Fd::clone(&config.root)).map_err(failed)?;
    if home.root().usage().map_err(failed)?.read_only {
        return Err(OpenError::ReadOnly { tier: config.name.clone() });
    }
    Ok(home)
}

fn read_home_label(home: &Home, tier: &str) -> Opening<Option<Label>> {
    let bytes = home.root().read_small(".braid/label", TABLE_LEN);
    let bytes = bytes.map_err(|error| OpenError::Tier { tier: tier.into(), error })?;
    let label = bytes
        .map(|bytes| Label::decode(&bytes).map_err(|error| unreadable(tier, "label", error)))
        .transpose()?;
    match label {
        Some(label) if !label.home => Err(OpenError::NotHome { tier: tier.into(), found: label.volume }),
        label => Ok(label),
    }
}

fn read_table(home: &Home, tier: &str) -> Opening<Option<VolumeTable>> {
    let bytes = home.root().read_small(".braid/volume", TABLE_LEN);
    let bytes = bytes.map_err(|error| OpenError::Tier { tier: tier.into(), error })?;
    bytes
        .map(|bytes| VolumeTable::decode(&bytes).map_err(|error| unreadable(tier, "volume table", error)))
        .transpose()
}

fn read_label(config: &TierConfig) -> Opening<Option<Label>> {
    let failed = |error: Error| match error.errno() {
        Errno::EROFS => OpenError::ReadOnly { tier: config.name.clone() },
        _ => OpenError::Tier { tier: config.name.clone(), error },
    };
    let Some(store) = &config.store else { return Ok(None) };
    store.usage().map_err(failed)?;
    let bytes = store.label().map_err(failed)?;
    bytes
        .map(|bytes| Label::decode(&bytes).map_err(|error| unreadable(&config.name, "label", error)))
        .transpose()
}

fn unreadable(tier: &str, what: &str, error: FormatError) -> OpenError {
    match error {
        FormatError::Newer(found) => {
            OpenError::NewerFormat { tier: tier.into(), found, supported: FORMAT_VERSION }
        }
        FormatError::Damaged(how) => {
            OpenError::Damaged { tier: tier.into(), what: format!("its {what} is damaged: {how}") }
        }
    }
}

/// A home tier without a label: a new volume, whose tiers must be new too, or
/// were labelled before its creation was interrupted.
fn plan_new(
    config: &VolumeConfig,
    user_xattr: bool,
    begun: Option<&VolumeTable>,
    labels: &[Option<Label>],
) -> Opening<Plan> {
    let secret = match begun.and_then(|table| table.secret) {
        Some(secret) => secret,
        None => Secret { key: random(config)?, was_version_1: false },
    };
    let begun = begun.map(|table| table.volume);
    let volume = match begun {
        Some(volume) => volume,
        None => VolumeId(random(config)?),
    };
    for (tier, label) in config.tiers.iter().zip(labels) {
        if tier.store.is_none() {
            return Err(OpenError::NotLabelled { tier: tier.name.clone() });
        }
        if let Some(label) = label.as_ref().filter(|label| begun != Some(label.volume)) {
            let (tier, labelled) = (config.home.name.clone(), tier.name.clone());
            return Err(OpenError::HomeNotLabelled { tier, labelled, found: label.volume });
        }
    }
    if !config.create {
        return Err(OpenError::NoVolume { tier: config.home.name.clone() });
    }
    let range_size = config.range_size.unwrap_or(RANGE_SIZE_DEFAULT);
    let range_size = RangeSize::new(range_size).ok_or_else(|| {
        let what = format!("there can be no ranges of {range_size} bytes; leave the range size out");
        OpenError::Other(Error::new(Errno::EINVAL, what))
    })?;
    let numbers: Vec<TierId> = (1..TierId::LIMIT).map(TierId).take(config.tiers.len()).collect();
    let named = numbers.iter().copied().zip(config.tiers.iter().map(|tier| tier.name.clone()));
    let tiers = std::iter::once((TierId(0), config.home.name.clone())).chain(named).collect();
    Ok(Plan {
        volume,
        range_size,
        user_xattr,
        home: TierId(0),
        tiers: numbers,
        table: VolumeTable {
            volume,
            range_size,
            range_sizes: sizes_of(&config.rules),
            home: TierId(0),
            tiers,
            lost: Vec::new(),
            removed: Vec::new(),
            secret: Some(secret),
        },
        table_is_new: true,
        unlabelled: (0..config.tiers.len()).collect(),
        home_unlabelled: true,
        behind: Vec::new(),
        home_behind: false,
        secret,
    })
}

fn random(config: &VolumeConfig) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    config.environment.fill_random(&mut bytes)?;
    Ok(bytes)
}

/// The key of an existing volume: its table's, or else that of a label, since a
/// joining tier is labelled before the table is written; or else a new one,
/// which makes the volume one of version 2.
fn secret_of(
    config: &VolumeConfig,
    home: &Label,
    table: &VolumeTable,
    labels: &[Option<Label>],
) -> Result<Secret> {
    let of_volume = |label: &&Label| label.volume == table.volume;
    let in_labels = || std::iter::once(home).chain(labels.iter().flatten()).filter(of_volume);
    match table.secret.or_else(|| in_labels().find_map(|label| label.secret)) {
        Some(secret) => Ok(secret),
        None => Ok(Secret { key: random(config)?, was_version_1: true }),
    }
}

/// A labelled home tier: every tier of the volume must be given, and have the
/// right label. A tier that the volume does not have yet joins it.
fn plan_existing(
    config: &VolumeConfig,
    home: &Label,
    table: VolumeTable,
    labels: &[Option<Label>],
) -> Opening<Plan> {
    if table.volume != home.volume || table.home != home.tier {
        let what = "its label and its volume table are of different volumes".to_owned();
        return Err(OpenError::Damaged { tier: config.home.name.clone(), what });
    }
    check_name(&config.home.name, &home.name)?;
    let found = table.range_size.get();
    if let Some(asked) = config.range_size.filter(|asked| *asked != found) {
        return Err(OpenError::RangeSizeDiffers { found, asked });
    }
    let secret = secret_of(config, home, &table, labels)?;
    let mut new_table = VolumeTable { secret: Some(secret), ..table.clone() };
    new_table.range_sizes = sizes_of(&config.rules) | table.range_sizes;
    let mut plan = Plan {
        volume: table.volume,
        range_size: table.range_size,
        user_xattr: home.user_xattr,
        home: home.tier,
        tiers: Vec::new(),
        table: table.clone(),
        table_is_new: false,
        unlabelled: Vec::new(),
        home_unlabelled: false,
        behind: Vec::new(),
        home_behind: home.secret != Some(secret),
        secret,
    };
    for (at, (tier, label)) in config.tiers.iter().zip(labels).enumerate() {
        let known = new_table.tiers.iter().find(|(_, name)| *name == tier.name).map(|(number, _)| *number);
        plan.tiers.push(match (label, known) {
            (Some(label), _) => check_label(tier, label, &mut new_table)?,
            (None, Some(number)) if tier.store.is_none() => number,
            // The volume has a tier of this name, but this directory is
            // another.
            (None, Some(_)) => return Err(OpenError::NotLabelled { tier: tier.name.clone() }),
            (None, None) if tier.store.is_none() => {
                return Err(OpenError::NotLabelled { tier: tier.name.clone() });
            }
            (None, None) if !config.create => {
                return Err(OpenError::NotJoined { tier: tier.name.clone() });
            }
            (None, None) => join(&mut new_table, &tier.name)?,
        });
        match label {
            Some(label) if label.secret != Some(secret) => plan.behind.push(at),
            None if tier.store.is_some() => plan.unlabelled.push(at),
            _ => {}
        }
    }
    for (number, name) in &table.tiers {
        if *number != table.home && !plan.tiers.contains(number) {
            return Err(OpenError::MissingTier { tier: name.clone() });
        }
    }
    plan.table_is_new = new_table != table;
    plan.table = new_table;
    Ok(plan)
}

fn check_label(tier: &TierConfig, label: &Label, table: &mut VolumeTable) -> Opening<TierId> {
    if label.volume != table.volume {
        let (found, expected) = (label.volume, table.volume);
        return Err(OpenError::OtherVolume { tier: tier.name.clone(), found, expected });
    }
    check_name(&tier.name, &label.name)?;
    let same_number = table.tiers.iter().find(|(number, _)| *number == label.tier);
    let same_name = table.tiers.iter().any(|(_, name)| *name == label.name);
    let agrees = same_number.is_some_and(|(_, name)| *name == label.name);
    if !label.home && !agrees && same_number.is_none() && !same_name {
        // A crash interrupted its joining.
        table.tiers.push((label.tier, label.name.clone()));
        table.tiers.sort();
    } else if label.home || !agrees {
        let what = "its label does not agree with the volume table of the home tier".to_owned();
        return Err(OpenError::Damaged { tier: tier.name.clone(), what });
    }
    Ok(label.tier)
}

fn check_name(given: &str, labelled: &str) -> Opening<()> {
    if given == labelled {
        Ok(())
    } else {
        Err(OpenError::OtherTier { tier: given.into(), found: labelled.into() })
    }
}

/// Writes the missing labels and table, in an order that the next mount can
/// resume after a crash. A new volume: table, labels, home's label last. A tier
/// that joins: its label, then the table. A volume that gets its key: the
/// table, which counts, then the labels.
fn prepare(home: &Home, config: &VolumeConfig, plan: &Plan) -> Opening<()> {
    if plan.home_unlabelled {
        let made = home.root().ensure_dir_at(".braid");
        made.map_err(|error| OpenError::Tier { tier: config.home.name.clone(), error })?;
    }
    let braid = home.braid()?;
    IndexDir::create(&*braid)?;
    let write_table = || match plan.table_is_new {
        true => braid.replace_small("volume", &plan.table.encode()),
        false => Ok(()),
    };
    if plan.home_unlabelled {
        write_table()?;
        // No tier may carry the volume's label before home's table has it.
        home.root().sync(false)?;
    }
    write_labels(config, plan, &plan.unlabelled)?;
    if !plan.home_unlabelled {
        write_table()?;
        write_labels(config, plan, &plan.behind)?;
    }
    if plan.home_unlabelled || plan.home_behind {
        let bytes = plan.label(plan.home, &config.home.name).encode();
        braid.replace_small("label", &bytes)?;
        home.root().sync(false)?;
    }
    Ok(())
}

/// Labels tiers, by their positions in the configuration.
fn write_labels(config: &VolumeConfig, plan: &Plan, places: &[usize]) -> Opening<()> {
    for at in places {
        let tier = &config.tiers[*at];
        let bytes = plan.label(plan.tiers[*at], &tier.name).encode();
        let labelled = tier.store.as_ref().map_or(Ok(()), |store| store.set_label(&bytes));
        labelled.map_err(|error| OpenError::Tier { tier: tier.name.clone(), error })?;
    }
    Ok(())
}

fn assemble(home: Home, config: VolumeConfig, plan: &Plan) -> Opening<Volume> {
    let tier = |parts| Tier::new(parts, &config.environment);
    let mut tiers = vec![tier(TierParts {
        id: plan.home,
        location: config.home.location,
        label: plan.label(plan.home, &config.home.name).encode(),
        name: config.home.name,
        place: Place::Home(home.root()),
        weight: config.home.weight,
        profile: config.home.profile,
        reserve: config.home.reserve,
        monitor: config.monitor,
    })];
    for (id, given) in plan.tiers.iter().zip(config.tiers) {
        tiers.push(tier(TierParts {
            id: *id,
            label: plan.label(*id, &given.name).encode(),
            name: given.name,
            location: given.location,
            place: Place::Store(given.store),
            weight: given.weight,
            profile: given.profile,
            reserve: given.reserve,
            monitor: config.monitor,
        }));
    }
    let tiers = Tiers::new(tiers, plan.table.lost.clone())?;
    let (environment, movers) = (config.environment, config.movers);
    let number = |name: &str| tiers.number(name);
    let placement = Placement::new(config.policy, (config.rules, config.hints), movers.watermark_low, number);
    let placement = Arc::new(placement.ok_or(OpenError::UnknownTier)?);
    let heat = Arc::new(Heat::new(config.heat_budget, movers.heat_threshold, &environment));
    let changes = Arc::new(Changes::new());
    let throttles = Arc::new(Throttles::new(movers, Paces::new(&environment)));
    let cache_work = Arc::new(CacheWork::default());
    let observer =
        Watch { heat: Arc::clone(&heat), changes: Arc::clone(&changes), cache_work: Arc::clone(&cache_work) };
    let (barrier, slots) = braid_core::coord::of_volume();
    let learning = Learning::new(streams::most(&tiers));
    let core = Arc::new(Core {
        id: plan.volume,
        range_size: plan.range_size,
        user_xattr: plan.user_xattr,
        index: IndexDir::open(&*home.braid()?, plan.home)?,
        home,
        tiers,
        names: NameLocks::default(),
        table: Mutex::new(plan.table.clone()),
        maintenance: Mutex::new(()),
        inodes: InodeTable::default(),
        finds_inodes: AtomicBool::new(false),
        handles: Handles::default(),
        barrier,
        slots,
        removals: Removals::default(),
        freed: Freed::default(),
        learning,
        pool: pool(&*environment)?,
        placer: Arc::<Placement>::clone(&placement),
        observer: Arc::new(observer),
        front_cache: OnceLock::new(),
        environment: Arc::clone(&environment),
        #[cfg(feature = "failpoints")]
        failpoint: OnceLock::new(),
    });
    enter_root(&core)?;
    let jobs = Arc::new(Jobs::new(&core, &throttles));
    let claims = Arc::<Jobs>::clone(&jobs);
    Ok(Volume {
        movers: Movers::new(&core, &heat, &throttles),
        membership: Membership::new(&core, &placement, claims, config.monitor),
        home_replacement: HomeReplacement::new(&core, &heat, &throttles, &changes),
        importer: Importer::new(&core),
        threads: BackgroundThreads::new(config.epoch_ns),
        cache_work: CacheWorkEnd(cache_work),
        strays: None,
        stack: OnceLock::new(),
        placement,
        jobs,
        throttles,
        core,
    })
}

/// The threads for work on several tiers at once, if threads are allowed.
fn pool(environment: &dyn Environment) -> Result<Option<rayon::ThreadPool>> {
    if !environment.threads() {
        return Ok(None);
    }
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(POOL_THREADS).thread_name(|at| format!("braid-io-{at}"));
    pool.build().map(Some).map_err(|error| Error::new(Errno::EAGAIN, error.to_string()))
}

/// Enters the root, which is never forgotten.
fn enter_root(core: &Core) -> Result<()> {
    let root = core.home.root().reopen(Access::Path)?;
    let identity = core.home.identify(&*root)?;
    core.inodes.enter(&core.home, &identity, root);
    debug_assert_eq!(core.home.public_ino(identity.ino()), InodeId::ROOT);
    Ok(())
}
