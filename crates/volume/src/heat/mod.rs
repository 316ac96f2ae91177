//! How much each range is used, and since when it is on its tier (PolyStore
//! §4.5.2). Reads, writes and moves record the ranges that they touch; once a
//! second these are folded into a table, which movers, `status` and `explain`
//! use and which is kept across mounts. All of it may be lost: then ranges
//! count as unused until they are used again.

mod table;
mod touch;

pub(crate) use table::{Decay, HotRange, Table};

use braid_contract::{Access, Context, Environment, Errno, Result, TierId};
use braid_core::live::{File, Inode, Tag};
use braid_format::{DEGREE_MAX, FileKey, decode_heat, encode_heat};
use braid_home::Home;
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use touch::{SERIAL_MAX, Touch, Touches};

/// Where heat is saved, below `.braid`.
const SAVED: &str = "heat";

/// Longest file of saved heat that is read.
const SAVED_MAX: u64 = 1 << 30;

/// How often heat is saved, in seconds.
const SAVE_EVERY: u32 = 300;

/// Ranges that are handed to movers at a time.
const HOT_MAX: usize = 8192;

/// The heat of a volume's ranges.
pub(crate) struct Heat {
    /// With 0, no heat is kept.
    budget: usize,
    /// Degree from which on a range counts as frequently used.
    frequent: AtomicU8,
    touches: Touches,
    next_serial: AtomicU32,
    /// Files that were touched, by serial number; also files closed since.
    tags: Mutex<HashMap<u32, Arc<Tag>>>,
    table: Mutex<Table>,
    /// Ranges found frequently used, until movers take them.
    hot: Mutex<Vec<HotRange>>,
    /// The last epoch that was closed, and the last one that was saved.
    closed: AtomicU32,
    saved: AtomicU32,
    environment: Arc<dyn Environment>,
}

/// The key of an inode.
pub(crate) fn key_of(inode: &Inode) -> FileKey {
    FileKey { ino: inode.ino.0, generation: inode.generation }
}

/// Wall-clock seconds since 1970.
pub(crate) fn seconds(environment: &dyn Environment) -> u32 {
    u32::try_from(environment.wall_ns() / 1_000_000_000).unwrap_or(0)
}

/// The degree that corresponds to a share of the highest.
fn degree_of(threshold: f64) -> u8 {
    ((threshold * f64::from(DEGREE_MAX)).ceil() as u8).clamp(1, DEGREE_MAX)
}

impl Heat {
    /// A `threshold` is the share of the highest degree from which on a range
    /// is frequently used.
    pub(crate) fn new(budget: u64, threshold: f64, environment: &Arc<dyn Environment>) -> Self {
        let now = seconds(&**environment);
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        Self {
            budget,
            frequent: AtomicU8::new(degree_of(threshold)),
            touches: Touches::new(),
            next_serial: AtomicU32::new(1),
            tags: Mutex::new(HashMap::new()),
            table: Mutex::new(Table::new(budget)),
            hot: Mutex::new(Vec::new()),
            closed: AtomicU32::new(now),
            saved: AtomicU32::new(now),
            environment: Arc::clone(environment),
        }
    }

    /// The degree from which on a range counts as frequently used.
    pub(crate) fn frequent(&self) -> u8 {
        self.frequent.load(Ordering::Relaxed)
    }

    /// Sets the share of the highest degree from which on a range counts as
    /// frequently used.
    pub(crate) fn set_threshold(&self, threshold: f64) {
        self.frequent.store(degree_of(threshold), Ordering::Relaxed);
    }

    /// Ranges below this degree may leave a full tier: a single use is not
    /// enough to stay, even where it is enough for a promotion.
    pub(crate) fn cold_below(&self) -> u8 {
        self.frequent().max(2)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.tags.lock().clear();
        self.hot.lock().clear();
        *self.table.lock() = Table::new(self.budget);
    }

    /// Records that ranges of the file were read or written on `tier`.
    pub(crate) fn used(&self, file: &File, tier: TierId, ranges: Range<u64>) {
        self.enter(file, tier, ranges, false);
    }

    /// Records that ranges of the file came to `tier`.
    pub(crate) fn placed(&self, file: &File, tier: TierId, ranges: Range<u64>) {
        self.enter(file, tier, ranges, true);
    }

    fn enter(&self, file: &File, tier: TierId, ranges: Range<u64>, placed: bool) {
        if self.budget == 0 {
            return;
        }
        let tag = file.heat.get_or_init(|| self.tag(&file.inode));
        for range in ranges {
            self.touches.enter(Touch { serial: tag.serial, range: range as u32, tier, placed });
        }
    }

