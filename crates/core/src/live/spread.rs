//! The live state of a spread file, beside its home file.

use super::in_use::AtRest;
use super::space::Space;
use super::times::Times;
use crate::coord::{Changing, Live, Moving, of_file};
use braid_contract::{Environment, ObjectId, Result, TierId};
use braid_format::RangeSize;
use braid_index::Index;
use braid_placement::Credits;
use braid_tiers::bit;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Every tier, as bits.
const ALL_TIERS: u64 = u64::MAX;

/// A range of which more is allocated than the file needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocatedAhead {
    pub(crate) tier: TierId,
    /// All of it is, not only as much as there was room for.
    pub(crate) whole: bool,
}

/// A file with an index. Its size and times are held here, ahead of the home
/// inode, while the file is in use: the collective inode (Mux §2.3).
#[derive(Debug)]
pub struct Spread {
    /// Its range index.
    pub index: Index,
    live: Live,
    pub(crate) times: Times,
    /// Tiers with data that may not be durable, as bits.
    pub dirty: AtomicU64,
    /// Tiers on which the time of the last write may not be durable.
    pub(crate) untimed: AtomicU64,
    /// The home inode itself (attribute, size) may not be durable.
    pub(crate) inode_dirty: AtomicBool,
    /// Times that were set on the home inode may not be durable.
    pub(crate) inode_timed: AtomicBool,
    /// Tiers on which something was cut or punched that may not be durable, as
    /// bits: the old bytes would show again if the size grew over them.
    pub(crate) released: AtomicU64,
    /// Entries were cleared, and that may not be durable.
    pub(crate) cleared: AtomicBool,
    /// Tiers whose object is known to exist, as bits.
    pub(crate) created: AtomicU64,
    /// Tiers that are known to have none, as bits, so that `stat` does not ask
    /// them.
    missing: AtomicU64,
    /// The space that it takes on tiers other than home.
    pub(crate) space: Space,
    /// Held while ranges get their tier.
    pub placing: Mutex<Credits>,
    /// How ranges are dealt that are set aside before there is data.
    pub(crate) set_aside: Mutex<Credits>,
    /// Space that was set aside for ranges which then got their tier elsewhere,
    /// and that is to be freed: the tier that has it, and the range.
    pub(crate) left_set_aside: Mutex<Vec<(TierId, u64)>>,
    /// Ranges that are on their way to another tier.
    pub moving: Moving,
    /// Leftovers of a crash beyond the size are known to be gone.
    pub(crate) trimmed: AtomicBool,
    /// Ranges of which more is allocated than the file needs so far.
    pub(crate) ahead: Mutex<BTreeMap<u64, AllocatedAhead>>,
    /// It was truncated to a size that its reservation goes beyond, while the kernel
    /// may have had data up to there: the rest is given up at the last close.
    pub(crate) gives_up_reserved: AtomicBool,
    /// Whether the file is marked as ahead of its home inode.
    pub(crate) marked: Mutex<bool>,
    /// It is marked and trimmed, so that a write can begin at once.
    pub(crate) ready: AtomicBool,
    /// All of it came to home while it was being read or written: it becomes
    /// plain at its last close.
    pub(crate) gathers: AtomicBool,
    /// Tiers that free only whole objects, and that something of the file left,
    /// as bits: the object may not be needed any more.
    pub(crate) left: AtomicU64,
    /// A tier could not remove its object of a whole file that moved away. The
    /// mark stays, for the next recovery.
    pub(crate) has_leftovers: AtomicBool,
}

impl Spread {
    /// The state of a file that was not in use.
    pub(crate) fn load(index: Index, credits: Credits, environment: &Arc<dyn Environment>) -> Result<Self> {
        let (moving, live) = of_file();
        live.change().set(index.size()?);
        Ok(Self {
            index,
            times: Times::new(live.clone(), Arc::clone(environment)),
            live,
            // Earlier writes may not have been synced.
            dirty: AtomicU64::new(ALL_TIERS),
            untimed: AtomicU64::new(ALL_TIERS),
            inode_dirty: AtomicBool::new(true),
            inode_timed: AtomicBool::new(false),
            released: AtomicU64::new(0),
            cleared: AtomicBool::new(false),
            created: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            space: Space::unknown(),
            set_aside: Mutex::new(credits.clone()),
            left_set_aside: Mutex::default(),
            placing: Mutex::new(credits),
            moving,
            trimmed: AtomicBool::new(false),
            ahead: Mutex::default(),
            gives_up_reserved: AtomicBool::new(false),
            marked: Mutex::new(false),
            ready: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            left: AtomicU64::new(0),
            has_leftovers: AtomicBool::new(false),
        })
    }

    /// Notes whether anything may be left beyond the size: with leftovers, the
    /// file does not grow. The caller holds the layout alone, and the file is
    /// marked.
    pub(crate) fn set_trimmed(&self, trimmed: bool) {
        self.trimmed.store(trimmed, Ordering::Release);
        self.ready.store(trimmed, Ordering::Release);
    }

