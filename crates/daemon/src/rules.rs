//! The rules of a volume, from a stack file: which files go where, whatever the
//! policy is.

use crate::config::Rule;
use crate::refusal::{Located, Refusal};
use crate::section::{Field, Section};
use crate::yaml::Value;
use crate::{policy, values};
use braid_placement::Condition;

/// The keys of a rule.
const KEYS: &[&str] = &["when", "tier", "policy", "pin", "range"];
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
    if tiers.is_empty() && policy.is_none() && range.is_none() && !pin {
        let found = "the rule says nothing of where files go";
        return Err(section.place().refuse(found, "add tier: NAME, policy: NAME, pin: true or range: SIZE"));
    }
    Ok(Rule { when: Located::new(condition, when.place), tiers, policy, pin, range })
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
