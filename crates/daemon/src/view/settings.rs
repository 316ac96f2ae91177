//! The settings of a view at the bottom of a stack.

use crate::paths::join;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use std::path::{Path, PathBuf};

/// The place that a view shows.
#[derive(Debug)]
pub struct ViewSettings {
    /// The place of its settings.
    pub place: Place,
    /// A mount point of Braid, or a directory in one.
    pub of: Located<PathBuf>,
}

impl ViewSettings {
    /// Reads them from a stack file; relative paths begin at `base`.
    pub(crate) fn from_file(field: &Field, base: &Path) -> Result<Self, Refusal> {
        let mut section = Section::of(field, &["of"])?;
        let of = section.require("of", "of: /mnt/all")?.text("a directory of a mounted Braid file system")?;
        let of = Located::new(join(base, &of.value), of.place);
        Ok(Self { place: field.place.clone(), of })
    }
}