    /// The same state over the index as it is on another home directory. The
    /// file is idle, and nothing of it moves.
    pub fn moved(&self, index: Index) -> Self {
        let word = |from: &AtomicU64| AtomicU64::new(from.load(Ordering::Acquire));
        let flag = |from: &AtomicBool| AtomicBool::new(from.load(Ordering::Acquire));
        let (moving, live) = of_file();
        live.copy_from(&self.live);
        Self {
            index,
            times: self.times.moved(live.clone()),
            live,
            dirty: word(&self.dirty),
            untimed: word(&self.untimed),
            inode_dirty: flag(&self.inode_dirty),
            inode_timed: flag(&self.inode_timed),
            released: word(&self.released),
            cleared: flag(&self.cleared),
            created: word(&self.created),
            missing: AtomicU64::new(0),
            space: Space::unknown(),
            placing: Mutex::new(self.placing.lock().clone()),
            set_aside: Mutex::new(self.set_aside.lock().clone()),
            left_set_aside: Mutex::new(self.left_set_aside.lock().clone()),
            moving,
            trimmed: flag(&self.trimmed),
            ahead: Mutex::new(self.ahead.lock().clone()),
            gives_up_reserved: flag(&self.gives_up_reserved),
            marked: Mutex::new(*self.marked.lock()),
            ready: flag(&self.ready),
            gathers: flag(&self.gathers),
            left: word(&self.left),
            has_leftovers: flag(&self.has_leftovers),
        }
    }

    /// The id of its objects.
    pub fn id(&self) -> ObjectId {
        self.index.id()
    }

    /// How long its ranges are.
    pub fn range_size(&self) -> RangeSize {
        self.index.range_size()
    }

    /// `tier` has an object of the file from now on.
    pub(crate) fn object_was_made(&self, tier: TierId) {
        self.created.fetch_or(bit(tier), Ordering::AcqRel);
        self.missing.fetch_and(!bit(tier), Ordering::AcqRel);
        self.space.changed();
    }

    /// `tier` answered that it has no object of the file. One may just have been
    /// made.
    pub(crate) fn object_is_missing(&self, tier: TierId) {
        self.missing.fetch_or(bit(tier), Ordering::AcqRel);
        if self.created.load(Ordering::Acquire) & bit(tier) != 0 {
            self.missing.fetch_and(!bit(tier), Ordering::AcqRel);
        }
    }

    /// Tiers that are known to have no object of the file, as bits.
    pub(crate) fn missing(&self) -> u64 {
        self.missing.load(Ordering::Acquire)
    }

    /// Facts about a file that nothing is ahead of, for the time when it is not
    /// in use.
    pub(super) fn at_rest(&self) -> Option<AtRest> {
        let settled = self.times.mtime().is_none() && self.times.atime_is_known();
        let (blocks, tiers) = self.space.known().filter(|_| settled)?;
        Some(AtRest {
            size: self.size(),
            atime_ns: self.live.atime_ns(),
            blocks,
            tiers,
            missing: self.missing(),
        })
    }

    /// The facts from its last use.
    pub(crate) fn remember(&self, rest: &AtRest) {
        if rest.size == self.size() {
            self.missing.store(rest.missing, Ordering::Release);
            self.space.remember(rest.tiers, rest.blocks);
            self.times.learn_atime(rest.atime());
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.live.size()
    }

    /// The file now reaches to `end` at least; `tier` holds its last byte.
    pub(crate) fn grow(&self, end: u64, tier: TierId) -> Result<()> {
        self.live.grow(end, |held| self.store_size(held, end, tier))
    }

    /// Sets the size; the caller holds the layout alone.
    pub fn set_size(&self, size: u64, tier: TierId) -> Result<()> {
        self.store_size(&mut self.live.change(), size, tier)
    }

    fn store_size(&self, held: &mut Changing<'_>, size: u64, tier: TierId) -> Result<()> {
        self.index.set_size(size)?;
        held.set(size);
        let owners = self.index.owners()?;
        if owners.size != tier {
            self.index.set_owners(braid_format::Owners { size: tier, ..owners })?;
        }
        Ok(())
    }

    /// Notes a change other than by a write, whose time only the home inode
    /// will have.
    pub(crate) fn touch_inode(&self) {
        self.times.touch_mtime();
        self.inode_dirty.store(true, Ordering::Release);
    }

    /// The modification time was set on the home inode, which owns it now.
    pub(crate) fn mtime_was_set(&self, home: TierId) -> Result<()> {
        let _held = self.live.change();
        self.times.give_up_mtime();
        let owners = self.index.owners()?;
        if owners.mtime == home && owners.synced_mtime == home {
            return Ok(());
        }
        self.index.set_owners(braid_format::Owners { mtime: home, synced_mtime: home, ..owners })
    }

    /// The time of the last write is durable with `owner`.
    pub(crate) fn mtime_was_synced(&self, owner: TierId) -> Result<()> {
        let _held = self.live.change();
        let owners = self.index.owners()?;
        if owners.synced_mtime == owner {
            return Ok(());
        }
        self.index.set_owners(braid_format::Owners { synced_mtime: owner, ..owners })
    }

    /// The object on `tier` has the access time of a read. An `fsync` does not
    /// wait for the index because of that.
    pub(crate) fn note_atime_owner(&self, tier: TierId) -> Result<()> {
        if self.index.owners()?.atime == tier {
            return Ok(());
        }
        let _held = self.live.change();
        let owners = self.index.owners()?;
        self.index.note_owners(braid_format::Owners { atime: tier, ..owners })
    }

    /// Changes the owners in the index, if they differ.
    pub(crate) fn change_owners(
        &self,
        change: impl FnOnce(braid_format::Owners) -> braid_format::Owners,
    ) -> Result<()> {
        let _held = self.live.change();
        let owners = self.index.owners()?;
        let changed = change(owners);
        if changed == owners { Ok(()) } else { self.index.set_owners(changed) }
    }

    /// `tier` carried out a write.
    pub(crate) fn wrote(&self, tier: TierId) -> Result<()> {
        self.times.touch_mtime();
        if self.index.owners()?.mtime == tier {
            return Ok(());
        }
        let _held = self.live.change();
        let owners = self.index.owners()?;
        if owners.mtime != tier {
            self.index.set_owners(braid_format::Owners { mtime: tier, ..owners })?;
        }
        Ok(())
    }
}
