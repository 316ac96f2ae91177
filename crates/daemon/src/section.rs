//! A group of settings, from a stack file or from a flag: hands out values by
//! key and refuses unknown ones.

use crate::refusal::{Located, Place, Refusal};
use crate::yaml::{Entry, Node, Value};
use braid_contract::units;
use std::collections::VecDeque;

/// A value and the place of its key.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// The keys below one field.
pub(crate) struct Section {
    place: Place,
    fields: VecDeque<Field>,
}

impl Section {
    /// The keys below `field`, which must all be among `known`.
    pub(crate) fn of(field: &Field, known: &[&str]) -> Result<Self, Refusal> {
        let section = Self::open(field)?;
        match section.fields.iter().find(|below| !known.contains(&below.name.as_str())) {
            Some(unknown) => Err(unknown_key(unknown, known)),
            None => Ok(section),
        }
    }

    /// The keys below `field`, unchecked.
    pub(crate) fn open(field: &Field) -> Result<Self, Refusal> {
        let fields = match &field.node.value {
            Value::Null => VecDeque::new(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| Field {
                    name: entry.key.clone(),
                    place: field.place.at_line(entry.line).key(&entry.key),
                    node: entry.node.clone(),
                })
                .collect(),
            Value::Scalar(text) => {
                let found = format!("found '{text}', expected keys below this one");
                return Err(field.place.refuse(found, format!("write it as {}: {{ … }}", field.name)));
            }
            Value::List(_) => {
                return Err(field
                    .place
                    .refuse("found a list, expected keys below this one", "remove the leading '-'"));
            }
        };
        Ok(Self { place: field.place.clone(), fields })
    }

    /// A section of a flag's own `key=value` parts.
    pub(crate) fn from_parts(place: Place, parts: &[(&str, &str)], known: &[&str]) -> Result<Self, Refusal> {
        let mut fields: VecDeque<Field> = VecDeque::new();
        for (key, value) in parts {
            let node = Node::new(Value::Scalar((*value).to_owned()));
            let field = Field { name: (*key).to_owned(), place: place.key(key), node };
            if !known.contains(key) {
                return Err(unknown_key(&field, known));
            }
            if fields.iter().any(|other| other.name == field.name) {
                return Err(field.place.refuse("given twice", "keep one of the two"));
            }
            fields.push_back(field);
        }
        Ok(Self { place, fields })
    }

    /// The place of the section.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Field> {
        let index = self.fields.iter().position(|field| field.name == name)?;
        self.fields.remove(index)
    }

    /// A required key; `example` shows how to write it.
    pub(crate) fn require(&mut self, name: &str, example: &str) -> Result<Field, Refusal> {
        self.take(name).ok_or_else(|| {
            self.place.refuse(format!("the key '{name}' is missing"), format!("add {example}"))
        })
    }

    /// The remaining fields, in the order of the file.
    pub(crate) fn into_fields(self) -> impl Iterator<Item = Field> {
        self.fields.into_iter()
    }

    /// The one key that is among `choices`, and the others as a node of their
    /// own. If there is none, `other` may refuse the last of the others for its
    /// probable meaning.
    pub(crate) fn split_only(
        mut self,
        choices: &[&str],
        other: impl Fn(&Field) -> Option<Refusal>,
    ) -> Result<(Field, Node), Refusal> {
        let is_chosen = |field: &Field| choices.contains(&field.name.as_str());
        let (chosen, others): (VecDeque<Field>, VecDeque<Field>) =
            self.fields.into_iter().partition(is_chosen);
        if let Some(refusal) = others.back().filter(|_| chosen.is_empty()).and_then(other) {
            return Err(refusal);
        }
        let entry =
            |field: Field| Entry { key: field.name, line: field.place.line(), span: None, node: field.node };
        let others = Node::new(Value::Map(others.into_iter().map(entry).collect()));
        self.fields = chosen;
        Ok((self.into_only(choices)?, others))
    }

    /// The only key of a section that must have exactly one; `choices` are the
    /// allowed ones.
    pub(crate) fn into_only(mut self, choices: &[&str]) -> Result<Field, Refusal> {
        let choices = one_of(choices);
        let Some(first) = self.fields.pop_front() else {
            return Err(self
                .place
                .refuse("found nothing below this key", format!("put one of these there: {choices}")));
        };
        match self.fields.pop_front() {
            Some(second) => {
                let found = format!("found '{}' and '{}' where one key belongs", first.name, second.name);
                Err(second.place.refuse(found, format!("keep one of them; it may be {choices}")))
            }
            None => Ok(first),
        }
    }
}

