//! A store that writes each byte once, like one on a zoned device or on a
//! network.

use super::layer::Layered;
use braid_contract::{Errno, Error, ObjectId, Result, Store, StoreCapabilities, StoreIo, StoreLayer};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A store that refuses overwriting and punching, over any other that keeps its
/// bytes. Its objects are no files, and it reserves nothing.
pub type AppendOnlyStore = Layered<AppendOnly>;

/// Variations of an [`AppendOnlyStore`].
pub struct AppendOnly {
    inner: Arc<dyn Store>,
    seek_data: bool,
    /// Which bytes of an object were written, as begin and end of stretches.
    written: Mutex<HashMap<ObjectId, BTreeMap<u64, u64>>>,
}

impl Layered<AppendOnly> {
    /// A store over `inner`; without `seek_data`, holes are not distinguished
    /// from data either.
    #[must_use]
    pub fn over(inner: Arc<dyn Store>, seek_data: bool) -> Self {
        Self(AppendOnly { inner, seek_data, written: Mutex::default() })
    }
}

impl AppendOnly {
    /// Notes that a range is written; refuses one of which a part was before.
    fn claim(&self, id: ObjectId, range: Range<u64>) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let stretches = match written.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.found(id)?),
        };
        if range.is_empty() {
            return Ok(());
        }
        let before = stretches.range(..range.end).next_back();
        if before.is_some_and(|(_, end)| *end > range.start) {
            return Err(Error::new(Errno::EOPNOTSUPP, "the store writes each byte once"));
        }
        stretches.insert(range.start, range.end);
        Ok(())
    }

    /// Of a range that was claimed at `offset`, only `done` bytes were written.
    fn give_back(&self, id: ObjectId, offset: u64, done: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stretches) = written.get_mut(&id) else { return };
        stretches.remove(&offset);
        if done > 0 {
            stretches.insert(offset, offset + done);
        }
    }

    /// The data of an object that was written before this store was made.
    fn found(&self, id: ObjectId) -> Result<BTreeMap<u64, u64>> {
        let (mut stretches, mut at) = (BTreeMap::new(), 0);
        let size = self.inner.stat(id)?.size;
        while let Some((start, end)) = self.inner.next_data(id, at)? {
            stretches.insert(start, end.min(size));
            at = end;
        }
        Ok(stretches)
    }
}

impl StoreLayer for AppendOnly {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn capabilities(&self) -> StoreCapabilities {
        let beneath = self.inner.capabilities();
        StoreCapabilities {
            native_files: false,
            punch: false,
            allocate: false,
            seek_data: beneath.seek_data && self.seek_data,
            overwrite: false,
            preallocates: false,
            ..beneath
        }
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        self.claim(id, offset..end)?;
        let result = self.inner.write_at(id, offset, bufs, io);
        let done = result.as_ref().map_or(0, |done| *done as u64);
        if done < len {
            self.give_back(id, offset, done);
        }
        result
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.inner.remove(ids)?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            written.remove(id);
        }
        Ok(())
    }
}
