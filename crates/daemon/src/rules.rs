//! The rules of a volume, from a stack file: the destinations of files,
//! whatever the policy.

use crate::config::Rule;
use crate::refusal::{Located, Refusal};
use crate::section::{Field, Section};
use crate::yaml::Value;
use crate::{policy, values};
use braid_contract::StreamId;
use braid_placement::Condition;

/// The keys of a rule.
const KEYS: &[&str] = &["when", "tier", "policy", "pin", "range", "stream"];
const EXAMPLE: &str = "rules: [ { when: 'path.matches(\"*.wal\")', tier: fast } ]";

/// `rules: [ { when: CONDITION, … }, … ]`
pub(crate) fn from_file(field: &Field) -> Result<Vec<Rule>, Refusal> {
    let numbered = field.items(EXAMPLE)?.into_iter().enumerate();
    numbered.map(|(at, item)| rule(&item.named(&format!("{}", at + 1)))).collect()
}

fn rule(field: &Field) -> Result<Rule, Refusal> {
    let mut section = Section::of(field, KEYS)?;
    let when = section.require("when", "when: a condition, such as 'path.matches(\"*.wal\")'")?;
    let when = when.text("a condition in quotes")?;
    let condition = Condition::parse(&when.value)
        .map_err(|error| when.place.refuse(format!("{}: {}", when.value, error.found), error.advice))?;
    let tiers = section.take("tier").map(|field| tiers(&field)).transpose()?.unwrap_or_default();
    let policy = section.take("policy").map(|field| policy::from_node(&field)).transpose()?;
    let pin = section.take("pin").map(|field| field.truth()).transpose()?.is_some_and(|pin| pin.value);
    let range = section.take("range").map(|field| values::range(&field)).transpose()?;
    let stream = section.take("stream").map(|field| stream(&field)).transpose()?;
    if tiers.is_empty() && policy.is_none() && range.is_none() && !pin && stream.is_none() {
        let found = "the rule says nothing of where files go";
        let advice = "add tier: NAME, policy: NAME, pin: true, range: SIZE or stream: NUMBER";
        return Err(section.place().refuse(found, advice));
    }
    Ok(Rule { when: Located::new(condition, when.place), tiers, policy, pin, range, stream })
}

/// A name, or a list of names.
fn tiers(field: &Field) -> Result<Vec<Located<String>>, Refusal> {
    let name = |field: &Field| field.text("the name of a tier");
    match &field.node.value {
        Value::List(items) if items.is_empty() => {
            Err(field.place.refuse("the list is empty", "name at least one tier"))
        }
        Value::List(_) => field.items("tier: [ fast, slow ]")?.iter().map(name).collect(),
        _ => Ok(vec![name(field)?]),
    }
}

/// The number of a stream.
fn stream(field: &Field) -> Result<Located<StreamId>, Refusal> {
    field.parse("the number of a stream", |text| {
        let number = text.parse().map(StreamId);
        number.map_err(|_| format!("write a whole number from 0 to {}", u16::MAX))
    })
}

#[cfg(test)]
mod tests {
    use crate::config::Rule;
    use crate::stack_file::parse;
    use braid_contract::{StreamId, TierId};
    use braid_placement::{Facts, Origin, Rules, Subject, WriteSpan};
    use std::path::Path;

    /// The rules of a stack file with this text; or why it is refused.
    fn rules(rules: &str) -> Result<Vec<Rule>, String> {
        let text = format!(
            "stack:\n  volume:\n    home: a\n    policy: weighted\n    tiers: {{ a: {{ dir: x }} }}\n    rules:\n{rules}"
        );
        let config = parse(&text, "s.yaml", Path::new("/")).map_err(|refusal| refusal.to_string())?;
        Ok(match config.stack {
            crate::config::StackNode::Volume(volume) => volume.rules,
            crate::config::StackNode::Wrapper { .. } => Vec::new(),
        })
    }

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

    #[test]
    fn a_rule_names_the_stream_that_conditions_below_it_see() {
        let read = rules(
            "      - { when: 'path.matches(\"*.wal\") || path.matches(\"*-journal\")', stream: 7 }\n      \
             - { when: 'stream == 7 && size < 1GiB', tier: a }\n      \
             - { when: 'stream == -1', stream: 65535, pin: true }\n",
        )
        .unwrap();
        let streams: Vec<Option<StreamId>> =
            read.iter().map(|rule| rule.stream.as_ref().map(|stream| stream.value)).collect();
        assert_eq!(streams, [Some(StreamId(7)), None, Some(StreamId(65535))]);
        let config: Vec<_> = read.iter().map(Rule::config).collect();
        let made = Rules::make(&config, |_| Some(TierId(0))).unwrap();
        let counts = |path| {
            let subject =
                Subject { facts: &File(path), origin: Origin::default(), span: WriteSpan::default() };
            made.find(&subject).map(|rule| rule.number)
        };
        assert_eq!(["db/x.wal", "x-journal", "x"].map(counts), [Some(2), Some(2), Some(3)]);
    }

    #[test]
    fn what_is_no_stream_is_refused_by_line_and_key() {
        for wrong in ["-1", "65536", "wal", "1.5"] {
            let said = rules(&format!("      - {{ when: sync, stream: {wrong} }}\n")).unwrap_err();
            let expected = format!(
                "s.yaml:7: stack.volume.rules.1.stream: found '{wrong}', expected the number of a stream\n  \
                 help: write a whole number from 0 to 65535"
            );
            assert_eq!(said, expected);
        }
        let said = rules("      - { when: sync, stream: [ 1 ] }\n").unwrap_err();
        assert!(said.contains("s.yaml:7: stack.volume.rules.1.stream: found a list"), "{said}");
        let said = rules("      - { when: sync }\n").unwrap_err();
        assert!(said.contains("range: SIZE or stream: NUMBER"), "{said}");
    }
}
