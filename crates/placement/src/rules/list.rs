//! The rules of a volume, and finding the one that holds.

use super::condition::Condition;
use super::facts::{Facts, Subject};
use crate::context::{Origin, WriteSpan};
use crate::policy::Policy;
use crate::policy_config::make_policy;
use crate::settings::RuleConfig;
use braid_contract::{StreamId, TierId};
use braid_format::RangeSize;
use braid_hint::{FoundStream, HintConfig, Hints, Writer};
use std::sync::Arc;

/// The rules of a volume, in their order.
#[derive(Clone, Default)]
pub struct Rules {
    list: Vec<Arc<Rule>>,
    hints: Hints,
    generation: u32,
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
    /// The rules, and the other settings of streams. `None` if a rule names a tier
    /// that `tier` does not know.
    pub fn make(
        config: &[RuleConfig],
        hints: &HintConfig,
        tier: impl Fn(&str) -> Option<TierId>,
    ) -> Option<Self> {
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
                    stream: rule.stream.as_deref().map(StreamId::named),
                    tiers,
                    policy,
                    pin: rule.pin,
                    range_size: rule.range_size,
                })
            })
        };
        let hints = Hints::new(config.iter().filter_map(|rule| rule.stream.as_deref()), hints);
        Some(Self { list: config.iter().enumerate().map(rule).collect::<Option<_>>()?, hints, generation: 0 })
    }

    /// These, as the rules of this generation.
    #[must_use]
    pub fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Which of a volume's rules these are: others have another number, and streams
    /// found by them do not count any more.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The known streams.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The rule that holds; `None` if none does.
    pub fn find(&self, facts: &dyn Facts, origin: Origin, span: WriteSpan) -> Option<Arc<Rule>> {
        self.find_with_stream(facts, origin, span).0
    }

    /// The same, and the stream of the data: from its writer, or else from the
    /// first matching rule with a stream, or else from a profile. Later rules see that;
    /// those after the rule that holds are not evaluated.
    pub(super) fn find_with_stream(
        &self,
        facts: &dyn Facts,
        origin: Origin,
        span: WriteSpan,
    ) -> (Option<Arc<Rule>>, FoundStream) {
        let look_up = || facts.task(origin.thread);
        let (writer, generation) = (&Writer::new(&look_up), self.generation);
        let mut subject = Subject { facts, origin, span, hints: &self.hints, generation, writer };
        // A rule may have asked for the writer too.
        let found = |subject: &Subject<'_>| {
            let found = subject.stream();
            FoundStream { is_sure: found.is_sure && !writer.is_missed(), ..found }
        };
        for rule in &self.list {
            if !rule.when.holds(&subject) {
                continue;
            }
            let stream = &mut subject.origin.hint.stream;
            *stream = stream.or(rule.stream);
            if rule.decides() {
                return (Some(Arc::clone(rule)), found(&subject));
            }
        }
        (None, found(&subject))
    }

    /// The stream of a file's data: from its writer, or else from a rule or a profile.
    pub fn stream_of(&self, facts: &dyn Facts, origin: Origin, span: WriteSpan) -> FoundStream {
        self.find_with_stream(facts, origin, span).1
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
    use super::super::sample::Sample;
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use braid_contract::{Hint, WriteLife};
    use braid_hint::{Glob, Profile, ProfileStream, Task};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A rule by its condition, stream and tier.
    fn rule(when: &str, stream: Option<&str>, tier: Option<&str>) -> RuleConfig {
        RuleConfig {
            when: Condition::parse(when).unwrap(),
            stream: stream.map(str::to_owned),
            tiers: tier.map(str::to_owned).into_iter().collect(),
            policy: None,
            pin: false,
            range_size: None,
        }
    }

    /// The number of the rule that holds for a write, and the resulting stream.
    /// The writer may name a stream.
    fn found(rules: &Rules, path: &'static str, writer: Option<&str>) -> (Option<usize>, Option<String>) {
        let hint = Hint { stream: writer.map(StreamId::named), ..Hint::default() };
        let origin = Origin { hint, sync: true, ..Origin::default() };
        let (facts, span) = (Sample(path), WriteSpan::default());
        let (rule, stream) = rules.find_with_stream(&facts, origin, span);
        let alone = rules.find(&facts, origin, span);
        assert_eq!(alone.map(|rule| rule.number), rule.as_ref().map(|rule| rule.number));
        (rule.map(|rule| rule.number), stream.stream.map(|stream| rules.hints().name(stream)))
    }

    fn is(number: Option<usize>, stream: &str) -> (Option<usize>, Option<String>) {
        (number, Some(stream.to_owned()))
    }

    #[test]
    fn the_first_rule_that_names_a_stream_names_it_for_those_below() {
        let config = [
            rule("stream == 'a'", None, Some("never")),
            rule("path.matches('*.wal')", Some("a"), None),
            rule("sync && stream != 'a' || stream == 'a' && path.matches('x.*')", Some("b"), None),
            rule("stream == 'b'", None, Some("slow")),
            rule("stream == 'a' && path.matches('x.*')", Some("c"), Some("fast")),
            rule("stream == 'a'", None, Some("fast")),
        ];
        let rules = Rules::make(&config, &HintConfig::default(), |_| Some(TierId(0))).unwrap();
        assert_eq!(found(&rules, "a.wal", None), is(Some(6), "a"));
        assert_eq!(found(&rules, "x.wal", None), is(Some(5), "a"), "the first that names one counts");
        assert_eq!(found(&rules, "a.log", None), is(Some(4), "b"));
        assert_eq!(found(&rules, "a.log", Some("c")), is(None, "c"), "the writer knows best");
        assert_eq!(found(&rules, "a.wal", Some("a")), is(Some(1), "a"));
        assert_ne!(config[1], rule("path.matches('*.wal')", Some("d"), None));
    }

    #[test]
    fn a_rule_comes_before_a_profile_and_sees_what_that_says() {
        let stream = |name: &str, pattern: &str| ProfileStream {
            name: format!("db/{name}"),
            files: vec![Glob::new(pattern).unwrap()],
            programs: Vec::new(),
            threads: Vec::new(),
            life: WriteLife::Short,
        };
        let streams = vec![stream("wal", "*.wal"), stream("tables", "*.sst")];
        let profile = Profile { name: "db".to_owned(), about: String::new(), programs: Vec::new(), streams };
        let hints = HintConfig { on: true, profiles: vec![Arc::new(profile)], ..HintConfig::default() };
        let config = [
            rule("path.startsWith('own/')", Some("own"), None),
            rule("stream == 'db/wal'", None, Some("fast")),
        ];
        let rules = Rules::make(&config, &hints, |_| Some(TierId(0))).unwrap();
        assert_eq!(found(&rules, "x/1.wal", None), is(Some(2), "db/wal"));
        assert_eq!(found(&rules, "x/1.sst", None), is(None, "db/tables"));
        assert_eq!(found(&rules, "own/1.wal", None), is(None, "own"));
        assert_eq!(found(&rules, "x/1.txt", None), (None, None));
        let off = HintConfig { on: false, ..hints };
        let rules = Rules::make(&config, &off, |_| Some(TierId(0))).unwrap();
        assert_eq!(found(&rules, "x/1.wal", None), (None, None));
        assert_eq!(found(&rules, "own/1.wal", None), is(None, "own"));
    }

    #[test]
    fn a_writer_is_looked_up_once_for_all_that_ask() {
        #[derive(Default)]
        struct Asked(AtomicU32);
        impl Facts for Asked {
            fn path(&self) -> &str {
                "x.wal"
            }

            fn owner(&self) -> i64 {
                0
            }

            fn age_ns(&self) -> i64 {
                0
            }

            fn task(&self, thread: u32) -> Option<Task> {
                self.0.fetch_add(1, Ordering::Relaxed);
                (thread != 0).then(Task::default)
            }
        }
        let stream = ProfileStream {
            name: "db/wal".to_owned(),
            files: vec![Glob::new("*.wal").unwrap()],
            programs: vec![Glob::new("db").unwrap()],
            threads: Vec::new(),
            life: WriteLife::Short,
        };
        let profile = Profile {
            name: "db".to_owned(),
            about: String::new(),
            programs: Vec::new(),
            streams: vec![stream],
        };
        let hints = HintConfig { on: true, profiles: vec![Arc::new(profile)], ..HintConfig::default() };
        let conditions = ["program == 'a'", "thread_name == 'b'", "program == 'c' || stream == 'd'"];
        let rules =
            Rules::make(&conditions.map(|when| rule(when, None, Some("fast"))), &hints, |_| Some(TierId(0)));
        for thread in [1, 0] {
            let asked = Asked::default();
            let origin = Origin { thread, ..Origin::default() };
            let found = rules.as_ref().unwrap().stream_of(&asked, origin, WriteSpan::default());
            assert_eq!(found, FoundStream { stream: None, is_sure: thread != 0 });
            assert_eq!(asked.0.load(Ordering::Relaxed), 1);
        }
    }
}
