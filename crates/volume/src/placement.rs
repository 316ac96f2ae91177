//! Where new ranges go: the current rules and policy, and their settings.

use braid_contract::TierId;
use braid_core::Placer;
use braid_format::RangeSizes;
use braid_hint::HintConfig;
use braid_placement::{Epoch, Policy, PolicyConfig, RuleConfig, Rules, make_policy};
use parking_lot::RwLock;
use std::sync::Arc;

/// The placement of a volume.
pub(crate) struct Placement(RwLock<CurrentPlacement>);

/// The rules and policy in force.
struct CurrentPlacement {
    policy: Arc<dyn Policy>,
    rules: Arc<Rules>,
    policy_config: PolicyConfig,
    rules_config: Vec<RuleConfig>,
    hints_config: HintConfig,
    /// Movers relieve home until it is filled to this share, 0 to 1.
    watermark_low: f64,
}

impl Placement {
    /// `tier` finds a tier by its name; answers `None` if that fails for a tier
    /// that the policy or a rule names.
    pub(crate) fn new(
        policy_config: PolicyConfig,
        (rules_config, hints_config): (Vec<RuleConfig>, HintConfig),
        watermark_low: f64,
        tier: impl Fn(&str) -> Option<TierId>,
    ) -> Option<Self> {
        let policy = make_policy(&policy_config, &tier)?;
        let rules = Arc::new(Rules::make(&rules_config, &hints_config, &tier)?);
        Some(Self(RwLock::new(CurrentPlacement {
            policy,
            rules,
            policy_config,
            rules_config,
            hints_config,
            watermark_low,
        })))
    }

    /// The policy's settings, the rules and the other settings of streams.
    pub(crate) fn config(&self) -> (PolicyConfig, Vec<RuleConfig>, HintConfig) {
        let now = self.0.read();
        (now.policy_config.clone(), now.rules_config.clone(), now.hints_config.clone())
    }

    /// Switches to `new`, built by [`new`](Self::new), where its settings
    /// differ: an unchanged policy keeps what it learned.
    pub(crate) fn exchange(&self, new: Self) {
        let new = new.0.into_inner();
        let mut now = self.0.write();
        if now.policy_config != new.policy_config {
            (now.policy, now.policy_config) = (new.policy, new.policy_config);
        }
        if (&now.rules_config, &now.hints_config) != (&new.rules_config, &new.hints_config) {
            let generation = now.rules.generation().wrapping_add(1);
            now.rules = Arc::new(Arc::unwrap_or_clone(new.rules).of_generation(generation));
            (now.rules_config, now.hints_config) = (new.rules_config, new.hints_config);
        }
        now.watermark_low = new.watermark_low;
    }

    /// Rebuilds policy and rules for a changed set of tiers.
    pub(crate) fn renew(&self, tier: impl Fn(&str) -> Option<TierId>) {
        let mut now = self.0.write();
        if let Some(policy) = make_policy(&now.policy_config, &tier) {
            now.policy = policy;
        }
        if let Some(rules) = Rules::make(&now.rules_config, &now.hints_config, &tier) {
            // The streams are the same.
            now.rules = Arc::new(rules.of_generation(now.rules.generation()));
        }
    }

    /// The policy or rule, if any, that names a tier unknown to `others`, which
    /// finds tiers by name.
    pub(crate) fn names_more_than(&self, others: impl Fn(&str) -> Option<TierId>) -> Option<&'static str> {
        let now = self.0.read();
        if make_policy(&now.policy_config, &others).is_none() {
            return Some("the policy");
        }
        Rules::make(&now.rules_config, &now.hints_config, &others).is_none().then_some("a rule of the policy")
    }

    /// The policy, and the number of rules before it.
    pub(crate) fn describe(&self) -> String {
        let policy = self.policy().describe();
        match self.rules().len() {
            0 => policy,
            1 => format!("{policy}; 1 rule before it"),
            rules => format!("{policy}; {rules} rules before it"),
        }
    }

    /// How often the policies mapped a thread to another tier; `None` if they
    /// map none.
    pub(crate) fn remaps(&self) -> Option<u64> {
        let of_rules = self.rules().policies().filter_map(|policy| policy.remaps()).reduce(|a, b| a + b);
        let own = self.policy().remaps();
        own.map_or(of_rules, |own| Some(own + of_rules.unwrap_or(0)))
    }

    /// Passes the tiers' figures of an epoch to policies.
    pub(crate) fn close_epoch(&self, epoch: &Epoch) {
        self.policy().epoch(epoch);
        self.rules().policies().for_each(|policy| policy.epoch(epoch));
    }
}

impl Placer for Placement {
    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().rules)
    }

    fn policy(&self) -> Arc<dyn Policy> {
        Arc::clone(&self.0.read().policy)
    }

    fn spares_home(&self, used: f64) -> bool {
        let low = self.0.read().watermark_low;
        self.policy().spares_home(used, low)
    }
}

/// The range sizes that these rules may give files.
pub(crate) fn sizes_of(rules: &[RuleConfig]) -> RangeSizes {
    let mut sizes = RangeSizes::default();
    rules.iter().filter_map(|rule| rule.range_size).for_each(|size| sizes.insert(size));
    sizes
}
