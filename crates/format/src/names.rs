//! The paths of Braid's own files: below one directory at each tier's root.

use braid_contract::ObjectId;
use std::path::{Component, Path};

/// The directory of Braid's own files.
pub const BRAID_DIR: &str = ".braid";

/// The path of an index file, below the directory of indexes.
#[must_use]
pub fn index_path(id: ObjectId) -> String {
    format!("{}/{id}", id.shard())
}

/// Whether a path leads from the root of a volume to a file of its users, by
/// its names alone.
#[must_use]
pub fn is_below_root(path: &str) -> bool {
    let below = Path::new(path);
    let named = below.components().all(|part| matches!(part, Component::Normal(_)));
    named && !below.starts_with(BRAID_DIR) && !path.contains('\0')
}
