//! Where a configuration is from, and how it is read.

use crate::yaml::Node;
use std::path::{Path, PathBuf};

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The stack, as it was written, or as flags would be.
    pub(crate) root: Node,
    /// What its directories are relative to.
    pub(crate) base: PathBuf,
    /// The stack file, if it is from one.
    pub(crate) file: Option<PathBuf>,
}

/// How a stack file is read.
pub(crate) struct Reading<'a> {
    /// What relative paths are relative to.
    pub(crate) base: &'a Path,
    /// Whether the profile that it names is read too.
    pub(crate) profile: bool,
}
