//! Moving a range to another tier: copy, make durable, switch the index, make
//! that durable, release the source (ordering rule 1).

use super::{File, Layout, Spread};
use crate::Volume;
use crate::format::{Entry, Reason};
use crate::tiers::{Backend, Tier, bit};
use braid_contract::{Context, Errno, Hint, Result, StoreIo};
use rustix::fs::FallocateFlags;

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;

impl Volume {
    /// The tier of the range at `offset` has no room for more of it: the range
    /// goes to another one. `ENOSPC` if no tier has room.
    pub(crate) fn move_full_range(&self, file: &File, offset: u64) -> Result<()> {
        // Space of removed files may be all that is missing.
        if self.reaper.reap_now(self) {
            return Ok(());
        }
        let layout = file.layout.write();
        let Layout::Spread(spread) = &*layout else { return Ok(()) };
        let range = self.range_of(offset);
        let Some(entry) = spread.index.entry(range)? else { return Ok(()) };
        let from = self.tiers.get(entry.tier)?;
        let mut excluded = bit(from.id);
        let mut deal = spread.placing.lock();
        loop {
            let bytes = u64::from(self.range_size);
            let (to, _) = self.choose(spread.size(), bytes, Hint::default(), &deal, excluded)?;
            match self.move_range(file, spread, range, entry, to) {
                Ok(()) => {
                    deal.add(to.id, bytes);
                    to.took(bytes);
                    return Ok(());
                }
                Err(error) if error.is_full() || error.errno() == Errno::EIO => excluded |= bit(to.id),
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves one range; the caller holds the layout alone.
    fn move_range(&self, file: &File, spread: &Spread, range: u64, entry: Entry, to: &Tier) -> Result<()> {
        let from = self.tiers.get(entry.tier)?;
        self.ensure_object(spread, to)?;
        self.release_range(file, spread, to, range)?;
        self.copy_range_between(file, spread, range, from, to)?;
        self.sync_tier(file, spread, to)?;
        let moved = Entry { tier: to.id, reason: Reason::Moved, version: entry.version.wrapping_add(1) };
        spread.index.set_entry(range, moved)?;
        self.index.sync(&spread.index)?;
        self.tiers.count_range(Some(from.id), Some(to.id));
        tracing::info!(file = %spread.id(), range, from = %from.name, to = %to.name, "moved a range off a full tier");
        self.release_range(file, spread, from, range)
    }

    fn copy_range_between(
        &self,
        file: &File,
        spread: &Spread,
        range: u64,
        from: &Tier,
        to: &Tier,
    ) -> Result<()> {
        let end = (self.range_start(range) + u64::from(self.range_size)).min(spread.size());
        let mut offset = self.range_start(range);
        let mut buf = vec![0; CHUNK.min(u64::from(self.range_size)) as usize];
        while let Some((start, data_end)) = self.next_data_on(file, spread, from, offset, end)? {
            let len = (data_end - start).min(buf.len() as u64) as usize;
            self.read_piece(file, spread, from, start, &mut buf[..len], false)?;
            let mut done = 0;
            while done < len {
                done += self.write_piece(
                    file,
                    spread,
                    to,
                    start + done as u64,
                    &buf[done..len],
                    StoreIo::default(),
                )?;
            }
            offset = start + len as u64;
        }
        Ok(())
    }

    /// The first stretch of data of the file's part on `tier` in
    /// `offset .. end`.
    pub(crate) fn next_data_on(
        &self,
        file: &File,
        spread: &Spread,
        tier: &Tier,
        offset: u64,
        end: u64,
    ) -> Result<Option<(u64, u64)>> {
        if offset >= end {
            return Ok(None);
        }
        let found = match &tier.backend {
            Backend::Home => return self.next_home_data(file, offset, end),
            Backend::Store(store) => {
                store.next_data(spread.id(), offset).map_err(|error| tier.note_error(error))?
            }
        };
        Ok(found.filter(|(start, _)| *start < end).map(|(start, data_end)| (start, data_end.min(end))))
    }

    /// Frees what a tier holds of a range that is not, or no longer, its.
    fn release_range(&self, file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
        let (start, len) = (self.range_start(range), u64::from(self.range_size));
        let punched = match &tier.backend {
            Backend::Home => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file.writable()?, flags, start, len).map_err(Into::into)
            }
            Backend::Store(store) => store.punch(spread.id(), start, len),
        };
        punched.map_err(|error| tier.note_error(error)).context("releasing a range")
    }
}
