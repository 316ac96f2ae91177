//! Moving a range to another tier: copy, make durable, switch the index, make
//! that durable, release the source (ordering rule 1).

use super::pieces::is_absent;
use super::place::NotSpread;
use super::truncate::note_release;
use super::{File, Layout, Spread};
use crate::Volume;
use crate::format::{Entry, Reason};
use crate::migrate::Pace;
use crate::plant::Plant;
use crate::tiers::{Backend, Tier, bit};
use braid_contract::{Context, Errno, Error, Hint, Result, StoreIo};

/// How often one range was moved within one call. A tier whose figures promise
/// room that writes then do not get must not send it around for ever.
#[derive(Debug, Default)]
pub(super) struct Moves {
    at: Option<u64>,
    count: usize,
}

impl Moves {
    /// Counts a move of what is at `at`; `ENOSPC` if all `tiers` were tried.
    pub(super) fn count(&mut self, at: u64, tiers: usize) -> Result<()> {
        self.count = if self.at == Some(at) { self.count + 1 } else { 1 };
        self.at = Some(at);
        if self.count > tiers { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }
}

/// Why a range was not moved.
enum NotMoved {
    /// The target would not take it.
    Target(Error),
    /// Something else failed.
    Other(Error),
}

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
            match self.switch_tier(file, spread, range, entry, (&to, Reason::Moved)) {
                Ok(()) => {
                    deal.add(to.id, bytes);
                    to.took(bytes);
                    tracing::info!(file = %spread.id(), range, from = %from.name, to = %to.name, "moved a range off a full tier");
                    return Ok(());
                }
                Err(NotMoved::Target(error)) => {
                    tracing::debug!(tier = %to.name, %error, "a tier did not take a range");
                    excluded |= bit(to.id);
                }
                Err(NotMoved::Other(error)) => return Err(error),
            }
        }
    }

    /// Moves the range at `offset` to a tier, if it is not there already, as
    /// fast as `pace` allows. Ranges that were never written are nowhere, and
    /// stay so; a plain file is spread first. Answers the bytes that were
    /// copied.
    ///
    /// # Errors
    /// `EBUSY` if the kernel does I/O on the file by itself at present,
    /// `ECANCELED` if `pace` was stopped; those of both tiers.
    pub(crate) fn relocate(
        &self,
        file: &File,
        offset: u64,
        to: &Tier,
        (reason, pace): (Reason, &Pace),
    ) -> Result<u64> {
        if pace.take(u64::from(self.range_size)).is_err() {
            return Err(Errno::ECANCELED.into());
        }
        if matches!(&*file.layout.read(), Layout::Plain) && !to.is_home() {
            self.spread_out(file).map_err(|not| match not {
                NotSpread::PassedThrough => Errno::EBUSY.into(),
                NotSpread::Failed(error) => error,
            })?;
        }
        let layout = file.layout.write();
        let Layout::Spread(spread) = &*layout else { return Ok(0) };
        self.mark(file, spread)?;
        let range = self.range_of(offset);
        match spread.index.entry(range)?.filter(|entry| entry.tier != to.id) {
            None => Ok(0),
            Some(entry) => match self.switch_tier(file, spread, range, entry, (to, reason)) {
                Err(NotMoved::Target(error) | NotMoved::Other(error)) => Err(error),
                Ok(()) => Ok(u64::from(self.range_size)),
            },
        }
    }

    /// Moves one range; the caller holds the layout alone.
    fn switch_tier(
        &self,
        file: &File,
        spread: &Spread,
        range: u64,
        entry: Entry,
        (to, reason): (&Tier, Reason),
    ) -> std::result::Result<(), NotMoved> {
        let from = self.tiers.get(entry.tier).map_err(NotMoved::Other)?;
        let _admission = to.admit().map_err(NotMoved::Target)?;
        self.ensure_object(spread, to).map_err(NotMoved::Target)?;
        self.release_range(file, spread, to, range).map_err(NotMoved::Target)?;
        self.copy_range_between(file, spread, range, &from, to)?;
        if !self.planted(Plant::SwitchBeforeCopyIsDurable) {
            self.sync_tier(file, spread, to, true).map_err(NotMoved::Target)?;
        }
        let moved = Entry { tier: to.id, reason, version: entry.version.wrapping_add(1) };
        spread.index.set_entry(range, moved).map_err(NotMoved::Other)?;
        if !self.planted(Plant::PunchBeforeEntryIsDurable) {
            self.index.sync(&spread.index).map_err(NotMoved::Other)?;
        }
        self.tiers.count_range(Some(from.id), Some(to.id));
        // The range is where the index says. What stays behind is space only,
        // and is cleared before the tier gets the range again.
        if let Err(error) = self.release_range(file, spread, &from, range) {
            tracing::warn!(file = %spread.id(), range, tier = %from.name, %error, "could not free what a range left");
        }
        Ok(())
    }

    fn copy_range_between(
        &self,
        file: &File,
        spread: &Spread,
        range: u64,
        from: &Tier,
        to: &Tier,
    ) -> std::result::Result<(), NotMoved> {
        let end = (self.range_start(range) + u64::from(self.range_size)).min(spread.size());
        let mut offset = self.range_start(range);
        let mut buf = vec![0; CHUNK.min(u64::from(self.range_size)) as usize];
        while let Some((start, data_end)) =
            self.next_data_on(file, spread, from, offset, end).map_err(NotMoved::Other)?
        {
            let len = (data_end - start).min(buf.len() as u64) as usize;
            self.read_piece(file, spread, from, start, &mut buf[..len], false).map_err(NotMoved::Other)?;
            let mut done = 0;
            while done < len {
                let (at, io) = (start + done as u64, StoreIo::default());
                done +=
                    self.write_piece(file, spread, to, at, &buf[done..len], io).map_err(NotMoved::Target)?;
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
            Backend::Home(_) => return self.next_home_data(file, offset, end),
            Backend::Store(store) => match store.next_data(spread.id(), offset) {
                Err(error) if is_absent(spread, tier, &error)? => None,
                result => result.map_err(|error| tier.note_error(error))?,
            },
        };
        Ok(found.filter(|(start, _)| *start < end).map(|(start, data_end)| (start, data_end.min(end))))
    }

    /// Frees what a tier holds of a range that is not, or no longer, its.
    pub(crate) fn release_range(&self, file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
        let (start, len) = (self.range_start(range), u64::from(self.range_size));
        note_release(spread, tier.id);
        self.punch_piece(file, spread, tier, start, len).context("releasing a range")
    }
}
