//! Where a new range goes.
//!
//! A policy is one file behind [`Policy`]: a small function of what is known of
//! a write and of the tiers, to one tier. It is asked once for the ranges that
//! one write touches first (PolyStore §4.4.2), never for data that is placed
//! already. What to do when the tier it names has no room is not its business.

mod home_first;
mod size;
mod weighted;

use crate::config::{LargeFiles, PolicyConfig};
use braid_contract::{Hint, TierId};
use home_first::HomeFirst;
use size::Size;
use std::sync::Arc;
use weighted::Weighted;
pub(crate) use weighted::shares;

/// What is known of the write that first touches some ranges.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// Size of the file once the write is done, in bytes.
    pub(crate) size_after: u64,
    /// Bytes that the new ranges take together.
    pub(crate) new_bytes: u64,
    /// What is known of the data.
    #[expect(dead_code, reason = "carried to every policy; the first to use it comes with stream rules")]
    pub(crate) hint: Hint,
    /// What was dealt to each tier of this file so far.
    pub(crate) deal: &'a Deal,
    /// The tiers; home is among them.
    pub(crate) tiers: &'a [TierView],
}

impl Context<'_> {
    fn home(&self) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.home)
    }
}

/// A tier as a policy sees it.
#[derive(Clone, Debug)]
pub(crate) struct TierView {
    pub(crate) id: TierId,
    pub(crate) home: bool,
    /// Bandwidth relative to the other tiers, above 0.
    pub(crate) weight: f64,
    /// There is room for the new ranges beyond the reserve, and the tier takes
    /// new ranges at all.
    pub(crate) has_room: bool,
    /// Share of the tier's space in use by anybody, 0 to 1.
    pub(crate) used: f64,
}

/// Bytes of one file dealt to each tier. Kept while the file is open, so that
/// each file by itself is spread in proportion.
#[derive(Clone, Debug)]
pub(crate) struct Deal {
    bytes: [f64; TierId::LIMIT as usize],
}

impl Deal {
    /// Nothing dealt yet. `seed` differs from file to file: it shifts where in
    /// the pattern of turns a file begins, by less than a range, so that many
    /// files of a few ranges come out in proportion too.
    pub(crate) fn new(seed: u64, range_size: u32) -> Self {
        let mut state = seed;
        let bytes = std::array::from_fn(|_| {
            state = split_mix(state);
            f64::from((state >> 32) as u32) / f64::from(u32::MAX) * f64::from(range_size)
        });
        Self { bytes }
    }

    pub(crate) fn add(&mut self, tier: TierId, bytes: u64) {
        if let Some(dealt) = self.bytes.get_mut(usize::from(tier.0)) {
            *dealt += bytes as f64;
        }
    }

    fn of(&self, tier: TierId) -> f64 {
        self.bytes.get(usize::from(tier.0)).copied().unwrap_or(0.0)
    }
}

/// One step of the SplitMix64 generator.
fn split_mix(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A placement policy.
pub(crate) trait Policy: Send + Sync {
    /// Its name and settings, as `status` shows them.
    fn describe(&self) -> String;

    /// The tier for new ranges, one that [`has_room`](TierView::has_room);
    /// `None` if it knows none.
    fn place(&self, context: &Context<'_>) -> Option<TierId>;
}

/// Makes the policy that `config` asks for. `tier` finds a tier by its name;
/// `None` is answered where it finds none.
pub(crate) fn make(config: &PolicyConfig, tier: impl Fn(&str) -> Option<TierId>) -> Option<Arc<dyn Policy>> {
    Some(match config {
        PolicyConfig::HomeFirst { watermark_percent } => {
            Arc::new(HomeFirst { watermark: watermark_percent / 100.0 })
        }
        PolicyConfig::Weighted => Arc::new(Weighted),
        PolicyConfig::Size { small, large: LargeFiles::Spread } => {
            Arc::new(Size { small: *small, large: None })
        }
        PolicyConfig::Size { small, large: LargeFiles::Tier(name) } => {
            Arc::new(Size { small: *small, large: Some((tier(name)?, name.clone())) })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn view(id: u8, weight: f64) -> TierView {
        TierView { id: TierId(id), home: id == 0, weight, has_room: true, used: 0.0 }
    }

    pub(super) fn place(
        policy: &dyn Policy,
        deal: &Deal,
        tiers: &[TierView],
        size_after: u64,
    ) -> Option<TierId> {
        policy.place(&Context { size_after, new_bytes: 1 << 21, hint: Hint::default(), deal, tiers })
    }

    #[test]
    fn deals_differ_by_seed_and_by_less_than_a_range() {
        let (a, b) = (Deal::new(1, 1 << 21), Deal::new(2, 1 << 21));
        assert!((a.of(TierId(0)) - b.of(TierId(0))).abs() > 1.0);
        assert!(a.bytes.iter().chain(&b.bytes).all(|bytes| (0.0..=f64::from(1 << 21)).contains(bytes)));
    }
}
