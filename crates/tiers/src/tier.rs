//! One tier: its store, room, health and load.

use crate::abilities::Abilities;
use crate::backend::Backend;
use crate::basis::Basis;
use crate::errors::Errors;
use crate::health::{Health, Trouble};
use crate::limiter::InFlightLimiter;
use crate::monitor::Monitor;
use crate::range_count::RangeCount;
use crate::room::{AGE_MAX_NS, Figures, Room};
use crate::settings::{Admission, Settings};
use braid_contract::{
    Environment, Errno, Error, Fd, Result, SpeedBasis, Store, StoreCapabilities, TierId, TierState, Usage,
    ZoneStatus,
};
use braid_placement::{Direction, KnownRates, Load, Reserve, TierProfile, WEIGHT_UNIT};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The least space of a file, in bytes, on the usual file systems.
const BLOCK: u64 = 4096;

/// One tier.
pub struct Tier {
    /// Its number.
    pub id: TierId,
    /// Its name.
    pub name: String,
    location: RwLock<String>,
    /// Where it keeps data.
    pub backend: Backend,
    settings: Settings,
    /// Access to the store; home has none.
    pub(crate) limiter: Option<Arc<InFlightLimiter>>,
    /// Its speed, for placement.
    pub load: Load,
    /// Its load.
    pub monitor: Monitor,
    /// Whether it is in trouble.
    pub health: Health,
    /// The errors that it answered.
    pub errors: Errors,
    /// Ranges that spread files have on it.
    pub ranges: RangeCount,
    profile: Option<TierProfile>,
    /// The basis of the figures of its speed.
    basis: Basis,
    room: Room,
    /// The expected label.
    label: Vec<u8>,
    probing: AtomicBool,
    measuring: AtomicBool,
    abilities: Abilities,
    environment: Arc<dyn Environment>,
}

/// Where a new tier is to keep data.
pub enum Place {
    /// Home.
    Home(Fd),
    /// In this store; `None` if the tier is absent.
    Store(Option<Arc<dyn Store>>),
}

/// The parts that a tier is made from.
pub struct TierParts {
    /// Its number.
    pub id: TierId,
    /// Its name.
    pub name: String,
    /// The name of its place in messages.
    pub location: String,
    /// Where it is to keep data.
    pub place: Place,
    /// Its share against other tiers in MB/s, if configured.
    pub weight: Option<f64>,
    /// Its calibrated performance, if any.
    pub profile: Option<TierProfile>,
    /// Space to be left free.
    pub reserve: Reserve,
    /// The expected label.
    pub label: Vec<u8>,
    /// Whether latencies and threads are monitored.
    pub monitor: bool,
}

