//! The subject of conditions.

use super::types::Type;
use crate::context::{Origin, WriteSpan};
use cel::common::types::{CelBool, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;

/// Facts of a file that are looked up only when a condition uses them.
pub trait Facts: Send + Sync {
    /// Its path below the volume's root; empty if it has none any more.
    fn path(&self) -> &str;

    /// The user who owns it.
    fn owner(&self) -> i64;

    /// Its age since creation, in nanoseconds.
    fn age_ns(&self) -> i64;
}

/// A file, and the operation about to happen.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The file.
    pub facts: &'a dyn Facts,
    /// The origin of the operation.
    pub origin: Origin,
    /// The part of the file.
    pub span: WriteSpan,
}

/// The variables of a condition and their types.
pub(super) const VARIABLES: &[(&str, Type)] = &[
    ("path", Type::Text),
    ("size", Type::Number),
    ("age", Type::Duration),
    ("owner", Type::Number),
    ("uid", Type::Number),
    ("gid", Type::Number),
    ("thread", Type::Number),
    ("stream", Type::Number),
    ("offset", Type::Number),
    ("length", Type::Number),
    ("sync", Type::Truth),
    ("direct", Type::Truth),
    ("append", Type::Truth),
];

/// The variables, for messages.
pub(super) fn variable_names() -> String {
    VARIABLES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl VariableResolver for Subject<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let number = |number: i64| Some(CowVal::owned(CelInt::from(number)));
        let bytes = |bytes: u64| number(bytes.try_into().unwrap_or(i64::MAX));
        let truth = |truth: bool| Some(CowVal::owned(CelBool::from(truth)));
        match variable {
            "path" => Some(CowVal::owned(CelString::from(self.facts.path()))),
            "size" => bytes(self.span.size_after),
            "age" => number(self.facts.age_ns()),
            "owner" => number(self.facts.owner()),
            "uid" => number(self.origin.uid.into()),
            "gid" => number(self.origin.gid.into()),
            "thread" => number(self.origin.thread.into()),
            "stream" => number(self.origin.hint.stream.map_or(-1, |stream| stream.0.into())),
            "offset" => bytes(self.span.offset),
            "length" => bytes(self.span.len),
            "sync" => truth(self.origin.sync),
            "direct" => truth(self.origin.direct),
            "append" => truth(self.span.appends()),
            _ => None,
        }
    }
}
