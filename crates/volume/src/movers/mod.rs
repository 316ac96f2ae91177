//! What moves ranges in the background (PolyStore Algorithm 2): ranges that
//! are frequently used go to faster tiers, and tiers that run full give cold
//! ranges to slower ones. One thread for each (`background`); what they move
//! by is [`Volume::relocate`], and the heat of ranges tells them what.

mod demote;
mod guard;
mod order;
mod promote;
mod reach;

use crate::Volume;
use crate::config::MoversConfig;
use crate::format::{RangeSize, Reason};
use crate::heat::FileKey;
use crate::migrate::Pace;
use crate::status::MoveCount;
use crate::sync::{Mutex, ReadGuard, RwLock, WriteGuard};
use crate::tiers::{Tier, bit};
use braid_contract::{Environment, Errno, Error, Result, TierId};
use guard::{Advice, Guard, Seen};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// For how long a file that can't be moved is left alone.
const LATER_NS: u64 = 30_000_000_000;

/// Files that are left alone, at most.
const LATER_MAX: usize = 4096;

/// Operations within a window from which a percentile says something.
const P99_OPS_MIN: u64 = 20;
/// Operations of a thread in the monitor's last second, or epoch where that is
/// longer, that tell which tiers it works on.
const SETTLED_OPS_MIN: u64 = 40;

/// One of the two movers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mover {
    Promote,
    Demote,
}

impl Mover {
    fn name(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Demote => "demote",
        }
    }

    /// Why it moves something, in a word.
    fn cause(self) -> &'static str {
        match self {
            Self::Promote => "hot",
            Self::Demote => "watermark",
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::Promote => Reason::Promoted,
            Self::Demote => Reason::Demoted,
        }
    }
}

/// The movers' way to one tier.
pub(crate) struct Lane {
    pace: Pace,
    guard: Mutex<Guard>,
    /// The tier was filled to the high watermark, and not yet brought below the
    /// low one.
    relieving: AtomicBool,
    /// The namespace is not searched for cold files before this.
    search_at_ns: AtomicU64,
}

/// What was moved by which mover, from where, to where: ranges and bytes.
type Counts = BTreeMap<(Mover, TierId, TierId), (u64, u64)>;

/// The movers of a volume.
pub(crate) struct Movers {
    pub(crate) config: MoversConfig,
    lanes: Mutex<BTreeMap<TierId, Arc<Lane>>>,
    counts: Mutex<Counts>,
    /// Files that are left alone until then.
    later: Mutex<HashMap<FileKey, u64>>,
    stopped: AtomicBool,
    /// None is to begin a round for a moment.
    held: AtomicBool,
    /// Shared by rounds.
    rounds: RwLock<()>,
    environment: Arc<dyn Environment>,
}

/// No mover is at work while this lives.
pub(crate) struct HeldMovers<'a> {
    movers: &'a Movers,
    _rounds: WriteGuard<'a, ()>,
}

impl Drop for HeldMovers<'_> {
    fn drop(&mut self) {
        self.movers.held.store(false, Ordering::Release);
    }
}

impl Movers {
    pub(crate) fn new(config: MoversConfig, environment: &Arc<dyn Environment>) -> Self {
        Self {
            config,
            lanes: Mutex::new(BTreeMap::new()),
            counts: Mutex::new(Counts::new()),
            later: Mutex::new(HashMap::new()),
            stopped: AtomicBool::new(false),
            held: AtomicBool::new(false),
            rounds: RwLock::new(()),
            environment: Arc::clone(environment),
        }
    }

    fn is_on(&self) -> bool {
        self.config.promote || self.config.demote
    }

    /// Ends what is under way.
    pub(crate) fn stop(&self) {
        // Lanes that are made later look at it under the same lock.
        let lanes = self.lanes.lock();
        self.stopped.store(true, Ordering::Release);
        lanes.values().for_each(|lane| lane.pace.stop());
    }