impl Tier {
    /// A tier of an open volume.
    pub fn new(parts: TierParts, environment: &Arc<dyn Environment>) -> Self {
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
        let basis = Basis::default();
        if let Some(profile) = &parts.profile {
            load.seed(profile);
            let bandwidth = [profile.read, profile.write].map(|known| Some(known.bandwidth));
            basis.set(SpeedBasis::Profile, environment().wall_ns(), bandwidth);
        }
        let abilities = Abilities::new(&backend);
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
            ranges: RangeCount::default(),
            profile: parts.profile,
            basis,
            room: Room::new(),
            label: parts.label,
            probing: AtomicBool::new(false),
            measuring: AtomicBool::new(false),
            abilities,
            environment: environment(),
        }
    }

    /// The name of its place in messages.
    pub fn location(&self) -> String {
        self.location.read().clone()
    }

    /// Moves the home tier to another directory.
    pub fn switch_root(&self, root: Fd, location: String) {
        if let Backend::Home(place) = &self.backend {
            *place.write() = root;
            self.abilities.renew(&self.backend);
            *self.location.write() = location;
            // The figures were of another device.
            self.load.forget();
            self.basis.forget();
            self.measure();
        }
    }

    /// Whether it holds the namespace.
    pub fn is_home(&self) -> bool {
        matches!(self.backend, Backend::Home(_))
    }

    /// Its capabilities: those of its store, or, for home, those of native file
    /// systems.
    pub fn capabilities(&self) -> StoreCapabilities {
        self.abilities.now()
    }

    /// The zones of a zoned tier, and their figures.
    pub fn zones(&self) -> Option<ZoneStatus> {
        match &self.backend {
            Backend::Store(store) => store.zones(),
            Backend::Home(_) => None,
        }
    }

    /// Whether its store is absent.
    pub fn is_absent(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_absent())
    }

    /// The space beneath, as it is now.
    fn usage(&self) -> Result<Usage> {
        match &self.backend {
            Backend::Store(store) => store.usage(),
            Backend::Home(root) => root.read().usage().map(|usage| usage.space),
        }
    }

    /// Bytes that may still be placed here, leaving the reserve. The figure may
    /// be slightly out of date.
    pub fn room(&self) -> u64 {
        self.figures().room
    }

    /// Whether it has room, as far as that is known. Never waits for the tier.
    pub(crate) fn has_known_room(&self) -> bool {
        self.room.figures().is_none_or(|figures| figures.room > 0)
    }

    /// Used share of the space for data, 0 to 1; the reserve does not count as
    /// space.
    pub fn filled(&self) -> f64 {
        self.figures().used()
    }

    /// The most bytes that data may take on it.
    pub fn capacity(&self) -> u64 {
        self.figures().capacity()
    }

    /// Notes that `bytes` were placed here, in blocks of their own, so that the
    /// known room shrinks at once.
    pub fn took(&self, bytes: u64) {
        self.room.took(bytes.next_multiple_of(BLOCK));
    }

    /// Notes that a file grew here by a write from `offset` to `end`.
    pub fn grew(&self, offset: u64, end: u64) {
        self.room.took(end.next_multiple_of(BLOCK) - offset.next_multiple_of(BLOCK));
    }

    /// Has the space measured again, since some was freed.
    pub fn measure_again(&self) {
        if !self.is_stalled() {
            self.measure();
        }
    }

    /// Notes that the tier answered that it is full, whatever the figures say.
    pub(crate) fn is_full_after_all(&self) {
        self.room.exhausted();
    }

    /// Its state, for `status`.
    pub fn state(&self) -> TierState {
        match self.health.trouble() {
            _ if self.is_absent() => TierState::Absent,
            _ if self.hangs() => TierState::Hanging,
            Trouble::ReadOnly => TierState::ReadOnly,
            Trouble::Failing => TierState::Failing,
            Trouble::None if self.is_draining() => TierState::Draining,
            Trouble::None if self.is_set_readonly() => TierState::SetReadOnly,
            Trouble::None if !self.has_known_room() => TierState::Full,
            Trouble::None => TierState::Online,
        }
    }

    /// Whether no operation on it ends.
    pub(crate) fn hangs(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.hangs())
    }

    /// Whether no operation has ended for a while: it may be about to hang, and
    /// gets no request that can wait.
    fn is_stalled(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_stalled())
    }

    /// Whether an operation on it is in flight.
    pub fn is_busy(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_busy())
    }

    /// Whether a new operation would not wait for another.
    pub fn is_prompt(&self) -> bool {
        self.limiter.as_ref().is_none_or(|limiter| limiter.is_prompt())
    }

    /// Whether no operation on it ends, even allowing for slow ones: a thread
    /// with other work does not wait for it.
    pub fn is_stuck(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_stuck())
    }

    /// Whether it may be given new ranges, as far as its health goes.
    pub fn is_healthy(&self) -> bool {
        self.health.trouble() == Trouble::None && !self.is_stalled()
    }

    /// Whether a tier in trouble is to be probed now, by one thread.
    pub fn begin_probe(&self) -> bool {
        !self.is_home()
            && !self.is_absent()
            && self.health.probe_is_due()
            && !self.probing.swap(true, Ordering::AcqRel)
    }

    /// Probes a tier in trouble.
    pub fn probe(&self) {
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

    /// Threads that saturate it with writes: as calibrated, or as observed.
    pub(crate) fn saturating(&self) -> Option<u32> {
        let profile = self.profile.map(|profile| profile.write.threads);
        profile.or_else(|| self.load.saturating(Direction::Write))
    }

    /// The rates that placement may rely on.
    pub fn known(&self) -> KnownRates {
        let learned = Direction::BOTH.map(|direction| self.load.bandwidth(direction));
        let guess = Direction::BOTH.map(|direction| self.load.guess(direction));
        KnownRates { learned, guess, weight: self.given_weight() }
    }

    /// The highest known rates of reads and writes, in bytes a second.
    pub fn bandwidth(&self) -> [Option<f64>; 2] {
        Direction::BOTH.map(|direction| self.load.bandwidth(direction))
    }

    /// Takes bandwidths of reads and writes for its own, in bytes a second and
    /// with the fewest threads that reach them, as observed at a time in
    /// nanoseconds since 1970.
    pub fn believe(&self, bandwidth: [Option<(f64, u32)>; 2], from: SpeedBasis, seen_ns: i64) {
        for (direction, known) in Direction::BOTH.into_iter().zip(bandwidth) {
            if let Some((bandwidth, threads)) = known {
                self.load.believe(direction, bandwidth, threads.max(1));
            }
        }
        self.basis.set(from, seen_ns, self.bandwidth());
    }

    /// The basis of its [`bandwidth`](Self::bandwidth), and when it was last
    /// observed, in nanoseconds since 1970; `None` if it is not known.
    pub fn speed_basis(&self) -> Option<(SpeedBasis, i64)> {
        self.basis.get()
    }

    /// Seconds since a time in nanoseconds since 1970, by its clock.
    pub fn seconds_since(&self, then_ns: i64) -> u64 {
        u64::try_from(self.environment.wall_ns().saturating_sub(then_ns) / 1_000_000_000).unwrap_or(0)
    }

    /// Notes the effect of a tier's error on its health, and answers the error
    /// for the application.
    pub fn note_error(&self, error: Error) -> Error {
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
            // The index says that the object exists.
            Errno::ENOENT if !self.is_home() => {
                tracing::error!(tier = %self.name, "an object that an index names is missing");
                Error::new(Errno::EIO, format!("tier {}: the file's object is missing", self.name))
            }
            _ => error,
        }
    }

    /// The figures of the tier's space. Where threads are allowed, one of them
    /// keeps these current, so that no operation waits for a tier that does not
    /// answer.
    pub(crate) fn figures(&self) -> Figures {
        let last = self.room.figures();
        let is_fresh = |figures: &Figures| {
            self.environment.threads()
                || self.environment.monotonic_ns().saturating_sub(figures.measured_ns) < AGE_MAX_NS
        };
        last.filter(is_fresh).unwrap_or_else(|| self.measure())
    }

    /// The space of the file system, by recent figures.
    pub fn last_usage(&self) -> Usage {
        self.figures().usage
    }

    /// Measures the tier's space.
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

    /// Whether the figures are to be measured now, by one thread.
    pub fn begin_measuring(&self) -> bool {
        !self.is_absent() && !self.is_stalled() && !self.measuring.swap(true, Ordering::AcqRel)
    }

    /// Measures the figures.
    pub fn finish_measuring(&self) {
        self.measure();
        self.measuring.store(false, Ordering::Release);
    }
}

