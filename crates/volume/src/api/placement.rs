//! Requests about policy, rules and movers of a volume in use.

use crate::background::start_movers;
use crate::movers::MoverStatus;
use crate::placement::Placement;
use crate::placement::sizes_of;
use crate::volume::Volume;
use braid_contract::{Errno, Error, Mover, RefusalKind, Result};
use braid_hint::HintConfig;
use braid_placement::{PolicyConfig, RuleConfig};
use braid_tiers::MoversConfig;
use std::sync::Arc;

/// The settings that say where data goes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Which files go elsewhere, or by another policy.
    pub rules: Vec<RuleConfig>,
    /// Streams besides those of rules.
    pub hints: HintConfig,
    /// The movers of ranges in the background.
    pub movers: MoversConfig,
}

impl Volume {
    /// The current placement.
    #[must_use]
    pub fn placement(&self) -> PlacementConfig {
        let (policy, rules, hints) = self.placement.config();
        PlacementConfig { policy, rules, hints, movers: self.movers.rounds.config() }
    }

    /// Switches placement and movers to new settings, all or none of them. A
    /// policy that stays keeps what it learned; existing ranges stay where they
    /// are.
    ///
    /// # Errors
    /// `EINVAL` if policy or rules name an unknown tier, those of the home tier
    /// and of starting a thread. Nothing is changed then.
    pub fn set_placement(self: &Arc<Self>, new: PlacementConfig) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let mut table = self.core.table.lock();
        let known = |name: &str| self.core.tiers.number(name);
        let unknown = || {
            let what = "the policy or a rule names a tier that is not among the tiers";
            Error::refused(Errno::EINVAL, RefusalKind::Request, what)
        };
        let low = new.movers.watermark_low;
        let placement =
            Placement::new(new.policy, (new.rules.clone(), new.hints), low, known).ok_or_else(unknown)?;
        // The table must have a range size before a file can.
        let mut next = table.clone();
        next.range_sizes = next.range_sizes | sizes_of(&new.rules);
        if next.range_sizes != table.range_sizes {
            self.core.switch_table(&mut table, next)?;
        }
        if self.core.environment.threads() {
            start_movers(self, &new.movers)?;
        }
        self.placement.exchange(placement);
        self.movers.heat.set_threshold(new.movers.heat_threshold);
        self.movers.rounds.set(new.movers);
        tracing::info!("policy, rules and movers are those of other settings now");
        Ok(())
    }

    /// The movers that are switched on.
    #[must_use]
    pub fn movers(&self) -> Vec<MoverStatus> {
        self.movers.rounds.all()
    }

    /// One mover.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub fn mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.one(mover)
    }

    /// Stops a mover until it is resumed, or the volume is opened again.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is paused.
    pub fn pause_mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.pause(mover)
    }

    /// Resumes a paused mover.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is not paused.
    pub fn resume_mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.resume(mover)
    }

    /// Changes the limit of a mover on all tiers together, in bytes a second,
    /// until the volume is opened again; with `None`, only the tiers' caps
    /// hold.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub fn set_mover_bandwidth(&self, mover: Mover, bandwidth: Option<u64>) -> Result<MoverStatus> {
        self.movers.rounds.set_bandwidth(mover, bandwidth)
    }

    /// Limit on reads of all movers from a tier, and on their writes to it, in
    /// bytes a second.
    #[must_use]
    pub fn mover_bandwidth(&self) -> u64 {
        self.throttles.mover_bandwidth()
    }
}
