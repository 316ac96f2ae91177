//! Words of a file, mapped by the kernel.

use braid_contract::{Errno, NativeWords, Result};
use braid_sys::WordMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Part of a file, mapped shared.
#[derive(Debug)]
pub(super) struct KernelWords {
    pub(super) map: WordMap,
    /// Where the mapping begins in the file, by which words are stored if a
    /// store to the mapping may fail for lack of space.
    pub(super) written: Option<(File, u64)>,
}

impl NativeWords for KernelWords {
    fn load(&self, word: usize) -> Result<u64> {
        Ok(self.map.load(word)?)
    }

    fn store(&self, word: usize, value: u64) -> Result<()> {
        let Some((file, start)) = &self.written else { return Ok(self.map.store(word, value)?) };
        // Both are views of the kernel's cache.
        match file.write_at(&value.to_le_bytes(), start + 8 * word as u64)? {
            8 => Ok(()),
            _ => Err(Errno::EIO.into()),
        }
    }
}
