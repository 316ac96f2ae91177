//! The one generator of random numbers and data for tests: the same sequence
//! from a seed on every machine.

use std::io::{self, Write};

/// `SplitMix64`: small, fast and good enough to sample with.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one of several things that have one seed.
    #[must_use]
    pub fn of(seed: u64, which: u64) -> Self {
        let mut random = Self(seed ^ which.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of a 128-bit product: even enough, and no division.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for piece in buf.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }

    /// Writes `len` bytes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&mut self, out: &mut impl Write, len: u64) -> io::Result<()> {
        let mut buf = vec![0; 1 << 20];
        let mut left = len;
        while left > 0 {
            let count = left.min(buf.len() as u64);
            let piece = &mut buf[..count as usize];
            self.fill(piece);
            out.write_all(piece)?;
            left -= count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_seed_gives_the_same_bytes_again() {
        let bytes = |seed| {
            let mut out = Vec::new();
            SplitMix::new(seed).write(&mut out, 3_000_001).unwrap();
            out
        };
        assert_eq!(bytes(7).len(), 3_000_001);
        assert!(bytes(7) == bytes(7));
        assert!(bytes(7) != bytes(8));
    }

    #[test]
    fn numbers_stay_below_their_limit_and_reach_all_of_it() {
        let mut random = SplitMix::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| random.below(7)).collect();
        assert_eq!(seen, (0..7).collect());
    }
}
