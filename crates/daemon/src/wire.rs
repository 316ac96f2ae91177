//! From settings to stores, volume and front end.

use crate::cache::Cache;
use crate::config::{
    BottomNode, Cache as KernelCache, Config, DIRTY_DEFAULT, POLL_DEFAULT, THREADS_DEFAULT, TierSettings,
    Transport, VolumeSettings,
};
use crate::drill::{self, Drills};
use crate::guard::KeptState;
use crate::handle::VolumeHandle;
use crate::logfs::settings::LogSettings;
use crate::refusal::Refusal;
use crate::reply::{DEVICE_IN_USE, EMPTY_IT, advice_on};
use crate::{elsewhere, memory, movers, ownership, paths, rehome, require, speed, tier_store, validate};
use braid_contract::{Errno, Error, FileSystem, Shown, Store, VolumeId};
use braid_fuse::{CacheMode, FuseConfig, Given, Ledger, Session};
use braid_modules::State;
use braid_placement::EPOCH_NS_DEFAULT;
use braid_stores::native::{Machine, open_tier_dir};
use braid_volume::{
    CheckOptions, CheckProgress, CheckReport, CrashState, HomeConfig, LiveState, OpenError, PlacementConfig,
    TierChange, TierConfig, Volume, VolumeConfig,
};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Creates the volume, and leaves it closed.
pub(crate) fn create(settings: &VolumeSettings) -> Result<VolumeId, Refusal> {
    Volume::create(volume_config(settings, None)?).map_err(|error| refuse(&error, settings))
}

/// Opens the volume; with `create`, creates it if its tiers are new.
pub(crate) fn open(config: &Config, create: bool) -> Result<VolumeHandle, Refusal> {
    let settings = config.stack.need_volume()?;
    let handle = open_by(config, create, &Volume::open)?;
    speed::find_out(&handle, |name| settings.tier(name).map(|tier| paths::real(&tier.dir.value)));
    Ok(handle)
}

/// Opens the volume that another process has given.
pub(crate) fn open_taken(
    config: &Config,
    live: &LiveState,
    modules: &[(String, State)],
) -> Result<VolumeHandle, Refusal> {
    let settings = config.stack.need_volume()?;
    let handle = open_by(config, false, &|volume| Volume::open_taken(volume, live.clone()))?;
    handle.modules.import(modules).map_err(|error| {
        let place = settings.place.whole_file();
        place.refuse(error.to_string(), "unmount, and mount with this program")
    })?;
    Ok(handle)
}

/// Opens the volume whose process crashed, and goes on with its open files, and with the kept
/// states of its modules.
pub(crate) fn open_after_crash(
    config: &Config,
    crashed: &CrashState,
    kept: &[KeptState],
) -> Result<VolumeHandle, Refusal> {
    let settings = config.stack.need_volume()?;
    let handle = open_by(config, false, &|volume| Volume::open_after_crash(volume, crashed.clone()))?;
    handle.modules.go_on_after_crash(&crashed.open, kept, crashed.crashes).map_err(|error| {
        let place = settings.place.whole_file();
        place.refuse(error.to_string(), "unmount, and mount anew; the log may say more")
    })?;
    Ok(handle)
}

fn open_by(
    config: &Config,
    create: bool,
    open: &dyn Fn(VolumeConfig) -> Result<Arc<Volume>, OpenError>,
) -> Result<VolumeHandle, Refusal> {
    let settings = config.stack.need_volume()?;
    let access_times = braid_fuse::access_times(&config.mount.options);
    let drills = Arc::new(Drills::default());
    let cache = Arc::new(Cache::new(settings.cache.as_ref()));
    let mut volume = VolumeConfig { create, ..volume_config(settings, Some((&drills, &cache)))? };
    rehome::settle(&volume.home.root);
    volume.home.root = rehome::with_access_times(volume.home.root, access_times);
    let opened = memory::absent(settings, &volume, open);
    match opened {
        Ok(volume) => {
            if let Err(refusal) = memory::join(&volume, settings) {
                // It was not used, so that an error of closing it means
                // nothing.
                let _ = volume.shutdown();
                return Err(refusal);
            }
            // The volume has no users yet.
            for tier in
                settings.tiers.iter().filter(|tier| tier.readonly.as_ref().is_some_and(|yes| yes.value))
            {
                let change = TierChange { readonly: Some(true), ..TierChange::default() };
                // A tier that was removed from the volume was left out.
                let _ = volume.set_tier(&tier.name, change);
            }
            let handle = VolumeHandle::new(Arc::clone(&volume), (&config.stack, settings), (drills, cache));
            handle.inspect_err(|_| {
                // It was not used.
                let _ = volume.shutdown();
            })
        }
        Err(error) => Err(refuse(&error, settings)),
    }
}

