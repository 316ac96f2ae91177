//! Demands of a range on its tier: where the present tier does not meet them,
//! the range goes to another.

use crate::core::Core;
use braid_contract::{Errno, Error, TierId};
use braid_tiers::{Tier, bit};

/// A tier lacks something for a range that is on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Obstacle {
    pub(crate) tier: TierId,
    pub(crate) demand: Demand,
}

/// A demand on the tier that a range goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// Room for more of the range.
    Room,
    /// Existing data can be overwritten.
    Overwrite,
    /// That space can be reserved.
    Allocate,
}

impl Obstacle {
    /// The unmet demand where a tier answered this error to a write; `None` if
    /// another tier would be no help.
    pub(crate) fn of(tier: &Tier, error: &Error) -> Option<Self> {
        let demand = match error.errno() {
            errno if errno.is_full() => Demand::Room,
            Errno::EOPNOTSUPP if !tier.capabilities().overwrite => Demand::Overwrite,
            _ => return None,
        };
        Some(Self { tier: tier.id, demand })
    }
}

impl Demand {
    fn is_met_by(self, tier: &Tier) -> bool {
        match self {
            // That is asked of each by itself.
            Self::Room => true,
            Self::Overwrite => tier.capabilities().overwrite,
            Self::Allocate => tier.capabilities().allocate,
        }
    }

    /// The tiers that can't have the range, as bits.
    pub(crate) fn unmet_by(self, core: &Core) -> u64 {
        core.tiers.iter().filter(|tier| !self.is_met_by(tier)).fold(0, |set, tier| set | bit(tier.id))
    }
}
