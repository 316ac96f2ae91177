//! The subject of conditions.

use super::types::Type;
use crate::context::{Origin, WriteSpan};
use braid_hint::{FoundStream, Hints, Task, Writer};
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

    /// The names of a thread and of its process, if they are known.
    fn task(&self, thread: u32) -> Option<Task>;

    /// The stream that a profile knows the file by, or else the one learned of such
    /// files, if it is written from there, by the `hints` of rules of this generation.
    fn profiled(&self, hints: &Hints, _generation: u32, _origin: Origin, writer: &Writer<'_>) -> FoundStream {
        let stream = hints.classify(self.path(), writer);
        FoundStream { stream, is_sure: !writer.is_missed() }
    }
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
    /// The known streams.
    pub hints: &'a Hints,
    /// The generation of the rules.
    pub generation: u32,
    /// The thread of the operation.
    pub writer: &'a Writer<'a>,
}

impl Subject<'_> {
    /// The stream of the data: by its writer or by a rule above, or else by a profile,
    /// or learned.
    pub(super) fn stream(&self) -> FoundStream {
        match self.origin.hint.stream {
            None => self.facts.profiled(self.hints, self.generation, self.origin, self.writer),
            stream => FoundStream { stream, is_sure: true },
        }
    }
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
    ("program", Type::Text),
    ("thread_name", Type::Text),
    ("stream", Type::Text),
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
        let text = |text: String| Some(CowVal::owned(CelString::from(text)));
        let name = |name: fn(&Task) -> &str| text(self.writer.task().map_or("", name).to_owned());
        match variable {
            "path" => Some(CowVal::owned(CelString::from(self.facts.path()))),
            "size" => bytes(self.span.size_after),
            "age" => number(self.facts.age_ns()),
            "owner" => number(self.facts.owner()),
            "uid" => number(self.origin.uid.into()),
            "gid" => number(self.origin.gid.into()),
            "thread" => number(self.origin.thread.into()),
            "program" => name(|task| &task.program),
            "thread_name" => name(|task| &task.thread),
            "stream" => text(self.stream().stream.map_or_else(String::new, |stream| self.hints.name(stream))),
            "offset" => bytes(self.span.offset),
            "length" => bytes(self.span.len),
            "sync" => truth(self.origin.sync),
            "direct" => truth(self.origin.direct),
            "append" => truth(self.span.appends()),
            _ => None,
        }
    }
}
