//! The interface of placement policies.
//!
//! A policy is a small function from the facts about a write and the tiers to
//! one tier. It is asked once for the ranges that a write touches first
//! (PolyStore §4.4.2), never for data that is placed already. It need not
//! handle a tier without room.

use crate::context::{Context, TierView};
use crate::epoch::Epoch;
use braid_contract::{Mover, TierId};

/// Turns of a policy that are looked at before a file gets room: its pattern
/// repeats.
pub const TURNS_MAX: usize = 256;

/// A placement policy.
pub trait Policy: Send + Sync {
    /// The movers that its files have where nothing is said of movers.
    fn usual_movers(&self) -> &'static [Mover];

    /// Its name and settings, as `status` shows them.
    fn describe(&self) -> String;

    /// The tier for new ranges, one that [`has_room`](TierView::has_room);
    /// `None` if there is none. Also called just to display the answer.
    fn place(&self, context: &Context<'_>) -> Option<TierId>;

    /// The tier's share, against others', when the ranges of a file are dealt.
    fn share(&self, tier: &TierView) -> f64 {
        tier.weight
    }

    /// Whether it decides the share of a file that each tier is to have, by the
    /// file and not by the current load of tiers.
    fn decides_shares(&self) -> bool {
        false
    }

    /// Whether home comes before all other tiers, however fast they are.
    fn prefers_home(&self) -> bool {
        false
    }

    /// Whether the tier for data may be another than the one for space that is
    /// set aside for it, since it depends on the writer, or on the load.
    fn decides_at_write(&self) -> bool {
        true
    }

    /// Whether a file that fits in one range may begin on another tier than
    /// home, whose used share is `used`, 0 to 1. Movers relieve home until it
    /// is below `low`.
    fn spares_home(&self, used: f64, low: f64) -> bool {
        used >= low
    }

    /// Notes that the ranges were placed on this tier.
    fn placed(&self, _context: &Context<'_>, _tier: TierId) {}

    /// How often it mapped a thread to another tier; `None` if it maps none.
    fn remaps(&self) -> Option<u64> {
        None
    }

    /// Notes the end of an epoch.
    fn epoch(&self, _epoch: &Epoch) {}
}
