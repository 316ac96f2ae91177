//! The size of a file in use, its appends, and its times.
//!
//! All users go by the size here; the one in the file's index survives a crash.
//! They change together, under a lock, the index first. Which tier owns an
//! attribute is in the index alone, which only the keeper changes: a client
//! whose write makes another tier the owner asks it to.
//!
//! Appends of a file come one after the other, as on the native file systems,
//! under a lock that is held while the data is written. A range that is only
//! reserved ahead would leave a hole below the size if its writer fails or
//! dies, and show zeros to readers until it is written.

use crate::layout::{APPEND_LOCK, ATIME, FileWords, MTIME, SIZE, SIZE_LOCK};
use crate::lock::{Abandoned, Locked, lock};
use crate::party::Party;
use crate::region::{ReadRegion, Region};
use crate::sync::Ordering;

/// The live attributes of a file. A clone shares them.
#[derive(Clone, Debug)]
pub struct Live<R, P> {
    words: FileWords<R>,
    party: P,
}

/// The size, held so that no other thread changes it, or the size in the index.
#[derive(Debug)]
pub struct Changing<'a, R: Region> {
    region: &'a R,
    locked: Locked<'a, R>,
}

/// The end of the file, held for an append.
#[derive(Debug)]
pub struct Appending<'a, R: Region> {
    region: &'a R,
    locked: Locked<'a, R>,
}

impl<R: ReadRegion, P> Live<R, P> {
    /// The attributes for `party`.
    pub fn new(words: FileWords<R>, party: P) -> Self {
        Self { words, party }
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.words.region.load(SIZE)
    }

    /// Time of the last change, in nanoseconds, if it is ahead of the home
    /// inode.
    pub fn mtime_ns(&self) -> Option<i64> {
        Some(self.words.region.load(MTIME).cast_signed()).filter(|ns| *ns != 0)
    }

    /// Time of the last read that counts, in nanoseconds, which may be ahead of
    /// the home inode; 0 if none is known.
    pub fn atime_ns(&self) -> i64 {
        self.words.region.load(ATIME).cast_signed()
    }
}

impl<R: Region, P: Party> Live<R, P> {
    /// Copies the present state of `other`.
    pub fn copy_from<S: ReadRegion, Q>(&self, other: &Live<S, Q>) {
        for at in [SIZE, MTIME, ATIME] {
            self.words.region.word(at).store(other.words.region.load(at), Ordering::Release);
        }
    }

