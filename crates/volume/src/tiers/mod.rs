//! The tiers of an open volume: where their bytes are, how much room they
//! have, how they are doing, and what went through them.

mod account;
mod errors;
mod health;
mod latency;
mod limiter;
mod monitor;
mod order;
mod room;
mod settings;
mod threads;

pub(crate) use account::{Account, act_for, present};
use braid_contract::{Environment, Errno, Error, Fd, ObjectId, Result, Store, TierId, TierState, Usage};
use braid_placement::Epoch;
use braid_placement::{
    Direction, KnownRates, Load, Reserve, TierEpoch, TierProfile, TierView, believed, with_means,
};
use errors::Errors;
use health::{Health, Trouble};
use limiter::InFlightLimiter;
use monitor::Monitor;
use parking_lot::{Mutex, RwLock};
use room::{AGE_MAX_NS, Figures, Room};
use settings::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where the bytes of a tier are.
pub(crate) enum Backend {
    /// In the files of the namespace itself, below this directory, which may be
    /// replaced.
    Home(RwLock<Fd>),
    /// In a store's objects, behind the tier's [`InFlightLimiter`].
    Store(Arc<dyn Store>),
}

/// One tier.
pub(crate) struct Tier {
    pub(crate) id: TierId,
    pub(crate) name: String,
    location: RwLock<String>,
    pub(crate) backend: Backend,
    settings: Settings,
    /// The way to the store; home has none.
    limiter: Option<Arc<InFlightLimiter>>,
    pub(crate) load: Load,
    pub(crate) monitor: Monitor,
    pub(crate) health: Health,
    pub(crate) errors: Errors,
    /// Ranges that spread files have on it.
    pub(crate) ranges: AtomicU64,
    profile: Option<TierProfile>,
    room: Room,
    /// What its label must say.
    label: Vec<u8>,
    probing: AtomicBool,
    measuring: AtomicBool,
    /// A part of a file that grows there gets more space than it was asked for.
    preallocates: AtomicBool,
    environment: Arc<dyn Environment>,
}

/// Where a tier's bytes are to be.
pub(crate) enum Place {
    /// Home.
    Home(Fd),
    /// In this store; `None` if the tier is absent.
    Store(Option<Arc<dyn Store>>),
}

/// What a tier is made from.
pub(crate) struct TierParts {
    pub(crate) id: TierId,
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) place: Place,
    pub(crate) weight: Option<f64>,
    pub(crate) profile: Option<TierProfile>,
    pub(crate) reserve: Reserve,
    pub(crate) label: Vec<u8>,
    /// Latencies and threads are watched.
    pub(crate) monitor: bool,
}

impl Tier {
    pub(crate) fn new(parts: TierParts, environment: &Arc<dyn Environment>) -> Self {
        let environment = || Arc::clone(environment);
        let health = Health::new(environment());
        let (backend, limiter) = match parts.place {
            Place::Home(root) => (Backend::Home(RwLock::new(root)), None),
            Place::Store(store) => {
                if store.is_none() {
                    health.fail(&Error::new(Errno::ENODEV, "the tier is not there"));
                }
                let limiter = Arc::new(InFlightLimiter::new(store, environment()));
                (Backend::Store(Arc::<InFlightLimiter>::clone(&limiter)), Some(limiter))
            }
        };
        let load = Load::new(environment());
        if let Some(profile) = &parts.profile {
            load.seed(profile);
        }
        let preallocates = AtomicBool::new(preallocates(&backend));
        Self {
            id: parts.id,
            name: parts.name,
            location: RwLock::new(parts.location),
            backend,
            limiter,
            settings: Settings::new(parts.weight, parts.reserve),
            load,
            monitor: Monitor::new(environment().monotonic_ns(), parts.monitor),
            health,
            errors: Errors::default(),
            ranges: AtomicU64::new(0),
            profile: parts.profile,
            room: Room::new(),
            label: parts.label,
            probing: AtomicBool::new(false),
            measuring: AtomicBool::new(false),
            preallocates,
            environment: environment(),
        }
    }