/// Checks the volume offline.
pub(crate) fn check(
    settings: &VolumeSettings,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress) -> bool,
) -> Result<CheckReport, Refusal> {
    let config = volume_config(settings, None)?;
    let checked =
        memory::absent(settings, &config, |config| braid_volume::check_with(config, options, progress));
    checked.map_err(|error| refuse(&error, settings))
}

/// Mounts `fs`; it is mounted when this returns, and served by
/// [`Session::run`].
pub(crate) fn mount(
    fs: Arc<dyn FileSystem>,
    point: &Path,
    config: &Config,
    ledger: Option<Arc<Ledger>>,
) -> io::Result<Session> {
    let front = front(config, &*fs, ledger);
    braid_fuse::mount(fs, point, &front)
}

/// Goes on with the mount of another process.
pub(crate) fn resume(
    fs: Arc<dyn FileSystem>,
    point: &Path,
    config: &Config,
    given: Given,
    ledger: Option<Arc<Ledger>>,
) -> io::Result<Session> {
    let front = front(config, &*fs, ledger);
    braid_fuse::resume(fs, point, &front, given)
}

fn front(config: &Config, fs: &dyn FileSystem, ledger: Option<Arc<Ledger>>) -> FuseConfig {
    let settings = &config.mount;
    let root = rustix::process::geteuid().is_root();
    let chosen = settings.cache.as_ref().is_some_and(|cache| cache.value != KernelCache::Auto);
    let can = fs.capabilities();
    let cache = match cache_mode(config) {
        CacheMode::Direct => CacheMode::Direct,
        _ if can.writes_through => CacheMode::Passthrough,
        // Data that is written back later has no known writer.
        _ if can.holds_up && !chosen => CacheMode::Passthrough,
        configured => configured,
    };
    FuseConfig {
        threads: settings.threads.as_ref().map_or(THREADS_DEFAULT, |threads| threads.value),
        rings: settings.transport.as_ref().is_none_or(|transport| transport.value == Transport::Auto),
        poll: settings.poll.as_ref().map_or(POLL_DEFAULT, |poll| poll.value),
        allow_other: settings.allow_other.as_ref().map_or(root, |allow| allow.value),
        xattrs: settings.xattr.as_ref().is_none_or(|xattr| xattr.value),
        cache,
        dirty_max: settings.dirty.as_ref().map_or(DIRTY_DEFAULT, |dirty| dirty.value),
        fs_name: match &config.source.file {
            Some(file) => file.to_string_lossy().into_owned(),
            None => bottom_name(config),
        },
        options: settings.options.clone(),
        ledger,
    }
}

/// The source in the mount table of a mount without a stack file.
fn bottom_name(config: &Config) -> String {
    let names = |volume: &VolumeSettings| {
        volume.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join("+")
    };
    let device = |log: &LogSettings| paths::real(&log.device.value).to_string_lossy().into_owned();
    match config.stack.bottom() {
        BottomNode::Volume(volume) => names(volume),
        BottomNode::Log(log) => device(log),
        BottomNode::View(view) => view.of.value.to_string_lossy().into_owned(),
    }
}

/// Has this thread, and all that it starts, write to the tiers even when the
/// kernel holds back writers because much is to be written: they may wait for the very data of this
/// mount.
pub(crate) fn prepare_to_write_back(config: &Config) {
    if cache_mode(config) != CacheMode::WriteBack {
        return;
    }
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "the kernel may hold back what is written back");
    }
}

fn cache_mode(config: &Config) -> CacheMode {
    let cache = config.mount.cache.as_ref().map_or(KernelCache::Auto, |cache| cache.value);
    cache.mode(&config.stack)
}

