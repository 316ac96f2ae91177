//! The refusal of a setting: its place, the finding, and advice.

use braid_contract::{Errno, Shown};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The place of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    source: Source,
    key: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File { name: Arc<str>, line: u64 },
    Flag(Arc<str>),
}

impl Place {
    /// The stack file `name` as a whole.
    #[must_use]
    pub fn file(name: &str) -> Self {
        Self { source: Source::File { name: name.into(), line: 0 }, key: String::new() }
    }

    /// A flag or argument of the command, as written.
    #[must_use]
    pub fn flag(text: impl AsRef<str>) -> Self {
        Self { source: Source::Flag(text.as_ref().into()), key: String::new() }
    }

    /// The same source, at `line` if it is a file.
    #[must_use]
    pub fn at_line(&self, line: u64) -> Self {
        let source = match &self.source {
            Source::File { name, .. } => Source::File { name: name.clone(), line },
            Source::Flag(text) => Source::Flag(text.clone()),
        };
        Self { source, key: self.key.clone() }
    }

    /// The line; 0 without one.
    pub(crate) fn line(&self) -> u64 {
        match self.source {
            Source::File { line, .. } => line,
            Source::Flag(_) => 0,
        }
    }

    /// The same source as a whole.
    pub(crate) fn whole_file(&self) -> Self {
        Self { key: String::new(), ..self.at_line(0) }
    }

    /// The key `name` below this one.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        Self { source: self.source.clone(), key }
    }

    /// The same, with a file path that holds in any working directory.
    pub(crate) fn absolute(&self) -> Self {
        let source = match &self.source {
            Source::File { name, line } => {
                let path = std::path::absolute(&**name).map(|path| path.to_string_lossy().into_owned());
                Source::File { name: path.map_or_else(|_| Arc::clone(name), Arc::from), line: *line }
            }
            Source::Flag(text) => Source::Flag(Arc::clone(text)),
        };
        Self { source, key: self.key.clone() }
    }

    /// Advice to set the directory `dir` here, in place of the written one.
    pub(crate) fn instead(&self, written: &Path, dir: &Path) -> String {
        match &self.source {
            Source::File { .. } => format!("{self}: {}", dir.shown()),
            Source::Flag(text) => {
                let now = format!("={}", dir.to_string_lossy());
                format!(
                    "{} in place of {text}",
                    text.replacen(&format!("={}", written.to_string_lossy()), &now, 1)
                )
            }
        }
    }

    /// Refuses the setting at this place.
    #[must_use]
    pub fn refuse(&self, found: impl Into<String>, advice: impl Into<String>) -> Refusal {
        Refusal { place: self.clone(), found: found.into(), advice: advice.into(), errno: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::File { name, line: 0 } => write!(f, "{}", name.shown())?,
            Source::File { name, line } => write!(f, "{}:{line}", name.shown())?,
            Source::Flag(text) => write!(f, "{}", text.shown())?,
        }
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key.shown()) }
    }
}

/// The reason why a configuration is refused. Nothing was created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The place of the setting.
    pub place: Place,
    /// The finding.
    pub found: String,
    /// The advice.
    pub advice: String,
    /// The number of the error that it is about, for programs.
    pub errno: Option<Errno>,
}

impl Refusal {
    /// The same about an error.
    #[must_use]
    pub fn about(self, errno: Errno) -> Self {
        Self { errno: Some(errno), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  help: {}", self.place, self.found, self.advice)
    }
}

impl std::error::Error for Refusal {}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub place: Place,
}

impl<T> Located<T> {
    /// Joins the two.
    pub fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