    /// What to call its place in messages.
    pub(crate) fn location(&self) -> String {
        self.location.read().clone()
    }

    /// The home tier is in another directory from now on.
    pub(crate) fn switch_root(&self, root: Fd, location: String) {
        if let Backend::Home(place) = &self.backend {
            *place.write() = root;
            self.preallocates.store(preallocates(&self.backend), Ordering::Release);
            *self.location.write() = location;
            self.measure();
        }
    }

    pub(crate) fn is_home(&self) -> bool {
        matches!(self.backend, Backend::Home(_))
    }

    /// Whether a part of a file that is written past its end gets more space
    /// there than it was asked for, unless that was allocated before.
    pub(crate) fn preallocates(&self) -> bool {
        self.preallocates.load(Ordering::Acquire)
    }

    /// Whether its store is not there at all.
    pub(crate) fn is_absent(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_absent())
    }

    /// Whether what was synced to it survives power loss.
    pub(crate) fn is_durable(&self) -> bool {
        match &self.backend {
            Backend::Store(store) => store.capabilities().durable,
            Backend::Home(root) => root.read().usage().is_ok_and(|usage| !usage.volatile),
        }
    }

    /// The space beneath, as it is now.
    fn usage(&self) -> Result<Usage> {
        match &self.backend {
            Backend::Store(store) => store.usage(),
            Backend::Home(root) => root.read().usage().map(|usage| usage.space),
        }
    }

    /// Bytes that may still be placed here, leaving the reserve. The figure
    /// may be a moment old.
    pub(crate) fn room(&self) -> u64 {
        self.figures().room
    }

    /// Share of the space that data may take which is in use, 0 to 1: the
    /// reserve does not count.
    pub(crate) fn filled(&self) -> f64 {
        self.figures().used()
    }

    /// Bytes that data may take on it at most.
    pub(crate) fn capacity(&self) -> u64 {
        self.figures().capacity()
    }

    /// Notes that `bytes` were placed here, so that the room that is reckoned
    /// with shrinks at once.
    pub(crate) fn took(&self, bytes: u64) {
        self.room.took(bytes);
    }

    /// Space was freed: it counts from now on.
    pub(crate) fn measure_again(&self) {
        if !self.is_stalled() {
            self.measure();
        }
    }

    /// The tier just said that it is full, whatever the figures say.
    pub(crate) fn is_full_after_all(&self) {
        self.room.exhausted();
    }

    pub(crate) fn state(&self) -> TierState {
        match self.health.trouble() {
            _ if self.is_absent() => TierState::Absent,
            _ if self.hangs() => TierState::Hanging,
            Trouble::ReadOnly => TierState::ReadOnly,
            Trouble::Failing => TierState::Failing,
            Trouble::None if self.is_draining() => TierState::Draining,
            Trouble::None if self.is_set_readonly() => TierState::SetReadOnly,
            Trouble::None if self.room.figures().is_some_and(|figures| figures.room == 0) => TierState::Full,
            Trouble::None => TierState::Online,
        }
    }

    /// Whether nothing that was begun on it ends.
    pub(crate) fn hangs(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.hangs())
    }

    /// Whether nothing has ended for a while: it may be about to hang, and is
    /// asked nothing that can wait.
    fn is_stalled(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_stalled())
    }

    /// Whether something is under way on it.
    pub(crate) fn is_busy(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_busy())
    }

    /// Whether an operation that is begun now need not wait for another.
    pub(crate) fn is_prompt(&self) -> bool {
        self.limiter.as_ref().is_none_or(|limiter| limiter.is_prompt())
    }

    /// Whether nothing ends on it, however long what is under way may take:
    /// nobody waits for it who has something else to do.
    pub(crate) fn is_stuck(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_stuck())
    }

    /// Whether it may be given new ranges, as far as its health goes.
    pub(crate) fn is_healthy(&self) -> bool {
        self.health.trouble() == Trouble::None && !self.is_stalled()
    }

    /// Whether a tier in trouble should be asked again now, by one thread.
    pub(crate) fn begin_probe(&self) -> bool {
        !self.is_home()
            && !self.is_absent()
            && self.health.probe_is_due()
            && !self.probing.swap(true, Ordering::AcqRel)
    }

    /// Asks a tier in trouble whether it is back.
    pub(crate) fn probe(&self) {
        if let Backend::Store(store) = &self.backend {
            match store.probe(&self.label) {
                Ok(()) => {
                    self.health.recover();
                    self.measure();
                    tracing::info!(tier = %self.name, location = %self.location(), "tier answers again");
                }
                Err(error) => tracing::debug!(tier = %self.name, %error, "tier is still in trouble"),
            }
        }
        self.probing.store(false, Ordering::Release);
    }

    /// Threads that keep it busy with writes: as calibrated, or as seen.
    fn saturating(&self) -> Option<u32> {
        let profile = self.profile.map(|profile| profile.write.threads);
        profile.or_else(|| self.load.saturating(Direction::Write))
    }

    fn known(&self) -> KnownRates {
        let learned = Direction::BOTH.map(|direction| self.load.bandwidth(direction));
        let guess = Direction::BOTH.map(|direction| self.load.guess(direction));
        KnownRates { learned, guess, weight: self.given_weight() }
    }

    /// The most bytes a second that it is known to read and to write.
    pub(crate) fn bandwidth(&self) -> [Option<f64>; 2] {
        Direction::BOTH.map(|direction| self.load.bandwidth(direction))
    }

    /// Looks at an error that the tier answered, remembers what it says of the
    /// tier, and answers what the application should see.
    pub(crate) fn note_error(&self, error: Error) -> Error {
        let errno = error.errno();
        self.errors.count(errno, self.is_home());
        if errno.is_full() {
            self.is_full_after_all();
            return error;
        }
        if errno.is_failing() && !self.is_home() {
            if self.health.fail(&error) {
                tracing::error!(tier = %self.name, location = %self.location(), %error, "tier takes no new ranges");
            }
            return Error::new(Errno::EIO, format!("tier {}: {error}", self.name));
        }
        match errno {
            // The index says that it is there.
            Errno::ENOENT if !self.is_home() => {
                tracing::error!(tier = %self.name, "an object that an index names is missing");
                Error::new(Errno::EIO, format!("tier {}: the file's object is missing", self.name))
            }
            _ => error,
        }
    }

    /// The figures of the tier's space. Where threads may be started, one of
    /// them keeps them fresh, and nobody waits for a tier that does not answer.
    fn figures(&self) -> Figures {
        let last = self.room.figures();
        let is_fresh = |figures: &Figures| {
            self.environment.threads()
                || self.environment.monotonic_ns().saturating_sub(figures.measured_ns) < AGE_MAX_NS
        };
        last.filter(is_fresh).unwrap_or_else(|| self.measure())
    }

    /// The space beneath, as it was a moment ago.
    pub(crate) fn last_usage(&self) -> Usage {
        self.figures().usage
    }

    /// Asks the tier for its space.
    fn measure(&self) -> Figures {
        let measured_ns = self.environment.monotonic_ns();
        let usage = self.usage().unwrap_or_else(|error| {
            self.note_error(error);
            Usage::default()
        });
        let reserve = self.reserve().bytes(usage.total);
        let room = usage.available.saturating_sub(reserve);
        let figures = Figures { measured_ns, usage, room, reserve };
        self.room.set(figures);
        figures
    }

    /// Whether the figures are to be measured anew now, by one thread.
    pub(crate) fn begin_measuring(&self) -> bool {
        !self.is_absent() && !self.is_stalled() && !self.measuring.swap(true, Ordering::AcqRel)
    }

    /// Measures the figures anew.
    pub(crate) fn finish_measuring(&self) {
        self.measure();
        self.measuring.store(false, Ordering::Release);
    }
}

