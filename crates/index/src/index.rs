//! The range index of a spread file: where each of its ranges is.
//!
//! One file in the home tier's `.braid/index`, memory-mapped; an entry is found
//! by arithmetic and read and changed by one atomic access (PolyStore §4.3, Mux
//! §2.2). Blocks are allocated before anything is stored to them, so a full
//! home tier answers `ENOSPC` here and never `SIGBUS`.
//!
//! A *whole* file, with all its data on one tier other than home, has no index
//! file: its entries are computed, until a file is needed.

use crate::ballast::Ballast;
use crate::segments::Segments;
use crate::whole::Whole;
use braid_contract::{Context, Errno, Error, Fd, ObjectId, Result, TierId};
use braid_format::{
    Entry, GAPS_AT, GROWS_TO_AT, HEADER_LEN, Header, MUTABLE_FROM, OWNERS_AT, Owners, RESERVED_AT, RangeSize,
    SIZE_AT, SYNCED_SIZE_AT, Words, durable_at, entry_at,
};
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The open index of one spread file.
#[derive(Debug)]
pub struct Index {
    header: Header,
    words: Words,
    /// The index file; a whole file has none at first.
    segments: OnceLock<Segments>,
    /// The state of a whole file, without an index file.
    whole: Mutex<Option<Whole>>,
    home: TierId,
    /// Words stored since the last [`sync`](Self::sync).
    dirty: Dirty,
    /// Held during a sync: later callers wait for its end.
    syncing: Mutex<()>,
    growth: Mutex<Growth>,
}

/// Words that were stored and may not be durable, by the sync that needs them.
#[derive(Debug, Default)]
struct Dirty {
    sizes: AtomicBool,
    owners: AtomicBool,
    others: AtomicBool,
}

impl Dirty {
    /// All were, as far as is known.
    fn all() -> Self {
        let yes = || AtomicBool::new(true);
        Self { sizes: yes(), owners: yes(), others: yes() }
    }

    fn each(&self) -> [&AtomicBool; 3] {
        [&self.sizes, &self.owners, &self.others]
    }
}

/// Growth that the index need not be synced for: the durable index says that
/// the file goes on as far as the part on the tier of one range reaches.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    /// The end of that range; 0 for none.
    to: u64,
    /// The size up to which holes are durably known to be meant.
    from: u64,
}

impl Index {
    /// Writes the header of a new index to the empty file `fd`.
    pub(crate) fn create(fd: Fd, header: Header, home: TierId, ballast: &Arc<Ballast>) -> Result<Self> {
        let mut bytes = header.encode();
        bytes.resize(HEADER_LEN, 0);
        // A whole block, so that it has a complete header or none.
        let written = ballast.or_spend(|| fd.write_at(0, &[IoSlice::new(&bytes)], false))?;
        if written < bytes.len() {
            return Err(Errno::EIO.into());
        }
        Self::over(fd, header, home, ballast)
    }

    /// Reads and checks the header of an existing index.
    pub(crate) fn open(fd: Fd, id: ObjectId, home: TierId, ballast: &Arc<Ballast>) -> Result<Self> {
        let mut bytes = [0; MUTABLE_FROM];
        if fd.stat()?.attr.size < HEADER_LEN as u64 {
            return Err(Error::new(Errno::EUCLEAN, format!("index {id} is cut off in its header")));
        }
        let len = fd.read_at(0, &mut [IoSliceMut::new(&mut bytes)], false)?;
        Self::over(fd, decode_header(&bytes[..len], id)?, home, ballast)
    }

    /// The index in `fd`; earlier stores may not have been synced.
    fn over(fd: Fd, header: Header, home: TierId, ballast: &Arc<Ballast>) -> Result<Self> {
        Ok(Self {
            words: Words::of(header.id),
            header,
            segments: OnceLock::from(Segments::new(fd, Arc::clone(ballast))?),
            whole: Mutex::new(None),
            home,
            dirty: Dirty::all(),
            syncing: Mutex::new(()),
            growth: Mutex::default(),
        })
    }

