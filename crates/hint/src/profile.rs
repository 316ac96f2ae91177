//! Profiles of programs: which of their files belong to which stream.

use crate::glob::Glob;
use braid_contract::WriteLife;

/// A program whose streams are known.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is for, in a few words.
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

impl Profile {
    /// The stream of a file that a thread writes. `task` is asked only if it matters.
    pub(crate) fn find(&self, path: &str, task: &mut dyn FnMut() -> Task) -> Option<&ProfileStream> {
        let any = |globs: &[Glob], name: &str| globs.iter().any(|glob| glob.matches(name));
        self.streams.iter().find(|stream| {
            any(&stream.files, path)
                && (self.programs.is_empty() || any(&self.programs, &task().program))
                && (stream.programs.is_empty() || any(&stream.programs, &task().program))
                && (stream.threads.is_empty() || any(&stream.threads, &task().thread))
        })
    }
}
