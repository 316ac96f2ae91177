//! Rules: which files go where, whatever the volume's policy is, as the stack
//! file says. The first whose condition holds counts. `file/place.rs` asks for
//! it before it asks a policy; movers ask whether a file is pinned.
//!
//! `condition` is the language of conditions, `types` refuses those that make
//! no sense, `units` reads sizes and durations in them, `glob` matches paths,
//! `facts` is what they are about, `choose` is how rules and policies decide
//! together.

mod choose;
mod condition;
mod facts;
pub(crate) mod glob;
mod types;
mod units;

use crate::config::RuleConfig;
use crate::placement::{self, Policy};
use braid_contract::TierId;
use braid_format::RangeSize;
pub(crate) use choose::Chosen;
pub use condition::{Condition, ConditionError};
pub(crate) use facts::{Facts, Subject};
use std::sync::Arc;

/// The rules of a volume, in their order.
#[derive(Default)]
pub(crate) struct Rules {
    list: Vec<Arc<Rule>>,
}

/// One rule.
pub(crate) struct Rule {
    /// Its place in the list, from 1 on.
    pub(crate) number: usize,
    pub(crate) when: Condition,
    /// The tiers that it names; the first with room gets the ranges.
    pub(crate) tiers: Vec<String>,
    /// The policy in place of the volume's.
    pub(crate) policy: Option<Arc<dyn Policy>>,
    /// What it places stays there.
    pub(crate) pin: bool,
    /// How long the ranges of a file are that is spread under it.
    pub(crate) range_size: Option<RangeSize>,
}

impl Rules {
    /// `None` if a rule names a tier that `tier` does not know.
    pub(crate) fn make(config: &[RuleConfig], tier: impl Fn(&str) -> Option<TierId>) -> Option<Self> {
        let rule = |(at, rule): (usize, &RuleConfig)| {
            let known = rule.tiers.iter().all(|name| tier(name).is_some());
            let policy = match &rule.policy {
                Some(policy) => Some(placement::make(policy, &tier)?),
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

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The rule that counts for what is asked; `None` if none does.
    pub(crate) fn find(&self, subject: &Subject<'_>) -> Option<Arc<Rule>> {
        self.list.iter().find(|rule| rule.when.holds(subject)).map(Arc::clone)
    }

    /// The shortest ranges that a rule asks for; `None` if none asks for any.
    pub(crate) fn smallest_range(&self) -> Option<RangeSize> {
        self.list.iter().filter_map(|rule| rule.range_size).min()
    }

    /// The policies of the rules.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Arc<dyn Policy>> {
        self.list.iter().filter_map(|rule| rule.policy.as_ref())
    }

    /// Number of rules, for `status`.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}
