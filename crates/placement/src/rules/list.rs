//! The rules of a volume, and finding the one that holds.

use super::condition::Condition;
use super::facts::Subject;
use crate::policy::Policy;
use crate::policy_config::make_policy;
use crate::settings::RuleConfig;
use braid_contract::{StreamId, TierId};
use braid_format::RangeSize;
use std::sync::Arc;

/// The rules of a volume, in their order.
#[derive(Default)]
pub struct Rules {
    list: Vec<Arc<Rule>>,
}

/// One rule.
pub struct Rule {
    /// Its position in the list, from 1 on.
    pub number: usize,
    /// For which files, and when.
    pub when: Condition,
    /// The stream that their data belongs to.
    pub stream: Option<StreamId>,
    /// The tiers that it names; the first with room gets the ranges.
    pub tiers: Vec<String>,
    /// The policy in place of the volume's.
    pub policy: Option<Arc<dyn Policy>>,
    /// Whether its ranges stay in place.
    pub pin: bool,
    /// Range size of a file that is spread under it.
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
                    stream: rule.stream,
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

    /// The rule that holds; `None` if none does.
    pub fn find(&self, subject: &Subject<'_>) -> Option<Arc<Rule>> {
        self.find_with_stream(subject).0
    }

    /// The same, and the stream of the data: from its writer, or else from the
    /// first matching rule with a stream. Later rules see that; those after the
    /// rule that holds are not evaluated.
    pub(super) fn find_with_stream(&self, subject: &Subject<'_>) -> (Option<Arc<Rule>>, Option<StreamId>) {
        let mut subject = *subject;
        for rule in &self.list {
            if !rule.when.holds(&subject) {
                continue;
            }
            let stream = &mut subject.origin.hint.stream;
            *stream = stream.or(rule.stream);
            if rule.decides() {
                return (Some(Arc::clone(rule)), *stream);
            }
        }
        (None, subject.origin.hint.stream)
    }

    /// The stream of a file's data: from its writer, or else from a rule.
    pub fn stream_of(&self, subject: &Subject<'_>) -> Option<StreamId> {
        self.find_with_stream(subject).1
    }

    /// The smallest range size of the rules; `None` if none sets one.
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

impl Rule {
    /// Whether it decides about placement. If not, it only sets a stream.
    fn decides(&self) -> bool {
        !self.tiers.is_empty() || self.policy.is_some() || self.pin || self.range_size.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Facts;
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use braid_contract::Hint;

    struct File(&'static str);

    impl Facts for File {
        fn path(&self) -> &str {
            self.0
        }

        fn owner(&self) -> i64 {
            0
        }

        fn age_ns(&self) -> i64 {
            0
        }
    }

    /// A rule by its condition, stream and tier.
    fn rule(when: &str, stream: Option<u16>, tier: Option<&str>) -> RuleConfig {
        RuleConfig {
            when: Condition::parse(when).unwrap(),
            stream: stream.map(StreamId),
            tiers: tier.map(str::to_owned).into_iter().collect(),
            policy: None,
            pin: false,
            range_size: None,
        }
    }

    /// The number of the rule that holds for a write, and the resulting stream.
    /// The writer may name a stream.
    fn found(rules: &Rules, path: &'static str, writer: Option<u16>) -> (Option<usize>, Option<u16>) {
        let hint = Hint { stream: writer.map(StreamId), group: None };
        let origin = Origin { hint, sync: true, ..Origin::default() };
        let subject = Subject { facts: &File(path), origin, span: WriteSpan::default() };
        let (rule, stream) = rules.find_with_stream(&subject);
        assert_eq!(rules.find(&subject).map(|rule| rule.number), rule.as_ref().map(|rule| rule.number));
        (rule.map(|rule| rule.number), stream.map(|stream| stream.0))
    }

    #[test]
    fn the_first_rule_that_names_a_stream_names_it_for_those_below() {
        let config = [
            rule("stream == 1", None, Some("never")),
            rule("path.matches('*.wal')", Some(1), None),
            rule("sync && stream != 1 || stream == 1 && path.matches('x.*')", Some(2), None),
            rule("stream == 2", None, Some("slow")),
            rule("stream == 1 && path.matches('x.*')", Some(3), Some("fast")),
            rule("stream == 1", None, Some("fast")),
        ];
        let rules = Rules::make(&config, |_| Some(TierId(0))).unwrap();
        assert_eq!(found(&rules, "a.wal", None), (Some(6), Some(1)));
        assert_eq!(found(&rules, "x.wal", None), (Some(5), Some(1)), "the first that names one counts");
        assert_eq!(found(&rules, "a.log", None), (Some(4), Some(2)));
        assert_eq!(found(&rules, "a.log", Some(7)), (None, Some(7)), "the writer knows best");
        assert_eq!(found(&rules, "a.wal", Some(1)), (Some(1), Some(1)));
        assert_ne!(config[1], rule("path.matches('*.wal')", Some(4), None));
    }
}