    /// The index of a whole file, without an index file.
    pub fn of_whole(header: Header, home: TierId, whole: Whole) -> Self {
        Self {
            words: Words::of(header.id),
            header,
            segments: OnceLock::new(),
            whole: Mutex::new(Some(whole)),
            home,
            dirty: Dirty::default(),
            syncing: Mutex::new(()),
            growth: Mutex::default(),
        }
    }

    /// The state of a whole file; `None` for others.
    pub fn whole(&self) -> Option<Whole> {
        match self.segments.get() {
            Some(_) => None,
            None => *self.whole.lock(),
        }
    }

    /// The tier of a whole file; `None` for others.
    pub fn whole_tier(&self) -> Option<TierId> {
        self.whole().map(|whole| whole.tier)
    }

    /// Whether an entry can name the tier. If not, the file needs an index file
    /// first.
    pub fn can_name(&self, tier: TierId) -> bool {
        self.whole_tier().is_none_or(|whole| whole == tier)
    }

    /// Continues in the index file that `make` creates from the whole state,
    /// which does not change meanwhile.
    pub(crate) fn become_file(&self, make: impl FnOnce(&Whole) -> Result<Self>) -> Result<()> {
        let mut whole = self.whole.lock();
        let Some(state) = &*whole else { return Ok(()) };
        let made = make(state)?;
        if let Some(segments) = made.segments.into_inner() {
            // It is set only once, here, under the lock.
            let _ = self.segments.set(segments);
            *whole = None;
        }
        Ok(())
    }

    /// Runs `work` on the state of a whole file, which stays one meanwhile;
    /// `None` for others.
    pub fn with_whole<T>(&self, work: impl FnOnce(&mut Whole) -> T) -> Option<T> {
        if self.segments.get().is_some() {
            return None;
        }
        self.whole.lock().as_mut().map(work)
    }

    /// Changes the state of a whole file; answers whether it is one.
    fn change_whole(&self, change: impl FnOnce(&mut Whole)) -> bool {
        self.with_whole(change).is_some()
    }

    /// A word of the index file, which exists unless the file is whole.
    fn load(&self, at: u64) -> Result<u64> {
        self.file()?.load(at)
    }

    fn file(&self) -> Result<&Segments> {
        self.segments.get().ok_or_else(|| Error::new(Errno::EIO, "the file has no index"))
    }

    /// The part of the index that does not change.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file's id.
    pub fn id(&self) -> ObjectId {
        self.header.id
    }

    /// Range size of the file.
    pub fn range_size(&self) -> RangeSize {
        self.header.range_size
    }

    /// Size of the file.
    pub fn size(&self) -> Result<u64> {
        match self.whole() {
            Some(whole) => Ok(whole.size),
            None => self.read_size(SIZE_AT),
        }
    }

    /// Size of the file at its last `fsync`.
    pub fn synced_size(&self) -> Result<u64> {
        match self.whole() {
            Some(whole) => Ok(whole.synced_size),
            None => self.read_size(SYNCED_SIZE_AT),
        }
    }

    /// Sets the size of the file.
    pub fn set_size(&self, size: u64) -> Result<()> {
        // All data before the end is on its tier.
        let ranges = self.header.range_size.count(size);
        if self.change_whole(|whole| (whole.size, whole.ranges) = (size, whole.ranges.max(ranges))) {
            return Ok(());
        }
        self.store_in(&self.dirty.sizes, SIZE_AT, self.words.encode_size(SIZE_AT, size))
    }

    /// Sets the size that an `fsync` made durable.
    pub fn set_synced_size(&self, size: u64) -> Result<()> {
        if self.change_whole(|whole| whole.synced_size = size) {
            return Ok(());
        }
        self.store_in(&self.dirty.sizes, SYNCED_SIZE_AT, self.words.encode_size(SYNCED_SIZE_AT, size))
    }

