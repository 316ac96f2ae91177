//! Decisions that the core asks for before ranges get their tier.

use braid_placement::{Policy, Rules};
use std::sync::Arc;

/// Rules and policy as they are at the moment.
pub trait Placer: Send + Sync {
    /// The rules, of which the first that matches counts.
    fn rules(&self) -> Arc<Rules>;

    /// The policy of files for which no rule names one.
    fn policy(&self) -> Arc<dyn Policy>;

    /// Whether a file that fits in one range may begin on another tier than
    /// home, of whose space the share `used` is in use, 0 to 1.
    fn spares_home(&self, used: f64) -> bool;
}
