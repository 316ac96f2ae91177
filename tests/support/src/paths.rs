//! Paths: of the working tree, of build results, and of the tools.

use std::path::{Path, PathBuf};

/// The root of the working tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The `braid` command that suites use: the release build, or the path in the
/// environment variable `BRAID`.
pub fn braid() -> PathBuf {
    std::env::var_os("BRAID").map_or_else(|| target().join("release/braid"), PathBuf::from)
}

/// A program of ours as it is built with the tests.
pub fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Where tools are installed, so that nothing outside the tree is touched.
pub fn tools() -> PathBuf {
    target().join("tools")
}