impl Tier {
    /// Runs one operation that moves data, and counts it; it answers the bytes
    /// it moved. `what` is the intended number of bytes, and whether the page
    /// cache is bypassed.
    pub fn count<E>(
        &self,
        direction: Direction,
        what: (usize, bool),
        op: impl FnOnce() -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        if !self.monitor.is_enabled() {
            return self.load.count(direction, what, op);
        }
        let began_ns = self.environment.monotonic_ns();
        let result = self.load.count(direction, what, op);
        if let Ok(bytes) = &result {
            let took_ns = self.environment.monotonic_ns().saturating_sub(began_ns);
            self.monitor.note(direction, *bytes as u64, took_ns);
        }
        result
    }

    /// Closes an epoch of all counters of the tier.
    pub(crate) fn close_epoch(&self) {
        let device = self.room.figures().and_then(|known| {
            // Figures of a moment ago: nothing waits for the tier.
            self.environment.device_counters(known.usage.device)
        });
        self.load.close_epoch(device);
        self.basis.note_use(self.bandwidth(), self.environment.wall_ns());
        self.monitor.close_epoch(self.environment.monotonic_ns());
    }

    /// Whether applications leave no room for movers: one direction is at the
    /// tier's limit, and not because of movers themselves.
    pub fn is_saturated(&self) -> bool {
        let now = self.monitor.now();
        [Direction::Read, Direction::Write].into_iter().any(|direction| {
            let at = direction as usize;
            self.load.is_saturated(direction) && now.foreground_rate[at] >= now.mover_rate[at]
        })
    }
}

