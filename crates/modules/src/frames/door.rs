//! The child's file, as bytes at offsets.

use braid_contract::{
    Caller, Errno, Error, FallocateMode, FileSystem, HandleId, InodeId, Result, SetAttr, WriteFlags,
};

/// An open file of the child, in the name of one user.
#[derive(Clone, Copy)]
pub(crate) struct Door<'a> {
    pub(crate) child: &'a dyn FileSystem,
    pub(crate) caller: &'a Caller,
    pub(crate) ino: InodeId,
    pub(crate) handle: HandleId,
    pub(crate) flags: WriteFlags,
}

impl Door<'_> {
    /// Reads; bytes behind the end are zero.
    pub(crate) fn read_at(&self, mut offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut left = &mut bytes[..];
        while !left.is_empty() {
            match self.child.read(self.caller, self.handle, offset, left, false)? {
                0 => {
                    left.fill(0);
                    return Ok(());
                }
                count => {
                    offset += count as u64;
                    left = &mut left[count..];
                }
            }
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) fn write_at(&self, mut offset: u64, bytes: &[u8]) -> Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match self.child.write(self.caller, self.handle, offset, left, self.flags)? {
                0 => return Err(Error::new(Errno::EIO, "a write below came to nothing")),
                count => {
                    offset += count as u64;
                    left = &left[count..];
                }
            }
        }
        Ok(())
    }

    /// Gives the space of a part back, where the child can.
    pub(crate) fn punch(&self, offset: u64, len: u64) -> Result<()> {
        match self.fallocate(offset, len, FallocateMode::PunchHole) {
            Err(error) if error.errno() == Errno::EOPNOTSUPP => Ok(()),
            result => result,
        }
    }

    /// Has room for a part.
    pub(crate) fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(offset, len, FallocateMode::Allocate { keep_size: true })
    }

    fn fallocate(&self, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
        if len == 0 { Ok(()) } else { self.child.fallocate(self.caller, self.handle, offset, len, mode) }
    }

    pub(crate) fn set_size(&self, size: u64) -> Result<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.child.setattr(self.caller, self.ino, Some(self.handle), &changes).map(drop)
    }

    pub(crate) fn size(&self) -> Result<u64> {
        Ok(self.child.getattr(self.caller, self.ino, Some(self.handle))?.size)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.child.fsync(self.caller, self.handle, true)
    }
}
