//! The rules of a volume, from a stack file: the destinations of files under
//! any policy.

use crate::config::Rule;
use crate::refusal::{Located, Refusal};
use crate::section::{Field, Section};
use crate::yaml::Value;
use crate::{hints, policy, values};
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
    let stream = section.take("stream").map(|field| hints::stream_name(&field)).transpose()?;
    if tiers.is_empty() && policy.is_none() && range.is_none() && !pin && stream.is_none() {
        let found = "the rule says nothing of where files go";
        let advice = "add tier: NAME, policy: NAME, pin: true, range: SIZE or stream: NAME";
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

#[cfg(test)]
mod tests {
    use crate::config::Rule;
    use crate::stack_file::parse;
    use std::path::Path;

    /// The rules of a stack file with this text; or the reason why it is
    /// refused.
    fn rules(rules: &str) -> Result<Vec<Rule>, String> {
        let text = format!(
            "stack:\n  volume:\n    home: a\n    policy: weighted\n    tiers: {{ a: {{ dir: x }} }}\n    rules:\n{rules}"
        );
        let config = parse(&text, "s.yaml", Path::new("/")).map_err(|refusal| refusal.to_string())?;
        Ok(match config.stack {
            crate::config::StackNode::Volume(volume) => volume.rules,
            _ => Vec::new(),
        })
    }

    #[test]
    fn a_rule_names_the_stream_that_conditions_below_it_see() {
        let read = rules(
            "      - { when: 'path.matches(\"*.wal\") || path.matches(\"*-journal\")', stream: wal }\n      \
             - { when: 'stream == \"wal\" && size < 1GiB', tier: a }\n      \
             - { when: 'stream == \"\"', stream: 7, pin: true }\n      \
             - { when: 'stream == \"rocksdb/wal\"', stream: rocksdb/wal }\n",
        )
        .unwrap();
        let streams: Vec<Option<&str>> =
            read.iter().map(|rule| rule.stream.as_ref().map(|stream| stream.value.as_str())).collect();
        assert_eq!(streams, [Some("wal"), None, Some("7"), Some("rocksdb/wal")]);
    }

    #[test]
    fn what_is_no_stream_is_refused_by_line_and_key() {
        for wrong in ["'a b'", "a/b/c", "a/"] {
            let said = rules(&format!("      - {{ when: sync, stream: {wrong} }}\n")).unwrap_err();
            assert!(said.starts_with("s.yaml:7: stack.volume.rules.1.stream: '"), "{said}");
            assert!(said.contains("is no name\n  help: use up to 64 letters"), "{said}");
        }
        let said = rules("      - { when: 'stream == 7', tier: a }\n").unwrap_err();
        assert!(said.contains("compares a text with a number"), "{said}");
        let said = rules("      - { when: sync, stream: [ 1 ] }\n").unwrap_err();
        assert!(said.contains("s.yaml:7: stack.volume.rules.1.stream: found a list"), "{said}");
        let said = rules("      - { when: sync }\n").unwrap_err();
        assert!(said.contains("range: SIZE or stream: NAME"), "{said}");
    }
}