impl Tier {
    /// Its share against other tiers, in MB/s: as configured, which is a wish,
    /// or as measured; `None` before a measurement.
    pub fn weight(&self) -> Option<f64> {
        self.given_weight().or_else(|| self.measured_speed())
    }

    /// How fast it was seen to be, in MB/s.
    pub(crate) fn measured_speed(&self) -> Option<f64> {
        Some(self.load.measured_bandwidth()? / WEIGHT_UNIT)
    }

    /// Its speed in MB/s, by the best known figure: as measured, or else as
    /// configured; `None` if there is none. Data that is to go to a faster tier
    /// goes by this.
    pub fn speed(&self) -> Option<f64> {
        self.measured_speed()
            .or_else(|| self.given_weight())
            .or_else(|| Some(self.load.cached_rate()? / WEIGHT_UNIT))
    }

    /// The configured weight, if any.
    pub(crate) fn given_weight(&self) -> Option<f64> {
        self.settings.weight()
    }

    /// Sets the weight; `None` means the measured one.
    pub fn set_weight(&self, weight: Option<f64>) {
        self.settings.set_weight(weight);
    }

    /// Space to be left free.
    pub fn reserve(&self) -> Reserve {
        match self.settings.reserve() {
            Reserve::Unset if self.is_home() => Reserve::Names,
            reserve => reserve,
        }
    }

    /// Sets the space to be left free.
    pub fn set_reserve(&self, reserve: Reserve) {
        self.settings.set_reserve(reserve);
        self.measure_again();
    }

    /// Whether it is being emptied, or was: it takes no new ranges, and its
    /// data is read and written as usual.
    pub fn is_draining(&self) -> bool {
        self.settings.is_draining()
    }

    /// Closes the tier to new ranges, or opens it again. When this returns, no
    /// thread that did not see the change is about to give it a range.
    pub fn set_draining(&self, draining: bool) {
        self.settings.set_draining(draining);
    }

    /// Whether it was set to be read only: it takes no new ranges, and a range
    /// on it that is written to goes to another tier first.
    pub fn is_set_readonly(&self) -> bool {
        self.settings.is_readonly()
    }

    /// Sets or clears read only, as [`set_draining`](Self::set_draining) does.
    pub fn set_readonly(&self, readonly: bool) {
        self.settings.set_readonly(readonly);
    }

    /// Whether it may be given new ranges, as far as its settings go.
    pub fn takes_ranges(&self) -> bool {
        !self.is_draining() && !self.is_set_readonly()
    }

    /// An admission to give the tier a range.
    ///
    /// # Errors
    /// `ENOSPC` if it takes none: the caller looks for another.
    pub fn admit(&self) -> Result<Admission<'_>> {
        self.settings.admit().map_err(|why| {
            Error::new(Errno::ENOSPC, format!("tier {} takes no new ranges: it is {why}", self.name))
        })
    }

    /// Refuses writes to a range on a tier that is set to be read only, with
    /// the error that makes the range move.
    pub fn refuse_if_readonly(&self) -> Result<()> {
        if self.is_set_readonly() {
            return Err(Error::new(Errno::ENOSPC, format!("tier {} is set to read-only", self.name)));
        }
        Ok(())
    }
}
