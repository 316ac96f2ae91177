//! Profiles of programs: which of their files belong to which stream.

use crate::glob::Glob;
use braid_contract::{StreamId, WriteLife};
use std::fmt;
use std::sync::OnceLock;

/// A program whose streams are known.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its purpose, in a few words.
    pub about: String,
    /// The programs that it is for, by the names of their processes; all if there
    /// is none.
    pub programs: Vec<Glob>,
    /// The streams; the first that a file matches is its.
    pub streams: Vec<ProfileStream>,
}

/// A stream of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfileStream {
    /// `PROFILE/STREAM`.
    pub name: String,
    /// Its files.
    pub files: Vec<Glob>,
    /// The programs that write them, as for the profile.
    pub programs: Vec<Glob>,
    /// The threads that write them, by name; any if there is none.
    pub threads: Vec<Glob>,
    /// How long its data is expected to live.
    pub life: WriteLife,
}

/// The names of a thread and of its process, as `/proc` has them: 15 bytes at most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    /// Of the process.
    pub program: String,
    /// Of the thread.
    pub thread: String,
}

/// The thread that writes a file, for one classification: its names are looked up once
/// at most, and only if they matter.
pub struct Writer<'a> {
    look_up: &'a (dyn Fn() -> Option<Task> + Sync),
    found: OnceLock<Option<Task>>,
}

impl<'a> Writer<'a> {
    /// A writer whose names `look_up` finds; `None` if they are not known, as of a
    /// thread that has ended.
    pub fn new(look_up: &'a (dyn Fn() -> Option<Task> + Sync)) -> Self {
        Self { look_up, found: OnceLock::new() }
    }

    /// Its names, if they are known.
    pub fn task(&self) -> Option<&Task> {
        self.found.get_or_init(self.look_up).as_ref()
    }

    /// Whether its names were asked for, and are not known: another time, the answer
    /// may be another one.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        matches!(self.found.get(), Some(None))
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.found.get()).finish()
    }
}

/// A file's stream, as found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundStream {
    /// The stream, if it has one.
    pub stream: Option<StreamId>,
    /// Whether everything that matters was known.
    pub is_sure: bool,
}

impl Profile {
    /// The stream of a file.
    pub(crate) fn find(&self, path: &str, writer: &Writer<'_>) -> Option<&ProfileStream> {
        let any = |globs: &[Glob], name: &str| globs.iter().any(|glob| glob.matches(name));
        let by = |globs: &[Glob], name: fn(&Task) -> &str| {
            globs.is_empty() || writer.task().is_some_and(|task| any(globs, name(task)))
        };
        self.streams.iter().find(|stream| {
            any(&stream.files, path)
                && by(&self.programs, |task| &task.program)
                && by(&stream.programs, |task| &task.program)
                && by(&stream.threads, |task| &task.thread)
        })
    }
}
