//! Words of a file that the kernel maps.

use braid_contract::NativeWords;
use braid_sys::WordMap;
use std::sync::atomic::Ordering;

/// Part of a file, mapped shared.
#[derive(Debug)]
pub(super) struct KernelWords(pub(super) WordMap);

impl NativeWords for KernelWords {
    fn load(&self, word: usize) -> u64 {
        u64::from_le(self.0.words()[word].load(Ordering::Acquire))
    }

    fn store(&self, word: usize, value: u64) {
        self.0.words()[word].store(value.to_le(), Ordering::Release);
    }
}