    /// The tiers that own attributes of the file.
    pub fn owners(&self) -> Result<Owners> {
        if let Some(whole) = self.whole() {
            return Ok(whole.owners);
        }
        let word = self.load(OWNERS_AT)?;
        self.words.decode_owners(OWNERS_AT, word, self.home).map_err(|error| self.damaged(&error))
    }

    /// Sets the tiers that own attributes of the file.
    pub fn set_owners(&self, owners: Owners) -> Result<()> {
        if self.change_whole(|whole| whole.owners = owners) {
            return Ok(());
        }
        self.store_in(&self.dirty.owners, OWNERS_AT, self.words.encode_owners(OWNERS_AT, owners))
    }

    /// The same for a change that no `fsync` has to make durable: it is with the
    /// next other one, or when the kernel writes the index back.
    pub fn note_owners(&self, owners: Owners) -> Result<()> {
        if self.change_whole(|whole| whole.owners = owners) {
            return Ok(());
        }
        let word = self.words.encode_owners(OWNERS_AT, owners);
        self.file()?.store(OWNERS_AT, word).context("storing to an index")
    }

    /// Whether the size changed since the last `fsync` other than by an append,
    /// so that a hole in later writes may be intended.
    pub fn has_gaps(&self) -> Result<bool> {
        match self.whole() {
            Some(whole) => Ok(whole.gaps),
            None => self.flag(GAPS_AT),
        }
    }

    /// Sets whether there may be intended gaps.
    pub fn set_gaps(&self, gaps: bool) -> Result<()> {
        if self.change_whole(|whole| whole.gaps = gaps) {
            return Ok(());
        }
        self.set_flag(GAPS_AT, gaps)
    }

    /// Whether the file's object on `tier` was made durable since its creation.
    /// If not, it may be missing after power loss: then none of its data was
    /// ever synced.
    pub fn is_object_durable(&self, tier: TierId) -> Result<bool> {
        match self.whole() {
            Some(whole) => Ok(whole.tier == tier && whole.durable),
            None => self.flag(durable_at(tier)),
        }
    }

    /// Notes that the object on `tier` was made durable.
    pub fn set_object_durable(&self, tier: TierId) -> Result<()> {
        if self.change_whole(|whole| whole.durable |= whole.tier == tier) {
            return Ok(());
        }
        self.set_flag(durable_at(tier), true)
    }

    /// Notes that the tier has no object of the file any more, and no range is
    /// there.
    pub fn clear_object_durable(&self, tier: TierId) -> Result<()> {
        // A whole file keeps its object there.
        if self.whole().is_some() {
            return Ok(());
        }
        self.set_flag(durable_at(tier), false)
    }

    /// The end of the space that may be reserved for the file, beyond its size
    /// too; entries before that are intended. A damaged one reserves nothing.
    pub fn reserved(&self) -> Result<u64> {
        if self.whole().is_some() {
            return Ok(0);
        }
        let word = self.load(RESERVED_AT)?;
        Ok(self.words.decode_size(RESERVED_AT, word).unwrap_or(0))
    }

    /// Sets that end. Only an index file can: a whole file has nothing
    /// reserved.
    pub fn set_reserved(&self, end: u64) -> Result<()> {
        if end == 0 && self.whole().is_some() {
            return Ok(());
        }
        self.store(RESERVED_AT, if end == 0 { 0 } else { self.words.encode_size(RESERVED_AT, end) })
    }

    /// Clears the entry of a range.
    pub fn clear_entry(&self, range: u64) -> Result<()> {
        self.store(entry_at(range), 0)
    }

    fn flag(&self, at: u64) -> Result<bool> {
        let word = self.load(at)?;
        self.words.decode_flag(at, word).map_err(|error| self.damaged(&error))
    }

    /// Sets a flag, unless it has the value already.
    fn set_flag(&self, at: u64, yes: bool) -> Result<()> {
        if self.flag(at)? == yes {
            return Ok(());
        }
        self.store(at, if yes { self.words.encode_flag(at) } else { 0 })
    }