    /// Begins a round; `None` while movers are held.
    fn round(&self) -> Option<ReadGuard<'_, ()>> {
        let round = self.rounds.read();
        (!self.is_held()).then_some(round)
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Ends all rounds, and keeps others from being begun until the answer is
    /// dropped.
    pub(crate) fn hold(&self) -> HeldMovers<'_> {
        self.held.store(true, Ordering::Release);
        // New ones are made for later rounds.
        let lanes = std::mem::take(&mut *self.lanes.lock());
        lanes.values().for_each(|lane| lane.pace.stop());
        HeldMovers { movers: self, _rounds: self.rounds.write() }
    }

    fn lane(&self, tier: TierId) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        let make = || {
            let cap = self.config.bandwidth as f64;
            let pace = Pace::new(Some(cap), &self.environment);
            if self.stopped.load(Ordering::Acquire) {
                pace.stop();
            }
            Arc::new(Lane {
                pace,
                guard: Mutex::new(Guard::new(cap, self.config.latency_factor)),
                relieving: AtomicBool::new(false),
                search_at_ns: AtomicU64::new(0),
            })
        };
        Arc::clone(lanes.entry(tier).or_insert_with(make))
    }

    fn count(&self, mover: Mover, from: TierId, to: TierId, bytes: u64) {
        let mut counts = self.counts.lock();
        let count = counts.entry((mover, from, to)).or_default();
        count.0 += 1;
        count.1 += bytes;
    }

    /// The file is not tried again for a while.
    fn leave_alone(&self, file: FileKey) {
        let now_ns = self.environment.monotonic_ns();
        let mut later = self.later.lock();
        if later.len() >= LATER_MAX {
            later.retain(|_, until_ns| *until_ns > now_ns);
        }
        if later.len() < LATER_MAX {
            later.insert(file, now_ns + LATER_NS);
        }
    }

    fn is_left_alone(&self, file: FileKey) -> bool {
        let now_ns = self.environment.monotonic_ns();
        self.later.lock().get(&file).is_some_and(|until_ns| *until_ns > now_ns)
    }
}

/// Something that a mover set out to do, and when it is to end.
struct Errand<'a> {
    mover: Mover,
    /// The tiers that ranges may go to, the first choice first.
    to: &'a [Arc<Tier>],
    /// Whether a range is to leave the tier that it turns out to be on, for one
    /// of those.
    leaves: &'a dyn Fn(&Tier, &Tier) -> bool,
    stop: &'a dyn Fn() -> bool,
}

/// How far an errand came with one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// All that was to move did, or is to stay; so many bytes moved.
    Done(u64),
    /// No target takes more, or all is to end; so many bytes moved before.
    Ended(u64),
}

impl Outcome {
    fn bytes(self) -> u64 {
        match self {
            Self::Done(bytes) | Self::Ended(bytes) => bytes,
        }
    }
}

impl Volume {
    /// Sets the movers' pace on each tier by what applications feel. Never
    /// waits for a tier.
    pub(crate) fn guard_movers(&self) {
        if !self.movers.is_on() {
            return;
        }
        // Operations under way, on average, are seconds waited in a second.
        let tiers: Vec<_> = self.tiers.iter().map(|tier| (tier.id, tier.monitor.now())).collect();
        let all: f64 = tiers.iter().map(|(_, now)| now.in_flight).sum();
        let settled = self.settled_tiers();
        for (tier, now) in tiers {
            let waited = if all > 0.0 { now.in_flight / all } else { 0.0 };
            let seen = Seen {
                began_ns: now.began_ns,
                ended_ns: now.ended_ns,
                p99_ns: now.latency.map(|kind| (kind.ops >= P99_OPS_MIN).then_some(kind.p99_ns)),
                mover_rate: now.mover_rate.iter().sum(),
                waited: if settled & bit(tier) == 0 { waited } else { 1.0 },
            };
            let lane = self.movers.lane(tier);
            let advice = lane.guard.lock().step(&seen);
            match advice {
                Advice::Wait => lane.pace.set_paused(true),
                Advice::Go(rate) => {
                    lane.pace.set_rate(Some(rate));
                    lane.pace.set_paused(false);
                }
            }
        }
    }

    /// The tiers that some thread does nearly all of its work on: whoever that
    /// is feels what happens there, however much others wait elsewhere.
    fn settled_tiers(&self) -> u64 {
        let mut threads: HashMap<u32, Vec<(TierId, u64)>> = HashMap::new();
        for tier in self.tiers.iter() {
            for (thread, load) in tier.monitor.threads() {
                threads.entry(thread).or_default().push((tier.id, load.ops.iter().sum()));
            }
        }
        let mut settled = 0;
        for work in threads.values() {
            let all: u64 = work.iter().map(|(_, ops)| ops).sum();
            let own = work.iter().filter(|(_, ops)| all >= SETTLED_OPS_MIN && ops * 10 >= all * 9);
            own.for_each(|(tier, _)| settled |= bit(*tier));
        }
        settled
    }

    /// Bytes a second that movers may come to on the tier now; `None` if there
    /// are none.
    pub(crate) fn mover_limit(&self, tier: TierId) -> Option<f64> {
        if !self.movers.is_on() {
            return None;
        }
        let lane = self.movers.lane(tier);
        let waits = lane.guard.lock().waits();
        if waits { Some(0.0) } else { lane.pace.rate() }
    }

    /// What movers moved since the mount.
    pub(crate) fn move_counts(&self) -> Vec<MoveCount> {
        let named = |id: TierId| (id, self.tier_name(id));
        let counts = self.movers.counts.lock();
        let count =
            |((mover, from, to), (ranges, bytes)): (&(Mover, TierId, TierId), &(u64, u64))| MoveCount {
                mover: mover.name(),
                from: named(*from),
                to: named(*to),
                reason: mover.cause(),
                ranges: *ranges,
                bytes: *bytes,
            };
        counts.iter().map(count).collect()
    }

