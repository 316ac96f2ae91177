//! What moves ranges in the background (PolyStore Algorithm 2): ranges that
//! are frequently used go to faster tiers, and tiers that run full give cold
//! ranges to slower ones. One thread for each (`background`); what they move
//! by is [`Volume::relocate`], and the heat of ranges tells them what.

mod demote;
mod order;
mod promote;
mod reach;
mod standing;

use crate::Volume;
use braid_contract::{Environment, Errno, Error, MoveCount, Mover, Result, TierId};
use braid_core::file::gather::gather;
use braid_core::file::ranges::range_size_of;
use braid_core::file::relocate::relocate;
use braid_core::file::whole::moves_at_once;
use braid_format::{FileKey, RangeSize, Reason};
use braid_tiers::MoversConfig;
use braid_tiers::Tier;
use braid_tiers::rate::{IoClass, MoveRate, Pace, Throttles};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
pub use standing::MoverStatus;
use standing::Standing;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// For how long a file that can't be moved is left alone.
const LATER_NS: u64 = 30_000_000_000;

/// Files that are left alone, at most.
const LATER_MAX: usize = 4096;

/// Why a mover moves something, in a word.
fn cause(mover: Mover) -> &'static str {
    match mover {
        Mover::Promote => "hot",
        Mover::Demote => "watermark",
    }
}

fn reason(mover: Mover) -> Reason {
    match mover {
        Mover::Promote => Reason::Promoted,
        Mover::Demote => Reason::Demoted,
    }
}

/// What was moved by which mover, from where, to where: ranges and bytes.
type Counts = BTreeMap<(Mover, TierId, TierId), (u64, u64)>;

/// The movers of a volume.
pub(crate) struct Movers {
    /// The ways to the tiers, for jobs too; they have the settings of all.
    pub(crate) throttles: Arc<Throttles>,
    /// Those that are on.
    standing: Mutex<BTreeMap<Mover, Standing>>,
    counts: Mutex<Counts>,
    /// Files that are left alone until then.
    later: Mutex<HashMap<FileKey, u64>>,
    stopped: AtomicBool,
    /// None is to begin a round for a moment.
    held: AtomicBool,
    /// Shared by rounds.
    rounds: RwLock<()>,
    opened_ns: i64,
    environment: Arc<dyn Environment>,
}

/// No mover is at work while this lives.
pub(crate) struct HeldMovers<'a> {
    movers: &'a Movers,
    _rounds: RwLockWriteGuard<'a, ()>,
}

impl Drop for HeldMovers<'_> {
    fn drop(&mut self) {
        self.movers.held.store(false, Ordering::Release);
    }
}

impl Movers {
    pub(crate) fn new(environment: &Arc<dyn Environment>, throttles: &Arc<Throttles>) -> Self {
        let movers = Self {
            throttles: Arc::clone(throttles),
            standing: Mutex::new(BTreeMap::new()),
            counts: Mutex::new(Counts::new()),
            later: Mutex::new(HashMap::new()),
            stopped: AtomicBool::new(false),
            held: AtomicBool::new(false),
            rounds: RwLock::new(()),
            opened_ns: environment.wall_ns(),
            environment: Arc::clone(environment),
        };
        movers.stand();
        movers
    }

    /// The settings of now.
    pub(crate) fn config(&self) -> MoversConfig {
        self.throttles.config()
    }

    /// Goes by other settings from now on.
    pub(crate) fn set(&self, config: MoversConfig) {
        self.throttles.set(config);
        self.stand();
    }

