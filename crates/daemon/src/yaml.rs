//! A YAML document as a tree in which each value knows its line.
//!
//! Settings are not deserialised into structs directly: a struct can't name the
//! line of a key that later turns out to have the wrong directory.

use crate::refusal::{Place, Refusal};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Spanned};
use std::fmt;
use std::ops::Range;

/// A value and the line it begins on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: u64,
    /// Its range in the file, in bytes; `None` if it is not in a file, or is an
    /// alias of a value elsewhere.
    pub(crate) span: Option<Range<usize>>,
    pub(crate) value: Value,
}

impl Node {
    /// A value that is not from a file.
    pub(crate) fn new(value: Value) -> Self {
        Self { line: 0, span: None, value }
    }

    /// The value in JSON, with numbers and truth values as such.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Scalar(text) => match serde_json::from_str(text) {
                Ok(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => value,
                _ => text.as_str().into(),
            },
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Text, or a number or truth value as text.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: u64,
    /// The range of the key.
    pub(crate) span: Option<Range<usize>>,
    pub(crate) node: Node,
}

/// Parses the document `text` of the file at `file`.
pub(crate) fn parse(text: &str, file: &Place) -> Result<Node, Refusal> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        reject_non_finite_typeless_float: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(raw) => Ok(resolve(raw, text)),
        Err(error) => Err(refuse(&error, file)),
    }
}

fn refuse(error: &Error, file: &Place) -> Refusal {
    let place = error.location().map_or_else(|| file.clone(), |location| file.at_line(location.line()));
    match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            place.refuse(format!("the key '{key}' appears twice in the same place"), "keep one of the two")
        }
        Error::MultipleDocuments { .. } => place.refuse(
            "a second document begins here ('---')",
            "a stack file holds one stack; use a file for each",
        ),
        error => {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            place.refuse(
                format!("not valid YAML: {message}"),
                "correct the syntax; values with special characters need quotes",
            )
        }
    }
}

/// The output of the deserializer, before numbers get their text back.
enum Raw {
    Null,
    Number(String),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

/// The range of a value, in bytes.
fn bytes_of(span: serde_saphyr::Span) -> Option<Range<usize>> {
    let start = usize::try_from(span.byte_offset()?).ok()?;
    Some(start..start.checked_add(usize::try_from(span.byte_len()?).ok()?)?)
}

fn resolve(raw: Spanned<Raw>, text: &str) -> Node {
    let is_here = raw.referenced == raw.defined;
    let span = bytes_of(raw.defined.span()).filter(|_| is_here);
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Text(text) => Value::Scalar(text),
        Raw::Number(number) => {
            // An alias is defined elsewhere: its text is the one there.
            let written = bytes_of(raw.defined.span()).and_then(|span| text.get(span));
            Value::Scalar(written.map_or(number, str::to_owned))
        }
        Raw::List(items) => Value::List(items.into_iter().map(|item| resolve(item, text)).collect()),
        Raw::Map(entries) => {
            let entry = |(key, value): (Spanned<String>, Spanned<Raw>)| Entry {
                line: key.referenced.line(),
                span: bytes_of(key.referenced.span()),
                key: key.value,
                node: resolve(value, text),
            };
            Value::Map(entries.into_iter().map(entry).collect())
        }
    };
    Node { line: raw.referenced.line(), span, value }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Raw, E> {
        Ok(Raw::Text(String::from_utf8_lossy(value).into_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
