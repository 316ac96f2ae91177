//! The source of a configuration, and how it is read.

use crate::yaml::Node;
use braid_stack::Registry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The source of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The stack, as written, or as a file would have the flags.
    pub(crate) root: Node,
    /// The base of its relative directories.
    pub(crate) base: PathBuf,
    /// The stack file, if it is from one.
    pub(crate) file: Option<PathBuf>,
    /// The modules that are not built in.
    pub(crate) registry: Arc<Registry>,
}

/// How a stack file is read.
pub(crate) struct Reading<'a> {
    /// The base of relative paths.
    pub(crate) base: &'a Path,
    /// Whether to read the profile that it names.
    pub(crate) profile: bool,
    /// The modules that are not built in.
    pub(crate) registry: &'a Arc<Registry>,
}
