//! The tiers of a volume: the current and the lost ones, and how reliable the
//! counts of their ranges are.

use crate::backend::Backend;
use crate::tier::Tier;
use braid_contract::{Errno, Error, RefusalKind, Result, Store, TierId};
use braid_placement::{Direction, Epoch, Load, TierEpoch, TierView, believed, weights, with_means};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How reliable the counts of the tiers' ranges are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Not at all: they have to be counted.
    Unknown,
    /// They were counted while files changed.
    Near,
    /// They are right.
    Exact,
}

/// All tiers of a volume.
pub struct Tiers {
    home: Arc<Tier>,
    /// Including home.
    list: RwLock<Arc<Vec<Arc<Tier>>>>,
    /// Tiers that were lost, by the numbers that entries may still name.
    lost: RwLock<Vec<(TierId, String)>>,
    counts: Mutex<Counts>,
    /// How often [`count_range`](Self::count_range) was called.
    changes: AtomicU64,
}

impl Tiers {
    /// `list` has exactly one home tier.
    pub fn new(list: Vec<Tier>, lost: Vec<(TierId, String)>) -> Result<Self> {
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

    /// The home tier.
    pub fn home(&self) -> &Tier {
        &self.home
    }

    /// The current tiers.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Tier>>> {
        Arc::clone(&self.list.read())
    }

    /// Each current tier.
    pub fn iter(&self) -> impl Iterator<Item = Arc<Tier>> {
        let all = self.all();
        (0..all.len()).map(move |at| Arc::clone(&all[at]))
    }

    /// The stores of all tiers other than home.
    pub fn stores(&self) -> impl Iterator<Item = (Arc<Tier>, Arc<dyn Store>)> {
        self.iter().filter_map(|tier| match &tier.backend {
            Backend::Home(_) => None,
            Backend::Store(store) => {
                let store = Arc::clone(store);
                Some((tier, store))
            }
        })
    }

    /// The tier that an index entry names.
    pub fn get(&self, id: TierId) -> Result<Arc<Tier>> {
        if let Some(tier) = self.list.read().iter().find(|tier| tier.id == id) {
            return Ok(Arc::clone(tier));
        }
        let what = match self.lost.read().iter().find(|(lost, _)| *lost == id) {
            Some((_, name)) => format!("tier {name} (number {id}) was lost"),
            None => format!("tier number {id} is not part of the volume"),
        };
        Err(Error::new(Errno::EIO, what))
    }

