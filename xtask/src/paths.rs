//! Where things are: the working tree, what was built, and the tools.

use crate::sh::cmd;
use std::path::{Path, PathBuf};

/// The root of the working tree.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where Cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The `braid` command that suites use: the release build, or what the
/// environment variable `BRAID` names.
pub(crate) fn braid() -> PathBuf {
    std::env::var_os("BRAID").map_or_else(|| target().join("release/braid"), PathBuf::from)
}

/// A program of ours as it is built with the tests.
pub(crate) fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Where tools are installed, so that nothing outside the tree is touched.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// A tool of exactly this version, ours or one that is installed already.
pub(crate) fn tool(name: &str, version: &str) -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let places = [Some(tools()), home].into_iter().flatten().map(|dir| dir.join("bin").join(name));
    let wanted = format!("{name} {version}");
    places
        .into_iter()
        .find(|path| path.is_file() && cmd(path).arg("-V").read().is_ok_and(|answer| answer.trim() == wanted))
}
