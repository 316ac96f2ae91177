//! The tiers of an open volume: where their bytes are, how much room they
//! have, how they are doing, and what went through them.

mod load;
mod room;

use crate::config::Reserve;
use crate::placement::TierView;
use crate::sync::Mutex;
use braid_contract::{Environment, Errno, Error, Fd, ObjectId, Result, Store, TierId, Usage};
pub(crate) use load::Direction;
use load::Load;
use room::Room;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How a tier is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierState {
    /// It takes new ranges.
    Online,
    /// It has no room beyond its reserve.
    Full,
    /// It refuses writes; what is on it can be read.
    ReadOnly,
    /// It answers errors, or is gone.
    Failing,
}

impl TierState {
    /// The word that `status` shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Failing => "failing",
        }
    }
}

/// Where the bytes of a tier are.
pub(crate) enum Backend {
    /// In the files of the namespace itself, below this directory.
    Home(Fd),
    /// In a store's objects.
    Store(Arc<dyn Store>),
}

/// One tier.
pub(crate) struct Tier {
    pub(crate) id: TierId,
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) backend: Backend,
    pub(crate) reserve: Reserve,
    pub(crate) load: Load,
    /// Ranges that spread files have on it.
    pub(crate) ranges: AtomicU64,
    given_weight: Option<f64>,
    room: Room,
    /// A [`TierState`] other than `Full`, which follows from the room.
    trouble: AtomicU8,
}

const TROUBLE_NONE: u8 = 0;
const TROUBLE_READ_ONLY: u8 = 1;
const TROUBLE_FAILING: u8 = 2;

/// What a tier is made from.
pub(crate) struct TierParts {
    pub(crate) id: TierId,
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) backend: Backend,
    pub(crate) weight: Option<f64>,
    pub(crate) reserve: Reserve,
}

impl Tier {
    pub(crate) fn new(parts: TierParts, environment: &Arc<dyn Environment>) -> Self {
        Self {
            id: parts.id,
            name: parts.name,
            location: parts.location,
            backend: parts.backend,
            reserve: parts.reserve,
            load: Load::new(Arc::clone(environment)),
            ranges: AtomicU64::new(0),
            given_weight: parts.weight,
            room: Room::new(Arc::clone(environment)),
            trouble: AtomicU8::new(TROUBLE_NONE),
        }
    }

    pub(crate) fn is_home(&self) -> bool {
        matches!(self.backend, Backend::Home(_))
    }

    /// The space beneath, as it is now.
    pub(crate) fn usage(&self) -> Result<Usage> {
        match &self.backend {
            Backend::Store(store) => store.usage(),
            Backend::Home(root) => root.usage().map(|usage| usage.space),
        }
    }

    /// Bytes that may still be placed here, leaving the reserve. The figure
    /// may be a moment old.
    pub(crate) fn room(&self) -> u64 {
        self.measured().1
    }

    /// Notes that `bytes` were placed here, so that the room that is reckoned
    /// with shrinks at once.
    pub(crate) fn took(&self, bytes: u64) {
        self.room.took(bytes);
    }

    /// Space was freed: the next look at the room measures it.
    pub(crate) fn measure_again(&self) {
        self.room.forget();
    }

    /// The tier just said that it is full, whatever the figures say.
    pub(crate) fn is_full_after_all(&self) {
        self.room.exhausted();
    }

    pub(crate) fn state(&self) -> TierState {
        let room = self.room();
        match self.trouble.load(Ordering::Relaxed) {
            TROUBLE_READ_ONLY => TierState::ReadOnly,
            TROUBLE_FAILING => TierState::Failing,
            _ if room == 0 => TierState::Full,
            _ => TierState::Online,
        }
    }

    /// Bandwidth relative to the others: as given, or as measured; `None`
    /// while nothing was measured.
    pub(crate) fn weight(&self) -> Option<f64> {
        self.given_weight.or_else(|| self.load.measured_bandwidth())
    }

    /// Looks at an error that the tier answered, remembers what it says of the
    /// tier, and answers what the application should see.
    pub(crate) fn note_error(&self, error: Error) -> Error {
        let errno = error.errno();
        if errno.is_full() {
            self.is_full_after_all();
            return error;
        }
        if errno.is_failing() && !self.is_home() {
            let trouble = if errno == Errno::EROFS { TROUBLE_READ_ONLY } else { TROUBLE_FAILING };
            if self.trouble.swap(trouble, Ordering::Relaxed) != trouble {
                tracing::error!(tier = %self.name, location = %self.location, %error, "tier takes no new ranges");
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

    /// Share of the space in use and room beyond the reserve; measured anew
    /// when the last figures are old. A tier in trouble is tried again then.
    fn measured(&self) -> (f64, u64) {
        self.room.get(|| {
            let usage = match self.usage() {
                Ok(usage) => {
                    if self.trouble.swap(TROUBLE_NONE, Ordering::Relaxed) != TROUBLE_NONE {
                        tracing::info!(tier = %self.name, "tier answers again");
                    }
                    usage
                }
                Err(error) => {
                    self.note_error(error);
                    Usage::default()
                }
            };
            let room = usage.available.saturating_sub(self.reserve.bytes(usage.total));
            let used = if usage.total == 0 { 1.0 } else { 1.0 - usage.free as f64 / usage.total as f64 };
            (used, room)
        })
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
    list: Vec<Tier>,
    home: usize,
    counts: Mutex<Counts>,
    /// How often [`count_range`](Self::count_range) was called.
    changes: AtomicU64,
}

impl Tiers {
    /// `list` has exactly one home tier.
    pub(crate) fn new(list: Vec<Tier>) -> Result<Self> {
        let home = list.iter().position(Tier::is_home).ok_or(Errno::EINVAL)?;
        Ok(Self { list, home, counts: Mutex::new(Counts::Exact), changes: AtomicU64::new(0) })
    }

    pub(crate) fn home(&self) -> &Tier {
        &self.list[self.home]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tier> {
        self.list.iter()
    }

    /// The stores of all tiers other than home.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (&Tier, &Arc<dyn Store>)> {
        self.list.iter().filter_map(|tier| match &tier.backend {
            Backend::Home(_) => None,
            Backend::Store(store) => Some((tier, store)),
        })
    }

    /// The tier that an index entry names.
    pub(crate) fn get(&self, id: TierId) -> Result<&Tier> {
        let found = self.list.iter().find(|tier| tier.id == id);
        found.ok_or_else(|| Error::new(Errno::EIO, format!("tier number {id} is not part of the volume")))
    }

    /// The tiers as a policy sees them, for `new_bytes` more. Those in
    /// `excluded`, a set of bits by tier number, count as without room.
    pub(crate) fn views(&self, new_bytes: u64, excluded: u64) -> Vec<TierView> {
        let weights: Vec<Option<f64>> = self.list.iter().map(Tier::weight).collect();
        let known: Vec<f64> = weights.iter().flatten().copied().collect();
        let typical = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let view = |(tier, weight): (&Tier, &Option<f64>)| {
            let (used, room) = tier.measured();
            let healthy = tier.trouble.load(Ordering::Relaxed) == TROUBLE_NONE;
            TierView {
                id: tier.id,
                home: tier.is_home(),
                weight: weight.unwrap_or(typical),
                has_room: healthy && room >= new_bytes && excluded & bit(tier.id) == 0,
                used,
            }
        };
        self.list.iter().zip(&weights).map(view).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    pub(crate) fn set_counts(&self, counts: Counts) {
        *self.counts.lock() = counts;
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
