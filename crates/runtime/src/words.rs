//! Bytes in words that another process may change at any time: a load returns the result of some of
//! its stores, and is never undefined.

use bytemuck::Pod;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stores bytes; those behind them in the last word become 0.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Loads as many bytes as there is room for.
pub(crate) fn load(words: &[AtomicU64], bytes: &mut [u8]) {
    let (whole, rest) = bytes.as_chunks_mut::<8>();
    for (word, bytes) in words.iter().zip(whole.iter_mut()) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
        let last = word.load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Stores a value in the first words.
pub(crate) fn store_value<T: Pod>(words: &[AtomicU64], value: &T) {
    store(words, bytemuck::bytes_of(value));
}

/// Loads a value.
pub(crate) fn load_value<T: Pod>(words: &[AtomicU64]) -> T {
    let mut value = T::zeroed();
    load(words, bytemuck::bytes_of_mut(&mut value));
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_stored_is_loaded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let words: Vec<AtomicU64> = (0..bytes.len().div_ceil(8) + 1).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&words, &bytes);
            let mut back = vec![0; bytes.len()];
            load(&words, &mut back);
            prop_assert_eq!(back, bytes);
            prop_assert_eq!(words[words.len() - 1].load(Ordering::Relaxed), u64::MAX);
        }
    }
}