/// The volume's configuration; with a cache and faults in front of its stores if it is to
/// be mounted.
pub(crate) fn volume_config(
    settings: &VolumeSettings,
    layers: Option<(&Drills, &Cache)>,
) -> Result<VolumeConfig, Refusal> {
    let (mut home, mut tiers) = (None, Vec::new());
    for tier in &settings.tiers {
        let weight = tier.weight.as_ref().map(|weight| weight.value);
        let profile = settings.profile.as_ref().and_then(|profile| profile.value.tier(&tier.name));
        let (name, reserve) = (tier.name.clone(), tier.reserve_or_default());
        // The daemon leaves its working directory, and `status` shows this
        // elsewhere.
        let dir = paths::real(&tier.dir.value);
        let location = dir.to_string_lossy().into_owned();
        let is_home = tier.name == settings.home.value;
        if tier.absent.is_none() {
            ownership::check(&dir, is_home)
                .map_err(|(found, advice)| tier.dir.place.refuse(found, advice))?;
        }
        if is_home {
            let root = open_tier_dir(&dir).map_err(|error| cant_open(tier, &error))?;
            home = Some(HomeConfig { name, root, location, weight, profile, reserve });
        } else {
            let store = if tier.absent.is_some() { None } else { Some(open_store(tier, &dir, layers)?) };
            tiers.push(TierConfig { name, store, location, weight, profile, reserve });
        }
    }
    let Some(home) = home else {
        let found = format!("there is no tier '{}'", settings.home.value);
        return Err(settings.home.place.refuse(found, "name one of the tiers"));
    };
    let range_size = settings.range.as_ref().map(|range| range.value.get());
    let PlacementConfig { policy, rules, hints, movers } = memory::first_placement(settings);
    let epoch_ns = settings.epoch.as_ref().map_or(EPOCH_NS_DEFAULT, |epoch| epoch.value);
    Ok(VolumeConfig {
        home,
        tiers,
        range_size,
        policy,
        rules,
        hints,
        epoch_ns,
        heat_budget: movers::budget(settings),
        monitor: settings.monitor.as_ref().is_none_or(|monitor| monitor.value),
        movers,
        create: false,
        environment: Arc::new(Machine),
    })
}

fn open_store(
    tier: &TierSettings,
    dir: &Path,
    layers: Option<(&Drills, &Cache)>,
) -> Result<Arc<dyn Store>, Refusal> {
    let store = tier_store::open(dir, tier.zoned.as_ref().map(|zoned| zoned.value))
        .map_err(|error| validate::or_without(cant_open(tier, &error), &tier.name))?;
    let Some((drills, cache)) = layers else { return Ok(store) };
    let (store, control) = drill::put_before(cache.put_on(&tier.name, store), &tier.faults);
    drills.enter(&tier.name, control);
    Ok(store)
}

fn cant_open(tier: &TierSettings, error: &Error) -> Refusal {
    let dir = tier.dir.value.shown();
    match error.errno() {
        Errno::EBUSY => {
            let elsewhere = elsewhere::of_tier(tier);
            if elsewhere.is_none() && !tier.dir.value.is_dir() {
                return tier.dir.place.refuse(error.to_string(), DEVICE_IN_USE);
            }
            let (who, advice) = elsewhere.map_or_else(
                || ("is mounted now".to_owned(), "unmount that first: braid umount MOUNTPOINT".to_owned()),
                |elsewhere| elsewhere.describe(),
            );
            let what = if tier.dir.value.is_dir() { "directory" } else { "device" };
            let found = format!("{dir}: the {what} is a tier of a volume that {who}");
            tier.dir.place.refuse(found, advice)
        }
        _ => tier.dir.place.refuse(error.to_string(), advice_on(&tier.dir.value, error)),
    }
}

/// Adds the place of the responsible setting to an error of opening the volume,
/// whose text has the finding and, after a semicolon, the advice.
pub(crate) fn refuse(error: &OpenError, settings: &VolumeSettings) -> Refusal {
    let text = error.to_string();
    let otherwise = match error {
        OpenError::NeedsRoot { .. } => "mount it as root, or make a volume of your own in other directories",
        OpenError::Tier { error, .. } if error.errno() == Errno::ENOTEMPTY => EMPTY_IT,
        _ => "check the directory and its file system; the log may say more",
    };
    let (found, advice) = text.split_once("; ").unwrap_or((&text, otherwise));
    match (error, error.tier().and_then(|name| settings.tier(name))) {
        (OpenError::RangeSizeDiffers { .. }, _) => {
            let place = settings.range.as_ref().map_or(&settings.place, |range| &range.place);
            place.refuse(found, advice)
        }
        (OpenError::MissingTier { tier }, _) => {
            let advice = format!(
                "{advice}; if it is lost, add it with any directory and mount with --without {tier} (-o without={tier})"
            );
            settings.place.refuse(found, advice)
        }
        (_, Some(tier)) => {
            let bare = matches!(
                error,
                OpenError::NoVolume { .. }
                    | OpenError::HomeNotLabelled { .. }
                    | OpenError::NotLabelled { .. }
                    | OpenError::NotJoined { .. }
            );
            let which = if bare { require::unlabelled(settings) } else { String::new() };
            let found = format!("{}: {found}{which}", tier.dir.value.shown());
            let refusal = tier.dir.place.refuse(found, advice);
            let gone = matches!(
                error,
                OpenError::NotLabelled { .. }
                    | OpenError::Tier { .. }
                    | OpenError::ReadOnly { .. }
                    | OpenError::Damaged { .. }
            );
            if gone && tier.name != settings.home.value && tier.absent.is_none() {
                validate::or_without(refusal, &tier.name)
            } else {
                refusal
            }
        }
        (_, None) => settings.place.refuse(found, advice),
    }
}
