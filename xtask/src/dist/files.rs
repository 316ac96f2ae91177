//! Reading directories, always in the same order.

use braid_tests_support::error::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The entries of a directory, by name.
pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).at(dir)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
