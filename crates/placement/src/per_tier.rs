//! A figure for each tier.

use braid_contract::TierId;

/// A figure for each tier, by its number.
#[derive(Clone, Debug)]
pub(crate) struct PerTier<T>(pub(crate) [T; TierId::LIMIT as usize]);

impl<T: Copy> PerTier<T> {
    pub(crate) fn all(value: T) -> Self {
        Self([value; TierId::LIMIT as usize])
    }
}

impl<T> std::ops::Index<TierId> for PerTier<T> {
    type Output = T;

    fn index(&self, tier: TierId) -> &T {
        &self.0[usize::from(tier.0) % self.0.len()]
    }
}

impl<T> std::ops::IndexMut<TierId> for PerTier<T> {
    fn index_mut(&mut self, tier: TierId) -> &mut T {
        let len = self.0.len();
        &mut self.0[usize::from(tier.0) % len]
    }
}
