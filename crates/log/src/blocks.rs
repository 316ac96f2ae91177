//! Reads and writes of any memory, for drivers that take only whole blocks in aligned memory.

use braid_contract::Result;
use braid_sys::{AlignedBuf, is_aligned};
use std::io::IoSlice;

/// Fills `buf` from `offset` on by a read of whole `blocks`, whose size is `unit` bytes, in `buf`
/// itself if that is possible.
pub(crate) fn read(
    unit: u64,
    offset: u64,
    buf: &mut [u8],
    blocks: impl FnOnce(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let end = offset + buf.len() as u64;
    if offset.is_multiple_of(unit) && end.is_multiple_of(unit) && is_aligned(buf) {
        return blocks(offset, buf);
    }
    let first = offset / unit * unit;
    let mut memory = AlignedBuf::new();
    let all = memory.bytes((end.next_multiple_of(unit) - first) as usize);
    blocks(first, all)?;
    buf.copy_from_slice(&all[(offset - first) as usize..][..buf.len()]);
    Ok(())
}

/// Writes `bufs`, one after another, as one piece of memory, which `blocks` gets.
pub(crate) fn write(bufs: &[IoSlice<'_>], blocks: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    if let [data] = bufs
        && is_aligned(data)
    {
        return blocks(data);
    }
    let len = bufs.iter().map(|buf| buf.len()).sum();
    let mut memory = AlignedBuf::new();
    let mut rest = memory.bytes(len);
    for buf in bufs {
        let (part, others) = rest.split_at_mut(buf.len());
        part.copy_from_slice(buf);
        rest = others;
    }
    blocks(&memory.filled()[..len])
}