    /// Holds the size.
    pub fn change(&self) -> Changing<'_, R> {
        let region = &self.words.region;
        Changing { region, locked: lock(region, SIZE_LOCK, &self.party) }
    }

    /// Makes the file reach to `end` at least: if it does not yet, calls
    /// `store` with the size held, which updates the index first, and then the
    /// size.
    ///
    /// # Errors
    /// Those of `store`.
    pub fn grow<E>(
        &self,
        end: u64,
        store: impl FnOnce(&mut Changing<'_, R>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.size() >= end {
            return Ok(());
        }
        let mut held = self.change();
        if held.size() < end { store(&mut held) } else { Ok(()) }
    }

    /// Holds the end of the file: an append writes from [`at`](Appending::at)
    /// on, and takes effect by [`grow`](Self::grow).
    pub fn append(&self) -> Appending<'_, R> {
        let region = &self.words.region;
        Appending { region, locked: lock(region, APPEND_LOCK, &self.party) }
    }

    /// Notes that the file was changed now.
    pub fn touch_mtime(&self, now_ns: i64) {
        self.words.region.word(MTIME).store(now_ns.cast_unsigned(), Ordering::Relaxed);
    }

    /// Notes that the home inode has this time, which was ahead of it. A later
    /// write may be ahead again.
    pub fn mtime_was_stored(&self, stored_ns: i64) {
        let word = self.words.region.word(MTIME);
        // A newer time is ahead.
        let _ = word.compare_exchange(stored_ns.cast_unsigned(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that the home inode's time is right, or is about to be set.
    pub fn give_up_mtime(&self) {
        self.words.region.word(MTIME).store(0, Ordering::Relaxed);
    }

    /// Changes the access time from `last_ns` to `now_ns`; `false` if it is not
    /// `last_ns` any more. Of concurrent callers, only one gets `true`.
    pub fn renew_atime(&self, last_ns: i64, now_ns: i64) -> bool {
        let (last, now) = (last_ns.cast_unsigned(), now_ns.cast_unsigned());
        self.words
            .region
            .word(ATIME)
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes that no read is ahead of the home inode.
    pub fn give_up_atime(&self) {
        self.words.region.word(ATIME).store(0, Ordering::Relaxed);
    }
}

impl<R: Region> Changing<'_, R> {
    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.region.load(SIZE)
    }

    /// Sets the size, which the index has already.
    pub fn set(&mut self, size: u64) {
        self.region.word(SIZE).store(size, Ordering::Release);
        self.locked.mended();
    }

    /// Whether an owner died that held it: the index may have another size.
    pub fn abandoned(&self) -> Option<Abandoned> {
        self.locked.abandoned()
    }

    /// Notes that the index has the size again.
    pub fn mended(&mut self) {
        self.locked.mended();
    }
}

impl<R: Region> Appending<'_, R> {
    /// Offset for the data.
    pub fn at(&self) -> u64 {
        self.region.load(SIZE)
    }

    /// Whether an owner died during an append: there may be data beyond the
    /// size, which has to be removed before the size may grow over it.
    pub fn abandoned(&self) -> Option<Abandoned> {
        self.locked.abandoned()
    }

    /// Notes that there is no data beyond the size any more.
    pub fn mended(&mut self) {
        self.locked.mended();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::party::Sole;
    use crate::region::PrivateWords;

    fn live() -> Live<PrivateWords, Sole> {
        Live::new(FileWords::private(), Sole)
    }

    #[test]
    fn a_file_grows_where_it_is_shorter_and_the_index_could_be_told() {
        let live = live();
        let grow = |end, told| {
            live.grow(end, |held| {
                assert!(held.size() < end);
                told?;
                held.set(end);
                Ok(())
            })
        };
        assert_eq!(grow(10, Ok(())), Ok(()));
        assert_eq!(grow(20, Err(5)), Err(5));
        assert_eq!(live.size(), 10);
        assert_eq!(grow(10, Err(5)), Ok(()));
        live.change().set(3);
        assert_eq!(live.size(), 3);
    }

    #[test]
    fn appends_do_not_overlap() {
        let live = live();
        let ends: Vec<_> = std::thread::scope(|scope| {
            let append = || {
                let appending = live.append();
                let at = appending.at();
                live.change().set(at + 10);
                at
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || (append(), append()))).collect();
            threads.into_iter().flat_map(|thread| <[u64; 2]>::from(thread.join().unwrap())).collect()
        });
        assert_eq!(live.size(), 80);
        assert!((0..80).step_by(10).all(|at| ends.contains(&at)));
    }

    #[test]
    fn only_the_time_that_was_stored_is_forgotten() {
        let live = live();
        live.touch_mtime(1_500_000_000);
        // A write comes before a sync forgets the stored time.
        live.touch_mtime(2_000_000_001);
        live.mtime_was_stored(1_500_000_000);
        assert_eq!(live.mtime_ns(), Some(2_000_000_001));
        live.mtime_was_stored(2_000_000_001);
        assert_eq!(live.mtime_ns(), None);
    }

    #[test]
    fn of_those_that_renew_the_access_time_one_does() {
        let live = live();
        assert_eq!(live.atime_ns(), 0);
        assert!(live.renew_atime(0, 10));
        assert!(!live.renew_atime(0, 11));
        assert!(live.renew_atime(10, 12));
        assert_eq!(live.atime_ns(), 12);
        live.give_up_atime();
        assert!(!live.renew_atime(12, 13));
        assert_eq!(live.atime_ns(), 0);
    }
}
