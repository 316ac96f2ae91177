//! Seeded random numbers and data, the same on every machine.

use std::io::Write;

/// The generator xoshiro256++, seeded through splitmix64.
pub(crate) struct Random([u64; 4]);

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Fills a buffer.
    pub(crate) fn fill(&mut self, buf: &mut [u8]) {
        for piece in buf.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }

    /// Writes `len` bytes.
    pub(crate) fn write(&mut self, out: &mut impl Write, len: u64) -> std::io::Result<()> {
        let mut buf = vec![0; 1 << 20];
        let mut left = len;
        while left > 0 {
            let count = left.min(buf.len() as u64);
            let piece = &mut buf[..usize::try_from(count).unwrap_or(usize::MAX)];
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
    fn a_seed_gives_the_same_bytes_again() {
        let bytes = |seed| {
            let mut out = Vec::new();
            Random::new(seed).write(&mut out, 3_000_001).unwrap();
            out
        };
        assert_eq!(bytes(7).len(), 3_000_001);
        assert!(bytes(7) == bytes(7));
        assert!(bytes(7) != bytes(8));
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