    /// The entry of a range; `None` if it was never written.
    pub fn entry(&self, range: u64) -> Result<Option<Entry>> {
        if let Some(whole) = self.whole() {
            return Ok(whole.entry(range));
        }
        let word = self.load(entry_at(range))?;
        self.words
            .decode_entry(range, word)
            .map_err(|error| self.damaged(&error).context(format!("range {range}")))
    }

    /// Sets the entry of a range. In a whole file, this includes all ranges
    /// before it; only its tier [can be named](Self::can_name).
    pub fn set_entry(&self, range: u64, entry: Entry) -> Result<()> {
        let mut named = true;
        let whole = self.change_whole(|whole| {
            named = entry.tier == whole.tier;
            if named {
                whole.ranges = whole.ranges.max(range + 1);
            }
        });
        if !named {
            return Err(Error::new(Errno::EBUSY, "the file needs an index first"));
        }
        if whole {
            return Ok(());
        }
        self.store(entry_at(range), self.words.encode_entry(range, entry))
    }

    /// Clears the entries from `range` on.
    pub fn clear_from(&self, range: u64) -> Result<()> {
        if self.change_whole(|whole| whole.ranges = whole.ranges.min(range)) {
            return Ok(());
        }
        let cleared = self.file()?.clear_from(entry_at(range)).context("clearing index entries");
        // A sync beside it may have come before the clearing.
        self.dirty.others.store(true, Ordering::Release);
        cleared
    }

    /// Calls `visit` with each written range from `first` on, and its entry, in
    /// order.
    pub fn for_each(
        &self,
        first: u64,
        mut visit: impl FnMut(u64, Result<Entry>) -> Result<()>,
    ) -> Result<()> {
        if let Some(whole) = self.whole() {
            let mut ranges = (first..whole.ranges).filter_map(|range| Some((range, whole.entry(range)?)));
            return ranges.try_for_each(|(range, entry)| visit(range, Ok(entry)));
        }
        self.file()?.for_each_word(entry_at(first), |at, word| {
            let range = (at - HEADER_LEN as u64) / 8;
            let entry = self.words.decode_entry(range, word).map_err(|error| self.damaged(&error));
            match entry.transpose() {
                Some(entry) => visit(range, entry),
                None => Ok(()),
            }
        })
    }

    /// Makes everything stored so far durable.
    pub fn sync(&self) -> Result<()> {
        let _syncing = self.syncing.lock();
        let were_dirty = self.dirty.each().map(|dirty| dirty.swap(false, Ordering::AcqRel));
        if !were_dirty.contains(&true) {
            return Ok(());
        }
        let synced = self.file()?.sync().context("syncing an index");
        synced.inspect_err(|_| self.dirty.others.store(true, Ordering::Release))
    }

    /// Makes durable the words that an `fsync` of a file of `size` bytes needs;
    /// with `data_only`, not the owners of its times. A file that is appended to
    /// and synced again and again needs the index only once for a range: its
    /// size is then that of its part on the tier of its last range, if
    /// `is_part_size` finds that it is now.
    pub(crate) fn sync_size(
        &self,
        size: u64,
        data_only: bool,
        is_part_size: impl FnOnce() -> bool,
    ) -> Result<()> {
        let end = self.header.range_size.round_up(size);
        let mut growth = self.growth.lock();
        let (grew, more) = {
            // One that is under way has taken notes of stores for its own.
            let _syncing = self.syncing.lock();
            let [sizes, owners, others] = self.dirty.each().map(|dirty| dirty.load(Ordering::Acquire));
            (sizes, others || owners && !data_only)
        };
        if !more && (!grew || growth.to == end) {
            return Ok(());
        }
        let grows = !more && end != 0 && is_part_size();
        self.stop_growing(&mut growth)?;
        if grows {
            self.store(GROWS_TO_AT, self.words.encode_size(GROWS_TO_AT, end))?;
        }
        self.sync()?;
        if grows {
            *growth = Growth { to: end, from: size };
        }
        Ok(())
    }

    /// The end of the range in which the file may go on past its size; 0 for
    /// none.
    pub fn grows_to(&self) -> Result<u64> {
        self.read_size(GROWS_TO_AT)
    }

