//! One file's bytes on one tier: every read and write of data passes here, is
//! counted, and has its errors looked at.

use super::{File, Spread};
use crate::Volume;
use crate::tiers::{Backend, Direction, Tier, bit};
use braid_contract::{Error, Hint, Result, StoreIo};
use rustix::fs::FallocateFlags;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

impl Volume {
    /// Reads from the file's part on `tier`; what that part does not reach
    /// reads as zeros.
    pub(crate) fn read_piece(
        &self,
        file: &File,
        spread: &Spread,
        tier: &Tier,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<()> {
        let read = tier.load.count(Direction::Read, || match &tier.backend {
            Backend::Home => Ok(file.data().read_at(offset, &mut [IoSliceMut::new(buf)], direct)?),
            Backend::Store(store) => {
                let io = StoreIo { direct, hint: Hint::default() };
                store.read_at(spread.id(), offset, &mut [IoSliceMut::new(buf)], io)
            }
        });
        let done = read.map_err(|error| tier.note_error(error))?;
        buf[done..].fill(0);
        Ok(())
    }

    /// Writes to the file's part on `tier`. Short only if an error follows.
    pub(crate) fn write_piece(
        &self,
        file: &File,
        spread: &Spread,
        tier: &Tier,
        offset: u64,
        data: &[u8],
        io: StoreIo,
    ) -> Result<usize> {
        spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
        let write = tier.load.count(Direction::Write, || match &tier.backend {
            Backend::Home => {
                let written = file.writable()?.write_at(offset, &[IoSlice::new(data)], io.direct)?;
                Ok::<_, Error>(written)
            }
            Backend::Store(store) => store.write_at(spread.id(), offset, &[IoSlice::new(data)], io),
        });
        write.map_err(|error| tier.note_error(error))
    }

    /// Zeroes and frees part of the file's part on `tier`.
    pub(crate) fn punch_piece(
        &self,
        file: &File,
        spread: &Spread,
        tier: &Tier,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let punched = match &tier.backend {
            Backend::Home => {
                let (fd, flags) = (file.writable()?, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
                rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, flags, offset, len))
                    .map_err(Error::from)
            }
            Backend::Store(store) => store.punch(spread.id(), offset, len),
        };
        punched.map_err(|error| tier.note_error(error))
    }

    /// Reads from the home file of a plain file.
    pub(crate) fn read_home(&self, file: &File, offset: u64, buf: &mut [u8], direct: bool) -> Result<usize> {
        let load = &self.tiers.home().load;
        load.count(Direction::Read, || {
            Ok(file.data().read_at(offset, &mut [IoSliceMut::new(buf)], direct)?)
        })
    }

    /// Writes to the home file of a plain file.
    pub(crate) fn write_home(&self, file: &File, offset: u64, data: &[u8], direct: bool) -> Result<usize> {
        let home = self.tiers.home();
        let written = home.load.count(Direction::Write, || {
            Ok::<_, Error>(file.writable()?.write_at(offset, &[IoSlice::new(data)], direct)?)
        });
        written.map_err(|error| home.note_error(error))
    }

    /// Makes sure that the tier has the file's object.
    pub(crate) fn ensure_object(&self, spread: &Spread, tier: &Tier) -> Result<()> {
        if let Backend::Store(store) = &tier.backend
            && spread.created.load(Ordering::Acquire) & bit(tier.id) == 0
        {
            store.create(spread.id()).map_err(|error| tier.note_error(error))?;
            spread.created.fetch_or(bit(tier.id), Ordering::AcqRel);
        }
        Ok(())
    }
}
