//! Words of a file, mapped by the kernel.

use braid_contract::{NativeWords, Result};
use braid_sys::WordMap;

/// Part of a file, mapped shared.
#[derive(Debug)]
pub(super) struct KernelWords(pub(super) WordMap);

impl NativeWords for KernelWords {
    fn load(&self, word: usize) -> Result<u64> {
        Ok(self.0.load(word)?)
    }

    fn store(&self, word: usize, value: u64) -> Result<()> {
        Ok(self.0.store(word, value)?)
    }
}
