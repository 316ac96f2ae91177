//! The ranges touched in an epoch: a fixed table of words to which threads add
//! without a lock. Every read and write passes here, so a touch that is already
//! in it costs one load. `heat` empties it once per epoch.

use braid_contract::{SplitMix, TierId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranges that can be distinguished in one epoch; touches for which the table
/// has no place are not counted.
const SLOTS: usize = 1 << 16;

/// Places that are tried for a touch.
const PROBES: usize = 8;

/// Bits of a range's number: as many as the largest file has ranges.
const RANGE_BITS: u32 = 31;
const PLACED_AT: u32 = RANGE_BITS;
const TIER_AT: u32 = 32;
const TIER_BITS: u32 = 6;
const SERIAL_AT: u32 = TIER_AT + TIER_BITS;

/// Serial numbers of files in use go up to here, and begin again at 1.
pub(super) const SERIAL_MAX: u32 = (1 << (64 - SERIAL_AT)) - 1;

/// One range of one file, on one tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Touch {
    pub(super) serial: u32,
    pub(super) range: u32,
    pub(super) tier: TierId,
    /// The range came to the tier, instead of being used there.
    pub(super) placed: bool,
}

impl Touch {
    fn encode(self) -> u64 {
        u64::from(self.serial) << SERIAL_AT
            | u64::from(self.tier.0) << TIER_AT
            | u64::from(self.placed) << PLACED_AT
            | u64::from(self.range)
    }

    fn decode(word: u64) -> Self {
        let field = |at: u32, bits: u32| (word >> at & ((1 << bits) - 1)) as u32;
        Self {
            serial: field(SERIAL_AT, 64 - SERIAL_AT),
            range: field(0, RANGE_BITS),
            tier: TierId(field(TIER_AT, TIER_BITS) as u8),
            placed: field(PLACED_AT, 1) == 1,
        }
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Touches {
    /// Zero marks an empty place.
    slots: Box<[AtomicU64]>,
}

impl Touches {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn enter(&self, touch: Touch) {
        let word = touch.encode();
        let first = SplitMix::new(word).next_u64() as usize;
        for probe in 0..PROBES {
            let slot = &self.slots[(first + probe) % SLOTS];
            let mut found = slot.load(Ordering::Relaxed);
            if found == 0 {
                match slot.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(other) => found = other,
                }
            }
            if found == word {
                return;
            }
        }
    }

    /// Takes the touches since the last call, in order.
    pub(super) fn take(&self) -> Vec<Touch> {
        let filled = self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0);
        let mut touches: Vec<Touch> =
            filled.map(|slot| Touch::decode(slot.swap(0, Ordering::Relaxed))).collect();
        touches.sort_unstable();
        touches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(serial: u32, range: u32, placed: bool) -> Touch {
        Touch { serial, range, tier: TierId(62), placed }
    }

    #[test]
    fn touches_come_back_once_and_in_order() {
        let touches = Touches::new();
        let entered = [
            touch(1, 0, false),
            touch(1, (1 << RANGE_BITS) - 1, true),
            touch(SERIAL_MAX, 5, false),
            touch(SERIAL_MAX, 5, true),
        ];
        for touch in entered.iter().rev().chain(&entered) {
            touches.enter(*touch);
        }
        assert_eq!(touches.take(), entered);
        assert_eq!(touches.take(), []);
    }

    #[test]
    fn a_full_table_forgets_and_goes_on() {
        let touches = Touches::new();
        for range in 0..200_000 {
            touches.enter(touch(3, range, false));
        }
        let taken = touches.take();
        assert!(taken.len() > SLOTS / 2 && taken.len() <= SLOTS, "{}", taken.len());
        touches.enter(touch(3, 7, false));
        assert_eq!(touches.take(), [touch(3, 7, false)]);
    }
}
