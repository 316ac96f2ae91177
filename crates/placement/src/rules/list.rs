//! The rules of a volume, and the one that counts.

use super::condition::Condition;
use super::facts::Subject;
use crate::policy::Policy;
use crate::policy_config::make_policy;
use crate::settings::RuleConfig;
use braid_contract::TierId;
use braid_format::RangeSize;
use std::sync::Arc;

/// The rules of a volume, in their order.
#[derive(Default)]
pub struct Rules {
    list: Vec<Arc<Rule>>,
}

/// One rule.
pub struct Rule {
    /// Its place in the list, from 1 on.
    pub number: usize,
    /// For which files, and when.
    pub when: Condition,
    /// The tiers that it names; the first with room gets the ranges.
    pub tiers: Vec<String>,
    /// The policy in place of the volume's.
    pub policy: Option<Arc<dyn Policy>>,
    /// What it places stays there.
    pub pin: bool,
    /// How long the ranges of a file are that is spread under it.
    pub range_size: Option<RangeSize>,
}

impl Rules {
    /// `None` if a rule names a tier that `tier` does not know.
    pub fn make(config: &[RuleConfig], tier: impl Fn(&str) -> Option<TierId>) -> Option<Self> {
        let rule = |(at, rule): (usize, &RuleConfig)| {
            let known = rule.tiers.iter().all(|name| tier(name).is_some());
            let policy = match &rule.policy {
                Some(policy) => Some(make_policy(policy, &tier)?),
                None => None,
            };
            known.then(|| {
                let (when, tiers) = (rule.when.clone(), rule.tiers.clone());
                Arc::new(Rule {
                    number: at + 1,
                    when,
                    tiers,
                    policy,
                    pin: rule.pin,
                    range_size: rule.range_size,
                })
            })
        };
        Some(Self { list: config.iter().enumerate().map(rule).collect::<Option<_>>()? })
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The rule that counts for what is asked; `None` if none does.
    pub fn find(&self, subject: &Subject<'_>) -> Option<Arc<Rule>> {
        self.list.iter().find(|rule| rule.when.holds(subject)).map(Arc::clone)
    }

    /// The shortest ranges that a rule asks for; `None` if none asks for any.
    pub fn smallest_range(&self) -> Option<RangeSize> {
        self.list.iter().filter_map(|rule| rule.range_size).min()
    }

    /// The policies of the rules.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<dyn Policy>> {
        self.list.iter().filter_map(|rule| rule.policy.as_ref())
    }

    /// Number of rules, for `status`.
    pub fn len(&self) -> usize {
        self.list.len()
    }
}
