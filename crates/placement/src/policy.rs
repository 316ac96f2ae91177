//! What a placement policy is.
//!
//! A small function of what is known of a write and of the tiers, to one tier.
//! It is asked once for the ranges that one write touches first (PolyStore
//! §4.4.2), never for data that is placed already. What to do when the tier it
//! names has no room is not its business.

use crate::context::{Context, TierView};
use crate::epoch::Epoch;
use braid_contract::TierId;

/// A placement policy.
pub trait Policy: Send + Sync {
    /// Its name and settings, as `status` shows them.
    fn describe(&self) -> String;

    /// The tier for new ranges, one that [`has_room`](TierView::has_room);
    /// `None` if it knows none. Asked also only to see what it would be.
    fn place(&self, context: &Context<'_>) -> Option<TierId>;

    /// The tier's share, against others', when the ranges of a file are dealt.
    fn share(&self, tier: &TierView) -> f64 {
        tier.weight
    }

    /// Whether it says which share of a file each tier is to have: by the file,
    /// and not by what tiers do at the moment.
    fn decides_shares(&self) -> bool {
        false
    }

    /// Whether a file that fits in one range may begin on another tier than
    /// home, of whose space so much is in use, 0 to 1. Movers relieve home
    /// until it is below `low`.
    fn spares_home(&self, used: f64, low: f64) -> bool {
        used >= low
    }

    /// The ranges were placed on this tier.
    fn placed(&self, _context: &Context<'_>, _tier: TierId) {}

    /// An epoch ended.
    fn epoch(&self, _epoch: &Epoch) {}
}
