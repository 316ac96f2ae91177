//! Paths as they are written, and as the daemon finds them.

use std::path::{Path, PathBuf};

/// A directory as the daemon and those who ask it can find it.
pub(crate) fn real(dir: &Path) -> PathBuf {
    let absolute = || std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    std::fs::canonicalize(dir).unwrap_or_else(|_| absolute())
}

/// A directory that is relative to `base` if it is relative.
pub(crate) fn join(base: &Path, dir: &str) -> PathBuf {
    if base.as_os_str().is_empty() { dir.into() } else { base.join(dir) }
}