    /// The size is that of its word from now on. The word is in the same sector
    /// as the size, and is found on disk only with a size that was stored
    /// before.
    pub fn settle_size(&self) -> Result<()> {
        match self.segments.get() {
            Some(_) => self.stop_growing(&mut self.growth.lock()),
            None => Ok(()),
        }
    }

    fn stop_growing(&self, growth: &mut Growth) -> Result<()> {
        if self.load(GROWS_TO_AT)? != 0 {
            self.store(GROWS_TO_AT, 0)?;
        }
        *growth = Growth::default();
        Ok(())
    }

    /// The size was changed other than by a write: the next `fsync` has to make
    /// it durable here.
    pub fn size_was_set(&self) {
        self.dirty.others.store(true, Ordering::Release);
    }

    /// The size up to which the index durably says that holes are meant.
    pub fn known_synced_size(&self) -> Result<u64> {
        let growth = *self.growth.lock();
        if growth.to == 0 { self.synced_size() } else { Ok(growth.from) }
    }

    fn read_size(&self, at: u64) -> Result<u64> {
        let word = self.load(at)?;
        self.words.decode_size(at, word).map_err(|error| self.damaged(&error))
    }

    fn store(&self, at: u64, word: u64) -> Result<()> {
        self.store_in(&self.dirty.others, at, word)
    }

    fn store_in(&self, dirty: &AtomicBool, at: u64, word: u64) -> Result<()> {
        self.file()?.store(at, word).context("storing to an index")?;
        dirty.store(true, Ordering::Release);
        Ok(())
    }

    fn damaged(&self, error: &braid_format::FormatError) -> Error {
        Error::new(Errno::EUCLEAN, format!("index {}: {error}", self.header.id))
    }
}