    /// What the movers would do with a range of this size and heat on this tier.
    pub(crate) fn verdict(&self, tier: &Tier, ranges: RangeSize, degree: u8, pinned: bool) -> String {
        let config = &self.movers.config;
        let has_room = |to: &Arc<Tier>| to.room() >= ranges.bytes();
        if pinned {
            return "stays: pinned".into();
        }
        if config.promote && degree >= self.heat.frequent() {
            let tiers = self.tiers_by_speed();
            let mut faster = tiers.iter().filter(|to| self.is_faster(to, tier)).peekable();
            let first = faster.peek().map(|to| (to.name.clone(), self.closed(to)));
            if let Some(to) = faster.find(|to| self.closed(to).is_none() && has_room(to)) {
                return format!("goes to {}: in use", to.name);
            }
            if let Some((name, Some(closed))) = first {
                return format!("stays: {name} {}", closed.describe());
            }
        }
        if config.demote && degree < self.heat.cold_below() && self.needs_relief(tier) {
            let to = self.relief_targets(tier).into_iter().find(has_room);
            return match to {
                Some(to) => format!("goes to {}: {} is filled to its watermark", to.name, tier.name),
                None => "stays: no slower tier takes it now".into(),
            };
        }
        "stays".into()
    }

    /// Carries an errand out for some ranges of one file.
    fn move_ranges(&self, reached: &reach::Reached<'_>, ranges: &[u32], errand: &Errand<'_>) -> Outcome {
        let mut bytes = 0;
        for range in ranges {
            if (errand.stop)() {
                return Outcome::Ended(bytes);
            }
            match self.move_range_for(reached, *range, errand) {
                Ok(moved) => bytes += moved,
                Err(error) => {
                    let ended = self.note_unmoved(reached.key, errand, &error);
                    return if ended { Outcome::Ended(bytes) } else { Outcome::Done(bytes) };
                }
            }
        }
        Outcome::Done(bytes)
    }

    /// Moves one range, if it is where the errand takes it from.
    fn move_range_for(&self, reached: &reach::Reached<'_>, range: u32, errand: &Errand<'_>) -> Result<u64> {
        let Some(from) = self.tier_of_range(&reached.file, range)? else {
            self.heat.table().forget_range(reached.key, range);
            return Ok(0);
        };
        self.heat.table().seen_on(reached.key, range, from.id);
        let ranges = self.range_size_of(&reached.file)?;
        let Some(to) = self.target_for(&from, ranges, errand)? else { return Ok(0) };
        // Both tiers' caps are kept.
        if self.movers.lane(from.id).pace.take(ranges.bytes()).is_err() {
            return Err(Errno::ECANCELED.into());
        }
        let offset = ranges.start_of(range.into());
        let lane = self.movers.lane(to.id);
        let moved = self.relocate(&reached.file, offset, to, (errand.mover.reason(), &lane.pace))?;
        if moved > 0 {
            self.movers.count(errand.mover, from.id, to.id, moved);
        }
        Ok(moved)
    }

    /// The first tier that takes a range of this size off `from`; `None` if it
    /// is to stay. `ENOSPC` if no tier takes any, `EFBIG` if some have room for
    /// shorter ones.
    fn target_for<'a>(
        &self,
        from: &Tier,
        ranges: RangeSize,
        errand: &Errand<'a>,
    ) -> Result<Option<&'a Arc<Tier>>> {
        let wanted = |to: &&Arc<Tier>| to.id != from.id && (errand.leaves)(from, to);
        let mut targets = errand.to.iter().filter(wanted).peekable();
        if targets.peek().is_none() {
            return Ok(None);
        }
        let mut open = targets.filter(|to| self.closed(to).is_none()).peekable();
        if open.peek().is_none() {
            return Err(Errno::ENOSPC.into());
        }
        open.find(|to| to.room() >= ranges.bytes()).map(Some).ok_or_else(|| Errno::EFBIG.into())
    }

    /// Something was not moved; answers whether the whole errand ends.
    fn note_unmoved(&self, file: FileKey, errand: &Errand<'_>, error: &Error) -> bool {
        tracing::debug!(ino = file.ino, mover = errand.mover.name(), %error, "a range was not moved");
        match error.errno() {
            Errno::ECANCELED => return true,
            errno if errno.is_full() => return true,
            Errno::ENOENT | Errno::ESTALE => self.heat.table().forget(file),
            // The kernel does I/O on it by itself, its ranges are too long for
            // the room there is, or a tier is in trouble.
            _ => self.movers.leave_alone(file),
        }
        false
    }

    pub(crate) fn tier_name(&self, id: TierId) -> String {
        self.tiers.get(id).map_or_else(|_| "(not part of the volume)".into(), |tier| tier.name.clone())
    }
}