    fn tag(&self, inode: &Inode) -> Arc<Tag> {
        let mut tags = self.tags.lock();
        let next = || self.next_serial.fetch_add(1, Ordering::Relaxed) % SERIAL_MAX + 1;
        let mut serial = next();
        while tags.contains_key(&serial) {
            serial = next();
        }
        let tag = Arc::new(Tag { serial, key: key_of(inode), handle: inode.handle().cloned() });
        tags.insert(serial, Arc::clone(&tag));
        tag
    }

    /// The table. To be held for a moment only.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Takes the ranges found frequently used since the last call, hottest
    /// first.
    pub(crate) fn take_hot(&self) -> Vec<HotRange> {
        std::mem::take(&mut *self.hot.lock())
    }

    /// Folds the recorded touches into the table.
    fn fold(&self, now: u32) {
        let touches = self.touches.take();
        let mut hot = Vec::new();
        let mut tags = self.tags.lock();
        let mut table = self.table.lock();
        let of = |touch: &Touch| tags.get(&touch.serial);
        for (touch, tag) in touches.iter().filter_map(|touch| Some((touch, of(touch)?))) {
            if touch.placed {
                // The tier that it came to is current, even if it was used
                // elsewhere before.
                continue;
            }
            let record = table.used(tag.key, touch.range, touch.tier, now);
            table.set_handle(tag.key, tag.handle.as_ref());
            if record.degree_at(now) >= self.frequent() {
                hot.push(HotRange { file: tag.key, range: touch.range, record });
            }
        }
        for touch in touches.iter().filter(|touch| touch.placed) {
            if let Some(tag) = of(touch) {
                table.placed(tag.key, touch.range, touch.tier, now);
                table.set_handle(tag.key, tag.handle.as_ref());
            }
        }
        table.trim(now);
        tags.retain(|_, tag| Arc::strong_count(tag) > 1);
        drop((tags, table));
        let mut waiting = self.hot.lock();
        waiting.append(&mut hot);
        waiting.sort_by_key(|spot| (Reverse(spot.record.degree_at(now)), spot.file, spot.range));
        waiting.dedup_by_key(|spot| (spot.file, spot.range));
        waiting.truncate(HOT_MAX);
    }

    /// Current time, by the clock of heat.
    pub(crate) fn now(&self) -> u32 {
        seconds(&*self.environment)
    }

    /// Brings the table up to date before a decision.
    pub(crate) fn refresh(&self) {
        self.fold(self.now());
    }

    /// Folds the recorded touches into the table, once a second.
    pub(crate) fn close_epoch(&self) {
        let now = self.now();
        if self.budget > 0 && self.closed.swap(now, Ordering::AcqRel) != now {
            self.fold(now);
        }
    }

    /// Saves heat, if it is due; answers whether it was. Waits for home.
    pub(crate) fn save_if_due(&self, home: &Home) -> bool {
        let is_due = self.now().saturating_sub(self.saved.load(Ordering::Acquire)) >= SAVE_EVERY;
        if is_due && let Err(error) = self.save(home) {
            tracing::warn!(%error, "the heat of ranges could not be saved");
        }
        is_due
    }

    /// Saves the table for the next mount.
    pub(crate) fn save(&self, home: &Home) -> Result<()> {
        let now = self.now();
        self.saved.store(now, Ordering::Release);
        if self.budget == 0 {
            return Ok(());
        }
        self.fold(now);
        let bytes = {
            let mut table = self.table.lock();
            if !table.take_changed() {
                return Ok(());
            }
            encode_heat(table.files().iter())
        };
        home.braid()?.replace_small(SAVED, &bytes).context("saving the heat of ranges")
    }

    /// Loads the saved table. If it can't be read, all ranges count as unused.
    pub(crate) fn load(&self, home: &Home) {
        if self.budget == 0 {
            return;
        }
        match home.is_ours() {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("the saved heat of ranges is another user's to write; it begins anew");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the saved heat of ranges can't be read; it begins anew");
                return;
            }
        }
        match read_saved(home) {
            Ok(Some(bytes)) => match decode_heat(&bytes) {
                Ok(files) => self.table.lock().restore(files, self.now()),
                Err(error) => tracing::warn!(%error, "the saved heat of ranges is of no use; it begins anew"),
            },
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the saved heat of ranges can't be read; it begins anew"),
        }
    }
}

/// The bytes that were saved, if there are any.
fn read_saved(home: &Home) -> Result<Option<Vec<u8>>> {
    let file = match home.braid()?.open_at(OsStr::new(SAVED), Access::Read) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
        result => result?,
    };
    let len = file.stat()?.attr.size;
    if len > SAVED_MAX {
        return Err(Errno::EFBIG.into());
    }
    let mut bytes = vec![0; len as usize];
    let done = file.read_at(0, &mut [IoSliceMut::new(&mut bytes)], false)?;
    bytes.truncate(done);
    Ok(Some(bytes))
}