impl Field {
    /// The document itself, as the field without a name.
    pub(crate) fn root(node: Node, file: &Place) -> Self {
        Self { name: String::new(), place: file.at_line(node.line), node }
    }

    /// The field as the key `name` below this one.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), place: self.place.key(name), node: self.node.clone() }
    }

    /// The text of a scalar; `what` describes the expected value.
    pub(crate) fn text(&self, what: &str) -> Result<Located<String>, Refusal> {
        let found = match &self.node.value {
            Value::Scalar(text) if !text.is_empty() => {
                return Ok(Located::new(text.clone(), self.place.clone()));
            }
            Value::Scalar(_) | Value::Null => "found nothing",
            Value::List(_) => "found a list",
            Value::Map(_) => "found keys below this one",
        };
        Err(self
            .place
            .refuse(format!("{found}, expected {what}"), format!("write one value after '{}:'", self.name)))
    }

    /// The items of a list of scalars, each with its own line; `example` shows
    /// how to write it.
    pub(crate) fn items(&self, example: &str) -> Result<Vec<Field>, Refusal> {
        match &self.node.value {
            Value::List(items) => Ok(items
                .iter()
                .map(|item| Field {
                    name: self.name.clone(),
                    place: self.place.at_line(item.line),
                    node: item.clone(),
                })
                .collect()),
            Value::Null => Ok(Vec::new()),
            Value::Scalar(text) => {
                let found = format!("found '{text}', expected a list");
                Err(self.place.refuse(found, format!("write {example}")))
            }
            Value::Map(_) => Err(self
                .place
                .refuse("found keys below this one, expected a list", format!("write {example}"))),
        }
    }

    /// A value parsed by `parse`; its error is the advice.
    pub(crate) fn parse<T>(
        &self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Located<T>, Refusal> {
        let Located { value, place } = self.text(what)?;
        match parse(&value) {
            Ok(parsed) => Ok(Located::new(parsed, place)),
            Err(advice) => Err(place.refuse(format!("found '{value}', expected {what}"), advice)),
        }
    }

    pub(crate) fn size(&self) -> Result<Located<u64>, Refusal> {
        self.parse("a size", units::parse_size)
    }

    pub(crate) fn truth(&self) -> Result<Located<bool>, Refusal> {
        self.parse("yes or no", units::parse_truth)
    }

    /// A whole number within `range`.
    pub(crate) fn count(&self, range: std::ops::RangeInclusive<usize>) -> Result<Located<usize>, Refusal> {
        let advice = format!("write a whole number from {} to {}", range.start(), range.end());
        self.parse("a number", |text| text.parse().ok().filter(|count| range.contains(count)).ok_or(advice))
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".into(),
        [only] => (*only).to_owned(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// Refuses an unknown key, and suggests the probable one.
pub(crate) fn unknown_key(field: &Field, known: &[&str]) -> Refusal {
    let advice = match nearest(&field.name, known) {
        Some(nearest) => format!("did you mean '{nearest}'? The keys here are {}", known.join(", ")),
        None if known.is_empty() => "this takes no keys".into(),
        None => format!("the keys here are {}", known.join(", ")),
    };
    field.place.refuse("unknown key", advice)
}

/// The name that `name` is a likely misspelling of.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    let distances = known.iter().map(|known| (strsim::osa_distance(&lower, known), *known));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    let len = nearest.chars().count();
    (distance <= 1 + len / 4 && distance < len).then_some(nearest)
}
