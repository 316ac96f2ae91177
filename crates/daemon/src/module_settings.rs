//! The settings of a module, deserialized into the module's own type. Invalid
//! ones are refused with their line and key.

use crate::refusal::Refusal;
use crate::section::{Field, Section, one_of, unknown_key};
use crate::yaml::Value;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// The general advice.
const ADVICE: &str = "docs/configuration.md has the settings of each module";

/// The reason why settings can't be read.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// An error whose place is not known yet.
    Found(String),
    /// With its place.
    At(Box<Refusal>),
}

impl Unfit {
    /// The refusal; one without a place gets that of `field`.
    pub(crate) fn at(self, field: &Field) -> Refusal {
        match self {
            Self::Found(found) => field.place.refuse(found, ADVICE),
            Self::At(refusal) => *refusal,
        }
    }
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Self {
        Self::At(Box::new(refusal))
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(found) => f.write_str(found),
            Self::At(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for Unfit {}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Found(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Found(format!("the key '{field}' is missing"))
    }
}

/// A field as a deserializer.
pub(crate) struct Settings(pub(crate) Field);

impl Settings {
    /// Reads a nested value; its errors are at this place.
    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unfit> {
        let place = self.0.clone();
        seed.deserialize(self).map_err(|unfit| unfit.at(&place).into())
    }
}

/// The items of a list.
struct Items(std::vec::IntoIter<Field>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Unfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unfit> {
        self.0.next().map(|item| Settings(item).read(seed)).transpose()
    }
}

/// The keys below one.
struct Keys {
    left: std::vec::IntoIter<Field>,
    /// The entry whose value is next.
    current: Option<Field>,
}

impl Keys {
    fn of(fields: Vec<Field>) -> Self {
        Self { left: fields.into_iter(), current: None }
    }
}

impl<'de> MapAccess<'de> for Keys {
    type Error = Unfit;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unfit> {
        self.current = self.left.next();
        let Some(field) = &self.current else { return Ok(None) };
        let name: StrDeserializer<'_, Unfit> = field.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|unfit| unfit.at(field).into())
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unfit> {
        let field = self.current.take().ok_or_else(|| Unfit::Found("a value without a key".into()))?;
        Settings(field).read(seed)
    }
}

/// A stack file's numbers are kept as text.
macro_rules! numbers {
    ($($method:ident: $visit:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
            let advice = "write a number, within its bounds";
            let number = self.0.parse("a number", |text| text.parse().map_err(|_| advice.to_owned()))?;
            visitor.$visit(number.value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Settings {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match &self.0.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Scalar(text) => visitor.visit_str(text),
            Value::List(_) => visitor.visit_seq(Items(self.0.items("")?.into_iter())),
            Value::Map(_) => visitor.visit_map(Keys::of(Section::open(&self.0)?.into_fields().collect())),
        }
    }

    numbers! {
        deserialize_i64: visit_i64, deserialize_u64: visit_u64, deserialize_u32: visit_u32,
        deserialize_f64: visit_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_bool(self.0.truth()?.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.0.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_string(self.0.text("a value")?.value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let items = self.0.items(&format!("{}: [ … ]", self.0.name))?;
        visitor.visit_seq(Items(items.into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        let keys: Vec<Field> = Section::open(&self.0)?.into_fields().collect();
        if let Some(unknown) = keys.iter().find(|key| !known.contains(&key.name.as_str())) {
            return Err(unknown_key(unknown, known).into());
        }
        visitor.visit_map(Keys::of(keys))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        let choices = one_of(variants);
        let text = self.0.parse(&choices, |text| match variants.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("write {choices}")),
        })?;
        visitor.visit_enum(text.value.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 char str bytes byte_buf unit unit_struct tuple tuple_struct map
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Place;
    use crate::yaml;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        names: Vec<String>,
        count: u32,
        share: Option<f64>,
        #[serde(default)]
        strict: bool,
        #[serde(default)]
        kind: Kind,
        inner: Option<Inner>,
    }

    #[derive(Debug, PartialEq, Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        #[default]
        Plain,
        TwoFold,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        low: i64,
    }

    fn read(text: &str) -> Result<Sample, String> {
        let file = Place::file("s.yaml");
        let field = Field::root(yaml::parse(text, &file).unwrap(), &file);
        Sample::deserialize(Settings(field.clone())).map_err(|unfit| unfit.at(&field).to_string())
    }

    #[test]
    fn settings_are_read_by_type() {
        let text = "names: [a, 1]\ncount: 7\nshare: 0.5\nstrict: yes\nkind: two-fold\ninner:\n  low: -1";
        let expected = Sample {
            names: vec!["a".into(), "1".into()],
            count: 7,
            share: Some(0.5),
            strict: true,
            kind: Kind::TwoFold,
            inner: Some(Inner { low: -1 }),
        };
        assert_eq!(read(text), Ok(expected));
        let least = read("names: [ ]\ncount: 0\nshare:").unwrap();
        assert_eq!((least.share, least.kind, least.inner), (None, Kind::Plain, None));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_line_and_key() {
        for (text, says) in [
            ("names: a\ncount: 1", "s.yaml:1: names: found 'a', expected a list\n  help: write names: [ … ]"),
            ("names:\n- a\n- [b]\ncount: 1", "s.yaml:3: names: found a list, expected a value"),
            ("names: []\ncount: many", "s.yaml:2: count: found 'many', expected a number"),
            ("names: []\ncount: -1", "s.yaml:2: count: found '-1', expected a number"),
            ("names: []", "s.yaml:1: the key 'count' is missing"),
            ("names: []\ncuont: 1", "s.yaml:2: cuont: unknown key\n  help: did you mean 'count'?"),
            ("names: []\ncount: 1\nkind: odd", "s.yaml:3: kind: found 'odd', expected plain or two-fold"),
            ("names: []\ncount: 1\nstrict: 3", "s.yaml:3: strict: found '3', expected yes or no"),
            ("names: []\ncount: 1\ninner:\n  lo: 1", "s.yaml:4: inner.lo: unknown key"),
            ("names: []\ncount: 1\ninner:\n  low: x", "s.yaml:4: inner.low: found 'x', expected a number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
