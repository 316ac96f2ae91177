//! Policy, rules and movers of a volume that is in use are exchanged.

use crate::Volume;
use crate::open::sizes_of;
use crate::placement::Placement;
use braid_contract::{Errno, Error, RefusalKind, Result};
use braid_placement::{PolicyConfig, RuleConfig};
use braid_tiers::MoversConfig;
use std::sync::Arc;

/// What says where data goes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Which files go elsewhere, or by another policy.
    pub rules: Vec<RuleConfig>,
    /// What moves ranges in the background.
    pub movers: MoversConfig,
}

impl Volume {
    /// What says where data goes now.
    #[must_use]
    pub fn placement(&self) -> PlacementConfig {
        let (policy, rules) = self.placement.config();
        PlacementConfig { policy, rules, movers: self.movers.rounds.config() }
    }

    /// Lets new ranges go, and movers move, by other settings from now on, all
    /// or none of them. A policy that stays keeps what it learned; what is
    /// placed already stays where it is.
    ///
    /// # Errors
    /// `EINVAL` if policy or rules name a tier that there is not, those of the
    /// home tier and of starting a thread. Nothing is changed then.
    pub fn set_placement(self: &Arc<Self>, new: PlacementConfig) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let mut table = self.core.table.lock();
        let known = |name: &str| self.core.tiers.number(name);
        let unknown = || {
            let what = "the policy or a rule names a tier that is not among the tiers";
            Error::refused(Errno::EINVAL, RefusalKind::Request, what)
        };
        let low = new.movers.watermark_low;
        let placement = Placement::new(new.policy, new.rules.clone(), low, known).ok_or_else(unknown)?;
        // Before there can be such a file.
        let mut next = table.clone();
        next.range_sizes = next.range_sizes | sizes_of(&new.rules);
        if next.range_sizes != table.range_sizes {
            self.core.switch_table(&mut table, next)?;
        }
        if self.core.environment.threads() {
            self.background.start_movers(self, &new.movers)?;
        }
        self.placement.exchange(placement);
        self.heat.set_threshold(new.movers.heat_threshold);
        self.movers.rounds.set(new.movers);
        tracing::info!("policy, rules and movers are those of other settings now");
        Ok(())
    }
}
