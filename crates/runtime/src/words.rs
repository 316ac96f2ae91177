//! Bytes and values in words that another process may change at any time.

pub(crate) use braid_sys::{load_bytes as load, store_bytes as store};
use bytemuck::Pod;
use std::sync::atomic::AtomicU64;

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
    use std::sync::atomic::Ordering;

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
