//! Choosing the tier of new ranges: by the rules, or else by the policy. The
//! volume and the simulator use this.

use super::facts::Facts;
use super::list::{Rule, Rules};
use crate::context::{Context, Origin, WriteSpan};
use crate::policy::Policy;
use braid_contract::{Hint, TierId};
use braid_format::{Reason, RuleNumber};
use braid_hint::FoundStream;
use std::sync::Arc;

/// The chosen tier, and the policy or rule behind it.
pub struct Chosen {
    /// The tier.
    pub tier: TierId,
    /// The reason, as in an index entry.
    pub reason: Reason,
    /// The policy that holds for the file, even if it was not asked.
    pub policy: Arc<dyn Policy>,
    /// The rule that holds, if any.
    pub rule: Option<Arc<Rule>>,
    /// The stream of the data, if its writer, a rule or a profile named one.
    pub stream: FoundStream,
}

impl Rules {
    /// The tier for new ranges of the file described by `facts`; `policy` is
    /// the volume's, and `tier_of` finds a tier by its name. `None` if no tier
    /// has room.
    pub fn choose(
        &self,
        policy: &Arc<dyn Policy>,
        context: &Context<'_>,
        facts: &dyn Facts,
        tier_of: &dyn Fn(&str) -> Option<TierId>,
    ) -> Option<Chosen> {
        let (rule, stream) = self.find_with_stream(facts, context.origin, context.span);
        let hint = Hint { stream: stream.stream, ..context.origin.hint };
        let context = &Context { origin: Origin { hint, ..context.origin }, ..*context };
        let number = RuleNumber::of(rule.as_deref().map_or(0, |rule| rule.number));
        let own = rule.as_deref().and_then(|rule| rule.policy.as_ref());
        let (policy, wanted) = own.map_or((policy, Reason::Policy), |own| (own, Reason::RulePolicy(number)));
        let named = rule.as_deref().map(|rule| rule.named(tier_of)).unwrap_or_default();
        let has_room = |id: &&TierId| context.tiers.iter().any(|tier| tier.id == **id && tier.has_room);
        let (tier, reason) = match named.iter().find(has_room) {
            Some(tier) => (*tier, Reason::Rule(number)),
            None => {
                let chosen = policy.place(context)?;
                let as_wished = named.is_empty() && wished(policy.as_ref(), context, chosen);
                (chosen, if as_wished { wanted } else { Reason::Spill })
            }
        };
        Some(Chosen { tier, reason, policy: Arc::clone(policy), rule, stream })
    }

    /// Whether a rule sends the file to other tiers than `home` from its first
    /// byte on, however small it is.
    pub fn sends_away(
        &self,
        (facts, origin, span): (&dyn Facts, Origin, WriteSpan),
        home: TierId,
        number: &dyn Fn(&str) -> Option<TierId>,
    ) -> bool {
        let named = self.find(facts, origin, span).map(|rule| rule.named(number)).unwrap_or_default();
        named.first().is_some_and(|tier| *tier != home)
    }
}

/// Whether the policy would choose this tier if all had room.
fn wished(policy: &dyn Policy, context: &Context<'_>, chosen: TierId) -> bool {
    if context.tiers.iter().all(|tier| tier.has_room) {
        return true;
    }
    let mut everywhere = context.tiers.to_vec();
    everywhere.iter_mut().for_each(|tier| tier.has_room = true);
    policy.place(&Context { tiers: &everywhere, ..*context }) == Some(chosen)
}

impl Rule {
    /// The tiers that it names, without unknown ones.
    fn named(&self, number: &dyn Fn(&str) -> Option<TierId>) -> Vec<TierId> {
        self.tiers.iter().filter_map(|name| number(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::condition::Condition;
    use super::super::sample::Sample;
    use super::*;
    use crate::context::WriteSpan;
    use crate::credits::Credits;
    use crate::settings::RuleConfig;
    use crate::sync::Mutex;
    use braid_contract::{Mover, StreamId};
    use braid_hint::HintConfig;

    /// A policy that records the stream of the request.
    #[derive(Default)]
    struct Asked(Mutex<Option<StreamId>>);

    impl Policy for Asked {
        fn usual_movers(&self) -> &'static [Mover] {
            &[]
        }

        fn describe(&self) -> String {
            "asked".into()
        }

        fn place(&self, context: &Context<'_>) -> Option<TierId> {
            *self.0.lock() = context.origin.hint.stream;
            Some(TierId(0))
        }
    }

    #[test]
    fn the_policy_sees_the_stream_that_a_rule_names() {
        let when = Condition::parse("path.matches('*.wal')").unwrap();
        let (stream, id) = (Some("wal".to_owned()), Some(StreamId::named("wal")));
        let config =
            RuleConfig { when, stream, tiers: Vec::new(), policy: None, pin: false, range_size: None };
        let rules = Rules::make(&[config], &HintConfig::default(), |_| None).unwrap();
        let asked = Arc::new(Asked::default());
        let policy: Arc<dyn Policy> = asked.clone();
        let context = Context {
            origin: Origin::default(),
            span: WriteSpan::default(),
            file: 1,
            credits: &Credits::new(1, 1 << 21),
            tiers: &[],
        };
        let chosen = rules.choose(&policy, &context, &Sample("a.wal"), &|_| None).unwrap();
        assert!(chosen.rule.is_none() && chosen.reason == Reason::Policy && chosen.stream.stream == id);
        assert_eq!(*asked.0.lock(), id);
    }
}