/// The header in the first bytes of the index of this id.
pub(crate) fn decode_header(bytes: &[u8], id: ObjectId) -> Result<Header> {
    let header = Header::decode(bytes)
        .map_err(|error| Error::new(Errno::EUCLEAN, format!("header of index {id}: {error}")))?;
    if header.id != id {
        return Err(Error::new(Errno::EUCLEAN, format!("index {id} is that of object {}", header.id)));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::VolumeId;
    use braid_format::Reason;
    use braid_stores::native::{KernelFd, open_tier_dir};
    use std::os::unix::fs::FileExt;

    const ENTRY: Entry = Entry { tier: TierId(1), reason: Reason::Policy, version: 0 };

    fn header() -> Header {
        Header {
            volume: VolumeId([1; 16]),
            id: ObjectId([2; 16]),
            range_size: RangeSize::new(1 << 16).unwrap(),
            ino: 1,
            btime_ns: 0,
            plain_size: 0,
            handle: None,
        }
    }

    fn ballast() -> Arc<Ballast> {
        let dir = tempfile::tempdir().unwrap();
        Arc::new(Ballast::open(&*open_tier_dir(dir.path()).unwrap()).unwrap())
    }

    fn fd(file: &std::fs::File) -> Fd {
        KernelFd::open(file.try_clone().unwrap().into())
    }

    fn reopen(file: &std::fs::File) -> Index {
        Index::open(fd(file), header().id, TierId(0), &ballast()).unwrap()
    }

    #[test]
    fn entries_far_apart_survive_reopening() {
        let file = tempfile::tempfile().unwrap();
        let index = Index::create(fd(&file), header(), TierId(0), &ballast()).unwrap();
        let ranges = [0, 1, 7679, 7680, 100_000, 524_287, 2_000_000_000];
        for range in ranges {
            assert_eq!(index.entry(range).unwrap(), None);
            index.set_entry(range, ENTRY).unwrap();
        }
        index.set_size(123).unwrap();
        index.sync().unwrap();
        let index = reopen(&file);
        let mut seen = Vec::new();
        index
            .for_each(1, |range, entry| {
                assert_eq!(entry.unwrap(), ENTRY);
                seen.push(range);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, ranges[1..]);
        assert_eq!(index.size().unwrap(), 123);
        assert_eq!(index.entry(3).unwrap(), None);
        assert_eq!(index.entry(2_147_000_000).unwrap(), None);
        use std::os::unix::fs::MetadataExt;
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20, "the index is sparse");
    }

    #[test]
    fn a_file_that_grows_with_each_sync_needs_its_index_once_in_a_range() {
        let file = tempfile::tempfile().unwrap();
        let index = Index::create(fd(&file), header(), TierId(0), &ballast()).unwrap();
        // Whether the sizes are as durable as they are known to be.
        let grow_to = |size, is_part_size| {
            index.set_size(size).unwrap();
            index.sync_size(size, true, || is_part_size).unwrap();
            (index.grows_to().unwrap(), index.dirty.sizes.load(Ordering::Acquire))
        };
        index.set_entry(0, ENTRY).unwrap();
        assert_eq!(grow_to(100, true), (0, false), "the entry is new");
        assert_eq!(grow_to(200, false), (0, false), "its part is of another size");
        assert_eq!(grow_to(300, true), (1 << 16, false));
        index.set_owners(Owners { mtime: TierId(1), ..index.owners().unwrap() }).unwrap();
        assert_eq!(grow_to(400, true), (1 << 16, true));
        index.sync_size(400, false, || false).unwrap();
        assert_eq!((index.grows_to().unwrap(), index.dirty.sizes.load(Ordering::Acquire)), (0, false));
        assert_eq!(grow_to(500, true), (1 << 16, false));
        assert_eq!((grow_to(600, true), index.known_synced_size().unwrap()), ((1 << 16, true), 500));
        index.size_was_set();
        assert_eq!(grow_to(1 << 16, true), (0, false), "the size was set");
        assert_eq!(grow_to((1 << 16) + 1, true), (1 << 17, false), "of the next range");
        index.settle_size().unwrap();
        assert_eq!(index.grows_to().unwrap(), 0);
    }

    #[test]
    fn an_index_may_end_in_the_middle_of_a_page() {
        let file = tempfile::tempfile().unwrap();
        let index = Index::create(fd(&file), header(), TierId(0), &ballast()).unwrap();
        index.set_entry(5, ENTRY).unwrap();
        drop(index);
        file.set_len(HEADER_LEN as u64 + 6 * 8).unwrap();
        let index = reopen(&file);
        assert_eq!(index.entry(5).unwrap(), Some(ENTRY));
        index.set_entry(9, ENTRY).unwrap();
        drop(index);
        assert_eq!(reopen(&file).entry(9).unwrap(), Some(ENTRY));
    }

    #[test]
    fn clearing_leaves_what_is_before() {
        let file = tempfile::tempfile().unwrap();
        let index = Index::create(fd(&file), header(), TierId(0), &ballast()).unwrap();
        for range in [0, 5, 6, 600, 9000] {
            index.set_entry(range, ENTRY).unwrap();
        }
        index.clear_from(6).unwrap();
        let kept: Vec<u64> = (0..10_000).filter(|range| index.entry(*range).unwrap().is_some()).collect();
        assert_eq!(kept, [0, 5]);
        index.set_entry(600, ENTRY).unwrap();
        assert_eq!(reopen(&file).entry(600).unwrap(), Some(ENTRY));
    }

    #[test]
    fn damage_is_answered_and_never_believed() {
        let file = tempfile::tempfile().unwrap();
        let index = Index::create(fd(&file), header(), TierId(0), &ballast()).unwrap();
        index.set_entry(2, ENTRY).unwrap();
        index.sync().unwrap();
        file.write_all_at(&[0xff], HEADER_LEN as u64 + 2 * 8 + 1).unwrap();
        assert_eq!(index.entry(2).unwrap_err().errno(), Errno::EUCLEAN);
        file.write_all_at(b"X", 0).unwrap();
        let error = Index::open(fd(&file), header().id, TierId(0), &ballast()).unwrap_err();
        assert_eq!(error.errno(), Errno::EUCLEAN);
    }
}