    /// The tier of this name.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub fn named(&self, name: &str) -> Result<Arc<Tier>> {
        let found = self.iter().find(|tier| tier.name == name);
        found.ok_or_else(|| {
            Error::refused(Errno::ENOENT, RefusalKind::Request, format!("there is no tier {name}"))
        })
    }

    /// The name of the tier of this number, for messages.
    pub fn name_of(&self, id: TierId) -> String {
        self.get(id).map_or_else(|_| "(not part of the volume)".into(), |tier| tier.name.clone())
    }

    /// The number of the tier of this name.
    pub fn number(&self, name: &str) -> Option<TierId> {
        self.list.read().iter().find(|tier| tier.name == name).map(|tier| tier.id)
    }

    /// Tiers that were lost.
    pub fn lost(&self) -> Vec<(TierId, String)> {
        self.lost.read().clone()
    }

    /// Puts `new` in the place of the tier `old`, which becomes a lost one.
    pub fn replace(&self, old: &Tier, new: Tier) {
        let mut list = self.list.write();
        let new = Arc::new(new);
        let place = |tier: &Arc<Tier>| Arc::clone(if tier.id == old.id { &new } else { tier });
        *list = Arc::new(list.iter().map(place).collect());
        self.lost.write().push((old.id, old.name.clone()));
        if let Some(limiter) = &old.limiter {
            let _ = limiter.take();
        }
    }

    /// Adds `new` to the tiers.
    pub fn add(&self, new: Tier) {
        let mut list = self.list.write();
        let mut all = Vec::clone(&list);
        all.push(Arc::new(new));
        *list = Arc::new(all);
    }

    /// Removes an empty tier. Answers its store, if it is present; the tier
    /// gives no access to it any more.
    pub fn remove(&self, old: &Tier) -> Option<Arc<dyn Store>> {
        let mut list = self.list.write();
        *list = Arc::new(list.iter().filter(|tier| tier.id != old.id).cloned().collect());
        old.limiter.as_ref().and_then(|limiter| limiter.take())
    }

    /// Has the space of healthy tiers measured again: freed space counts.
    pub fn measure_again(&self) {
        self.iter().filter(|tier| tier.is_healthy()).for_each(|tier| tier.measure_again());
    }

    /// The tiers as a policy sees them, for `needed` more bytes. Those in
    /// `excluded`, a set of bits by tier number, count as full.
    pub fn views(&self, needed: u64, excluded: u64) -> Vec<TierView> {
        let all = self.all();
        let weights = all_weights(&all);
        let bandwidths = believed(&all.iter().map(|tier| tier.known()).collect::<Vec<_>>());
        let view = |(at, tier): (usize, &Arc<Tier>)| {
            // A hanging tier must not be asked for its room.
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

    /// Whether a tier outside of `excluded` lacks nothing but room for `needed`
    /// more bytes.
    pub fn any_is_full(&self, needed: u64, excluded: u64) -> bool {
        let candidates = self.iter().filter(|tier| excluded & bit(tier.id) == 0 && tier.takes_ranges());
        candidates.filter(|tier| tier.is_healthy()).any(|tier| tier.figures().room < needed)
    }

    /// Closes an epoch of all counters of all tiers. A tier that may be faster
    /// than believed is to be `tried` out, in reading and in writing, or else is
    /// believed to be. Never waits for a tier.
    pub fn close_epoch(&self, tried: [Option<f64>; 2]) {
        let all = self.all();
        all.iter().for_each(|tier| tier.close_epoch());
        Load::compare(all.iter().map(|tier| &tier.load), tried);
    }

    /// The last epoch. Its length is home's, since home always is one of the
    /// tiers.
    pub fn last_epoch(&self) -> Epoch {
        let all = self.all();
        let bandwidths = believed(&all.iter().map(|tier| tier.known()).collect::<Vec<_>>());
        let tier = |(tier, bandwidth): (&Arc<Tier>, [f64; 2])| TierEpoch {
            id: tier.id,
            load: Direction::BOTH.map(|direction| tier.load.last_epoch(direction)),
            bandwidth,
            known: tier.speed().is_some(),
            takes: tier.is_healthy() && tier.takes_ranges() && tier.has_known_room(),
            moved: tier.monitor.moved_in_epoch(),
            saturating: tier.saturating(),
        };
        let tiers = all.iter().zip(bandwidths).map(tier).collect();
        Epoch { nanos: self.home.load.last_epoch_ns(), tiers }
    }

    /// How reliable the counts of ranges are.
    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    /// Sets how reliable the counts of ranges are.
    pub fn set_counts(&self, counts: Counts) {
        *self.counts.lock() = counts;
    }

    /// Distrusts the counts, since entries went uncounted.
    pub fn distrust_counts(&self) {
        // A count under way may have seen them.
        self.disturb_count();
        let mut counts = self.counts.lock();
        if *counts == Counts::Exact {
            *counts = Counts::Near;
        }
    }

    /// Notes that a count under way may have missed ranges, or met them twice.
    pub fn disturb_count(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Number of changes of the counts so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Counts a range that moved from one tier to another; `None` for no tier.
    pub fn count_range(&self, from: Option<TierId>, to: Option<TierId>) {
        self.disturb_count();
        if let Some(tier) = from.and_then(|id| self.get(id).ok()) {
            tier.ranges.went();
        }
        if let Some(tier) = to.and_then(|id| self.get(id).ok()) {
            tier.ranges.came();
        }
    }
}

/// The [`weights`] of tiers. One without figures has the mean of the others.
/// The rate through the page cache says little beside real figures, and counts
/// while there are none.
fn all_weights(tiers: &[Arc<Tier>]) -> Vec<f64> {
    let measured: Vec<Option<f64>> = tiers.iter().map(|tier| tier.measured_speed()).collect();
    let given: Vec<Option<f64>> = tiers.iter().map(|tier| tier.given_weight()).collect();
    let known = weights(&given, &measured);
    match known.iter().all(Option::is_none) {
        true => with_means(&tiers.iter().map(|tier| tier.speed()).collect::<Vec<_>>(), 1.0),
        false => with_means(&known, 1.0),
    }
}

/// A tier as a bit in a set of tiers.
pub fn bit(tier: TierId) -> u64 {
    1 << tier.0
}
