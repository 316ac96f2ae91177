//! A device of which nothing is written, whatever asks for it.

use crate::device::Device;
use braid_contract::{Errno, Error, Result};
use std::io::IoSlice;
use std::sync::Arc;

/// A device that is only read.
#[derive(Debug)]
pub(super) struct ReadOnly(pub(super) Arc<dyn Device>);

impl Device for ReadOnly {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _offset: u64, _bufs: &[IoSlice<'_>]) -> Result<()> {
        Err(Error::new(Errno::EROFS, "nothing is written to a device that is salvaged"))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) {}
}
