//! Reading.

use super::{File, Layout, Spread};
use crate::Volume;
use crate::tiers::Tier;
use braid_contract::{Result, TierId};

/// Pieces on several tiers are read at the same time if there is this much to
/// read, in bytes; handing less to another thread costs more than it saves.
const PARALLEL_MIN: usize = 128 << 10;

/// A stretch of a read on one tier, or in a hole.
struct Piece<'a> {
    tier: Option<TierId>,
    offset: u64,
    buf: &'a mut [u8],
}

impl Volume {
    pub(crate) fn read_file(&self, file: &File, offset: u64, buf: &mut [u8], direct: bool) -> Result<usize> {
        match &*file.layout.read() {
            Layout::Plain => self.read_home(file, offset, buf, direct),
            Layout::Spread(spread) => self.read_spread(file, spread, offset, buf, direct),
        }
    }

    fn read_spread(
        &self,
        file: &File,
        spread: &Spread,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        let len = spread.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        if spread.times.atime_is_due() {
            // A read of the home file renews its access time as that is
            // mounted to, and leaves its change time alone.
            let _ = file.data()?.read_at(0, &mut [std::io::IoSliceMut::new(&mut [0])], false);
        }
        let mut pieces = self.pieces_of(spread, offset, &mut buf[..len])?;
        match &mut pieces[..] {
            [piece] => self.read_one(file, spread, piece, direct)?,
            several if len < PARALLEL_MIN || one_tier(several) => {
                several.iter_mut().try_for_each(|piece| self.read_one(file, spread, piece, direct))?;
            }
            several => self.read_in_parallel(file, spread, several, direct)?,
        }
        Ok(len)
    }

    /// Splits a read where the tier changes.
    fn pieces_of<'a>(
        &self,
        spread: &Spread,
        mut offset: u64,
        mut buf: &'a mut [u8],
    ) -> Result<Vec<Piece<'a>>> {
        let mut pieces = Vec::with_capacity(1);
        while !buf.is_empty() {
            let tier = self.tier_at(spread, offset)?;
            let mut len = self.range_rest(offset);
            while (len as usize) < buf.len() && self.tier_at(spread, offset + len)? == tier {
                len += u64::from(self.range_size);
            }
            let (piece, rest) = buf.split_at_mut(buf.len().min(len as usize));
            pieces.push(Piece { tier, offset, buf: piece });
            (offset, buf) = (offset + len, rest);
        }
        Ok(pieces)
    }

    fn tier_at(&self, spread: &Spread, offset: u64) -> Result<Option<TierId>> {
        Ok(spread.index.entry(self.range_of(offset))?.map(|entry| entry.tier))
    }

    fn read_one(&self, file: &File, spread: &Spread, piece: &mut Piece<'_>, direct: bool) -> Result<()> {
        match piece.tier {
            None => piece.buf.fill(0),
            Some(tier) => {
                let tier: &Tier = self.tiers.get(tier)?;
                self.read_piece(file, spread, tier, piece.offset, piece.buf, direct)?;
            }
        }
        Ok(())
    }

    fn read_in_parallel(
        &self,
        file: &File,
        spread: &Spread,
        pieces: &mut [Piece<'_>],
        direct: bool,
    ) -> Result<()> {
        let mut results: Vec<Result<()>> = pieces.iter().map(|_| Ok(())).collect();
        self.pool.in_place_scope(|scope| {
            let mut work = pieces.iter_mut().zip(&mut results);
            let first = work.next();
            for (piece, result) in work {
                scope.spawn(move |_| *result = self.read_one(file, spread, piece, direct));
            }
            if let Some((piece, result)) = first {
                *result = self.read_one(file, spread, piece, direct);
            }
        });
        results.into_iter().collect()
    }
}

fn one_tier(pieces: &[Piece<'_>]) -> bool {
    pieces.windows(2).all(|pair| pair[0].tier == pair[1].tier)
}
