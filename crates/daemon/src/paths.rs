//! Paths as written, and as the daemon finds them.

use std::path::{Path, PathBuf};

/// The absolute path of a directory, for the daemon and its clients.
pub(crate) fn real(dir: &Path) -> PathBuf {
    let absolute = || std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    std::fs::canonicalize(dir).unwrap_or_else(|_| absolute())
}

/// A directory; if relative, relative to `base`.
pub(crate) fn join(base: &Path, dir: &str) -> PathBuf {
    if base.as_os_str().is_empty() { dir.into() } else { base.join(dir) }
}