    /// Ends what is under way, for good.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.end_rounds();
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) || self.stopped.load(Ordering::Acquire)
    }

    /// Ends all rounds, and keeps others from being begun until the answer is
    /// dropped.
    pub(crate) fn hold(&self) -> HeldMovers<'_> {
        self.held.store(true, Ordering::Release);
        self.end_rounds();
        HeldMovers { movers: self, _rounds: self.rounds.write() }
    }

    fn count(&self, mover: Mover, from: TierId, to: TierId, bytes: u64) {
        let mut counts = self.counts.lock();
        let count = counts.entry((mover, from, to)).or_default();
        count.0 += 1;
        count.1 += bytes;
        drop(counts);
        self.moved(mover, bytes);
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
    /// Of its round.
    pace: &'a Pace,
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
    /// What movers moved since the mount.
    pub(crate) fn move_counts(&self) -> Vec<MoveCount> {
        let counts = self.movers.counts.lock();
        let count =
            |((mover, from, to), (ranges, bytes)): (&(Mover, TierId, TierId), &(u64, u64))| MoveCount {
                mover: mover.name().to_owned(),
                from: self.tier_name(*from),
                to: self.tier_name(*to),
                reason: cause(*mover).to_owned(),
                ranges: *ranges,
                bytes: *bytes,
            };
        counts.iter().map(count).collect()
    }

    /// What the movers would do with a range of this size and heat on this tier.
    pub(crate) fn verdict(&self, tier: &Tier, ranges: RangeSize, degree: u8, pinned: bool) -> String {
        let has_room = |to: &Arc<Tier>| to.room() >= ranges.bytes();
        if pinned {
            return "stays: pinned".into();
        }
        if self.movers.is_at_work(Mover::Promote) && degree >= self.heat.frequent() {
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
        if self.movers.is_at_work(Mover::Demote) && degree < self.heat.cold_below() && self.needs_relief(tier)
        {
            let to = self.relief_targets(tier).into_iter().find(has_room);
            return match to {
                Some(to) => format!("goes to {}: {} is filled to its watermark", to.name, tier.name),
                None => "stays: no slower tier takes it now".into(),
            };
        }
        "stays".into()
    }

    /// Carries an errand out for some ranges of one file, which may be wholly
    /// on home then.
    fn move_ranges(&self, reached: &reach::Reached<'_>, ranges: &[u32], errand: &Errand<'_>) -> Outcome {
        let outcome = self.move_each(reached, ranges, errand);
        if outcome.bytes() > 0
            && let Err(error) = gather(&self.core, &reached.file)
        {
            tracing::debug!(ino = reached.key.ino, %error, "a file that is wholly on home stays spread");
        }
        outcome
    }

    fn move_each(&self, reached: &reach::Reached<'_>, ranges: &[u32], errand: &Errand<'_>) -> Outcome {
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
        let ranges = range_size_of(&self.core, &reached.file)?;
        // Of a small file, no more than what it has is moved.
        let bytes = moves_at_once(&self.core, &reached.file)?.unwrap_or(ranges.bytes());
        let Some(to) = self.target_for(&from, bytes, errand)? else { return Ok(0) };
        let offset = ranges.start_of(range.into());
        self.movers.begins_work(errand.mover);
        let rate = MoveRate { throttles: &self.throttles, pace: errand.pace, class: IoClass::Mover };
        let moved = relocate(&self.core, &reached.file, offset, to, (reason(errand.mover), rate))?;
        if moved > 0 {
            self.movers.count(errand.mover, from.id, to.id, moved);
        }
        Ok(moved)
    }

    /// The first tier that takes so many bytes off `from`; `None` if it
    /// is to stay. `ENOSPC` if no tier takes any, `EFBIG` if some have room for
    /// shorter ones.
    fn target_for<'a>(&self, from: &Tier, bytes: u64, errand: &Errand<'a>) -> Result<Option<&'a Arc<Tier>>> {
        let wanted = |to: &&Arc<Tier>| to.id != from.id && (errand.leaves)(from, to);
        let mut targets = errand.to.iter().filter(wanted).peekable();
        if targets.peek().is_none() {
            return Ok(None);
        }
        let mut open = targets.filter(|to| self.closed(to).is_none()).peekable();
        if open.peek().is_none() {
            return Err(Errno::ENOSPC.into());
        }
        open.find(|to| to.room() >= bytes).map(Some).ok_or_else(|| Errno::EFBIG.into())
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
        self.core.tiers.get(id).map_or_else(|_| "(not part of the volume)".into(), |tier| tier.name.clone())
    }
}
