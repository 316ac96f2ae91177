//! Where a program works.

use crate::arena::Arena;
use std::path::Path;

/// An empty directory of a volume.
pub(super) struct Place<'a> {
    /// The volume.
    pub(super) arena: &'a Arena,
    /// The directory.
    pub(super) dir: &'a Path,
    /// A measure of work.
    pub(super) scale: u64,
}