fn preallocates(backend: &Backend) -> bool {
    match backend {
        Backend::Home(root) => root.read().usage().is_ok_and(|usage| usage.preallocates),
        Backend::Store(store) => store.capabilities().preallocates,
    }
}

/// What is known of how many ranges the tiers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    /// Nothing: they have to be counted.
    Unknown,
    /// They were counted while files changed.
    Near,
    /// They are right.
    Exact,
}

/// All tiers of a volume.
pub(crate) struct Tiers {
    home: Arc<Tier>,
    /// Home among them.
    list: RwLock<Arc<Vec<Arc<Tier>>>>,
    /// Tiers that were lost, by the numbers that entries may still name.
    lost: RwLock<Vec<(TierId, String)>>,
    counts: Mutex<Counts>,
    /// How often [`count_range`](Self::count_range) was called.
    changes: AtomicU64,
}

impl Tiers {
    /// `list` has exactly one home tier.
    pub(crate) fn new(list: Vec<Tier>, lost: Vec<(TierId, String)>) -> Result<Self> {
        let list: Vec<Arc<Tier>> = list.into_iter().map(Arc::new).collect();
        let home = list.iter().find(|tier| tier.is_home()).ok_or(Errno::EINVAL)?;
        Ok(Self {
            home: Arc::clone(home),
            list: RwLock::new(Arc::new(list)),
            lost: RwLock::new(lost),
            counts: Mutex::new(Counts::Exact),
            changes: AtomicU64::new(0),
        })
    }

