//! How a mount was begun.

use crate::config::Config;
use crate::refusal::{Place, Refusal};
use crate::running::Running;
use crate::{stack_file, stack_text};
use braid_stack::Registry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a mount was begun, for a process that takes it over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    words: Vec<Vec<u8>>,
    /// The log, if it is not the standard error.
    pub log_file: Option<PathBuf>,
    /// Nothing waits for the process that serves the mount.
    pub detached: bool,
    /// The present stack, as a stack file.
    stack: String,
    /// The base of its relative paths, and the file that it came from.
    base: PathBuf,
    file: Option<PathBuf>,
    /// The files of the modules in force that are not built in.
    #[serde(default)]
    modules: BTreeMap<String, PathBuf>,
    /// Where it is mounted, absolute.
    pub mountpoint: PathBuf,
}

impl Launch {
    /// A mount by these words of the command line.
    #[must_use]
    pub fn by(words: &[OsString], log_file: Option<PathBuf>, detached: bool) -> Self {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Self { words, log_file, detached, ..Self::default() }
    }

    /// The words of the command line.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.words.iter().cloned().map(OsString::from_vec).collect()
    }

    /// The same with the present stack.
    pub(crate) fn of(&self, running: &Running, mountpoint: &Path) -> Self {
        Self {
            stack: stack_text::write(&running.stack()),
            base: running.base().to_owned(),
            file: running.file().map(Path::to_owned),
            modules: running.registry().files(),
            mountpoint: mountpoint.to_owned(),
            ..self.clone()
        }
    }

    /// The configuration of the present stack.
    ///
    /// # Errors
    /// The part of it that this program does not understand.
    pub fn stack(&self) -> Result<Config, Refusal> {
        let name = self.file.as_ref().map_or("the mounted stack".into(), |file| file.to_string_lossy());
        let registry = Registry::of_files(&self.modules);
        let registry = registry.map_err(|why| Place::file(&name).refuse(why, "put its file back"))?;
        let mut config = stack_file::parse_with(&self.stack, &name, &self.base, &Arc::new(registry))?;
        config.source.file.clone_from(&self.file);
        Ok(config)
    }
}
