//! Where new ranges go: the rules and the policy of now, and the settings that
//! they come from.

use crate::placer::Placer;
use crate::sync::{Mutex, RwLock};
use braid_contract::TierId;
use braid_placement::{Epoch, Policy, PolicyConfig, RuleConfig, Rules, make_policy};
use std::sync::Arc;

/// The placement of a volume.
pub(crate) struct Placement {
    policy: RwLock<Arc<dyn Policy>>,
    rules: RwLock<Arc<Rules>>,
    policy_config: RwLock<PolicyConfig>,
    rules_config: RwLock<Vec<RuleConfig>>,
    /// Movers relieve home until it is filled to this share, 0 to 1.
    watermark_low: Mutex<f64>,
}

impl Placement {
    /// `tier` finds a tier by its name; `None` is answered if it finds none
    /// that the policy or a rule names.
    pub(crate) fn new(
        policy: PolicyConfig,
        rules: Vec<RuleConfig>,
        watermark_low: f64,
        tier: impl Fn(&str) -> Option<TierId>,
    ) -> Option<Self> {
        Some(Self {
            policy: RwLock::new(make_policy(&policy, &tier)?),
            rules: RwLock::new(Arc::new(Rules::make(&rules, &tier)?)),
            policy_config: RwLock::new(policy),
            rules_config: RwLock::new(rules),
            watermark_low: Mutex::new(watermark_low),
        })
    }

    /// The policy's settings and the rules.
    pub(crate) fn config(&self) -> (PolicyConfig, Vec<RuleConfig>) {
        (self.policy_config.read().clone(), self.rules_config.read().clone())
    }

    /// Goes by other settings, unless they are the same: what stays keeps what
    /// it learned. `new` is what [`new`](Self::new) made of them.
    pub(crate) fn exchange(&self, new: Self) {
        if *self.policy_config.read() != *new.policy_config.read() {
            *self.policy.write() = new.policy();
            *self.policy_config.write() = new.policy_config.read().clone();
        }
        if *self.rules_config.read() != *new.rules_config.read() {
            *self.rules.write() = new.rules();
            *self.rules_config.write() = new.rules_config.read().clone();
        }
        *self.watermark_low.lock() = *new.watermark_low.lock();
    }

    /// Makes policy and rules anew: the tiers are not those that they were made
    /// for.
    pub(crate) fn renew(&self, tier: impl Fn(&str) -> Option<TierId>) {
        if let Some(policy) = make_policy(&self.policy_config.read(), &tier) {
            *self.policy.write() = policy;
        }
        if let Some(rules) = Rules::make(&self.rules_config.read(), &tier) {
            *self.rules.write() = Arc::new(rules);
        }
    }

    /// Who names a tier that `others`, which finds a tier by its name, does not
    /// find.
    pub(crate) fn names_more_than(&self, others: impl Fn(&str) -> Option<TierId>) -> Option<&'static str> {
        if make_policy(&self.policy_config.read(), &others).is_none() {
            return Some("the policy");
        }
        Rules::make(&self.rules_config.read(), &others).is_none().then_some("a rule of the policy")
    }

    /// Whether the policy puts home before all other tiers.
    pub(crate) fn is_home_first(&self) -> bool {
        self.policy_config.read().home_watermark().is_some()
    }

    /// The policy, and how many rules go before it.
    pub(crate) fn describe(&self) -> String {
        let policy = self.policy().describe();
        match self.rules().len() {
            0 => policy,
            1 => format!("{policy}; 1 rule before it"),
            rules => format!("{policy}; {rules} rules before it"),
        }
    }

    /// Policies see what the tiers did in an epoch.
    pub(crate) fn close_epoch(&self, epoch: &Epoch) {
        self.policy().epoch(epoch);
        self.rules().policies().for_each(|policy| policy.epoch(epoch));
    }
}

impl Placer for Placement {
    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    fn policy(&self) -> Arc<dyn Policy> {
        Arc::clone(&self.policy.read())
    }

    fn spares_home(&self, used: f64) -> bool {
        let low = *self.watermark_low.lock();
        self.policy().spares_home(used, low)
    }
}
