//! Pseudo-random numbers, which are the same for the same seed. Unpredictable
//! ones come from [`Environment`](crate::Environment).

/// `SplitMix64`: small, fast and good enough to sample with.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one of several things that share a seed.
    #[must_use]
    pub fn of(seed: u64, which: u64) -> Self {
        let mut random = Self(seed ^ which.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next_u64();
        random
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of a 128-bit product: even enough, without a division.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// One of several; `from` must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Fills memory.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_that_the_algorithm_has() {
        // From the reference implementation in C, seeded with 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        let mut random = SplitMix::new(1_234_567);
        assert_eq!([(); 3].map(|()| random.next_u64()), expected);
        let mut bytes = [0; 11];
        SplitMix::new(1_234_567).fill(&mut bytes);
        assert_eq!(bytes[..8], expected[0].to_le_bytes());
        assert_eq!(bytes[8..], expected[1].to_le_bytes()[..3]);
    }

    #[test]
    fn numbers_are_within_their_limit_and_differ_by_thing() {
        let mut random = SplitMix::of(1, 2);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|times| (100..300).contains(times)), "{seen:?}");
        assert_ne!(SplitMix::of(1, 2).next_u64(), SplitMix::of(1, 3).next_u64());
        assert_eq!(random.pick(&[7]), 7);
    }
}
