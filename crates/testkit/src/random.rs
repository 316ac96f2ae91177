//! Random data for tests: the same from a seed on every machine.

pub use braid_contract::SplitMix;
use std::io::{self, Write};

/// Writes the next `len` bytes of a generator.
///
/// # Errors
/// Those of `out`.
pub fn write_random(random: &mut SplitMix, out: &mut impl Write, len: u64) -> io::Result<()> {
    let mut buf = vec![0; 1 << 20];
    let mut left = len;
    while left > 0 {
        let count = left.min(buf.len() as u64);
        let piece = &mut buf[..count as usize];
        random.fill(piece);
        out.write_all(piece)?;
        left -= count;
    }
    Ok(())
}