    pub(crate) fn home(&self) -> &Tier {
        &self.home
    }

    /// The tiers as they are at this moment.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Tier>>> {
        Arc::clone(&self.list.read())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Tier>> {
        let all = self.all();
        (0..all.len()).map(move |at| Arc::clone(&all[at]))
    }

    /// The stores of all tiers other than home.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (Arc<Tier>, Arc<dyn Store>)> {
        self.iter().filter_map(|tier| match &tier.backend {
            Backend::Home(_) => None,
            Backend::Store(store) => {
                let store = Arc::clone(store);
                Some((tier, store))
            }
        })
    }

    /// The tier that an index entry names.
    pub(crate) fn get(&self, id: TierId) -> Result<Arc<Tier>> {
        if let Some(tier) = self.list.read().iter().find(|tier| tier.id == id) {
            return Ok(Arc::clone(tier));
        }
        let what = match self.lost.read().iter().find(|(lost, _)| *lost == id) {
            Some((_, name)) => format!("tier {name} (number {id}) was lost"),
            None => format!("tier number {id} is not part of the volume"),
        };
        Err(Error::new(Errno::EIO, what))
    }

    /// The number of the tier of this name.
    pub(crate) fn number(&self, name: &str) -> Option<TierId> {
        self.list.read().iter().find(|tier| tier.name == name).map(|tier| tier.id)
    }

    /// Tiers that were lost.
    pub(crate) fn lost(&self) -> Vec<(TierId, String)> {
        self.lost.read().clone()
    }

    /// Puts `new` in the place of the tier `old`, which is lost from now on.
    pub(crate) fn replace(&self, old: &Tier, new: Tier) {
        let mut list = self.list.write();
        let new = Arc::new(new);
        let place = |tier: &Arc<Tier>| Arc::clone(if tier.id == old.id { &new } else { tier });
        *list = Arc::new(list.iter().map(place).collect());
        self.lost.write().push((old.id, old.name.clone()));
        if let Some(limiter) = &old.limiter {
            let _ = limiter.take();
        }
    }

    /// Makes `new` one of the tiers.
    pub(crate) fn add(&self, new: Tier) {
        let mut list = self.list.write();
        let mut all = Vec::clone(&list);
        all.push(Arc::new(new));
        *list = Arc::new(all);
    }

    /// Takes a tier that holds nothing out. Answers its store, if it is there,
    /// which nobody gets to by way of the tier any more.
    pub(crate) fn remove(&self, old: &Tier) -> Option<Arc<dyn Store>> {
        let mut list = self.list.write();
        *list = Arc::new(list.iter().filter(|tier| tier.id != old.id).cloned().collect());
        old.limiter.as_ref().and_then(|limiter| limiter.take())
    }

    /// Asks the tiers that are well for their space: what was freed counts.
    pub(crate) fn measure_again(&self) {
        self.iter().filter(|tier| tier.is_healthy()).for_each(|tier| tier.measure_again());
    }

    /// The tiers as a policy sees them, for `needed` more bytes. Those in
    /// `excluded`, a set of bits by tier number, count as without room.
    pub(crate) fn views(&self, needed: u64, excluded: u64) -> Vec<TierView> {
        let all = self.all();
        let weights = with_means(&all.iter().map(|tier| tier.weight()).collect::<Vec<_>>(), 1.0);
        let bandwidths = believed(&all.iter().map(|tier| tier.known()).collect::<Vec<_>>());
        let view = |(at, tier): (usize, &Arc<Tier>)| {
            // One that hangs must not be asked for its room.
            let healthy = tier.is_healthy();
            let (used, room) = match healthy {
                true => (tier.figures().used(), tier.figures().room),
                false => (1.0, 0),
            };
            TierView {
                id: tier.id,
                home: tier.is_home(),
                weight: weights[at],
                bandwidth: bandwidths[at],
                has_room: healthy && tier.takes_ranges() && room >= needed && excluded & bit(tier.id) == 0,
                used,
                queued: tier.load.queued(Direction::Write),
                saturating: tier.saturating(),
            }
        };
        all.iter().enumerate().map(view).collect()
    }

    /// The epoch that ended last. It was as long as home says, which is always
    /// one of the tiers.
    pub(crate) fn last_epoch(&self) -> Epoch {
        let all = self.all();
        let bandwidths = believed(&all.iter().map(|tier| tier.known()).collect::<Vec<_>>());
        let tier = |(tier, bandwidth): (&Arc<Tier>, [f64; 2])| TierEpoch {
            id: tier.id,
            load: Direction::BOTH.map(|direction| tier.load.last_epoch(direction)),
            bandwidth,
            known: tier.weight().is_some(),
        };
        let tiers = all.iter().zip(bandwidths).map(tier).collect();
        Epoch { nanos: self.home.load.last_epoch_ns(), tiers }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    pub(crate) fn set_counts(&self, counts: Counts) {
        *self.counts.lock() = counts;
    }

    /// Entries went that nobody counted.
    pub(crate) fn distrust_counts(&self) {
        // Whoever counts just now may have seen them.
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut counts = self.counts.lock();
        if *counts == Counts::Exact {
            *counts = Counts::Near;
        }
    }

    /// Changes of the counts so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Counts a range from one tier to another; `None` for nowhere.
    pub(crate) fn count_range(&self, from: Option<TierId>, to: Option<TierId>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Some(tier) = from.and_then(|id| self.get(id).ok()) {
            // Counts of a volume that was damaged may be too low.
            let _ =
                tier.ranges.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        }
        if let Some(tier) = to.and_then(|id| self.get(id).ok()) {
            tier.ranges.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A tier as a bit in a set of tiers.
pub(crate) fn bit(tier: TierId) -> u64 {
    1 << tier.0
}

/// Cuts an object that is longer than `size`; answers whether it was. One that
/// does not exist is not.
pub(crate) fn cut_object(store: &dyn Store, id: ObjectId, size: u64) -> Result<bool> {
    match store.stat(id) {
        Ok(stat) if stat.size > size => store.truncate(id, size).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) if error.errno() == Errno::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}
