//! The programs that suites run beside those of the system: the `braid`
//! command, and test programs that are Rust crates.

use crate::error::{Result, fail};
use crate::paths;
use crate::sh::cmd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A test program that is a crate, at the version that the suites know.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// The name of the crate and of its program.
    pub name: &'static str,
    /// The version.
    pub version: &'static str,
}

/// The POSIX test suite.
pub const PJDFSTEST: Tool = Tool { name: "pjdfstest", version: "0.2.2" };

/// The file-system exerciser.
pub const FSX: Tool = Tool { name: "fsx", version: "0.3.2" };

impl Tool {
    /// Where it is: ours, or one of this version that was installed before.
    pub fn find(self) -> Option<PathBuf> {
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
        let mut places =
            [Some(paths::tools()), home].into_iter().flatten().map(|dir| dir.join("bin").join(self.name));
        let wanted = format!("{} {}", self.name, self.version);
        places.find(|path| {
            path.is_file() && cmd(path).arg("-V").read().is_ok_and(|answer| answer.trim() == wanted)
        })
    }

    /// The same for a suite that can't do without it.
    pub fn path(self) -> Result<PathBuf> {
        match self.find() {
            Some(path) => Ok(path),
            None => {
                fail(format!("{} {} is not installed: `cargo xtask setup` does it", self.name, self.version))
            }
        }
    }
}

/// Builds the `braid` command as users get it, once in a process, so that no
/// suite tests an old one; not if the environment variable `BRAID` names one.
pub fn build_braid() -> Result<()> {
    static BUILT: OnceLock<Result<()>> = OnceLock::new();
    let build = || if std::env::var_os("BRAID").is_some() { Ok(()) } else { release(&["braid-cli"]) };
    BUILT.get_or_init(build).clone()
}

/// Builds the command and the library for applications as users get them, and
/// answers where they are. If the environment variable `BRAID` names a command,
/// they are this and the library that was built beside it.
pub fn build_packaged() -> Result<(PathBuf, PathBuf)> {
    let braid = paths::braid();
    let beside = braid.parent().unwrap_or(Path::new("."));
    if std::env::var_os("BRAID").is_none() {
        // At once: each alone has other features, and compiles all crates again.
        release(&["braid-cli", "braid-client"])?;
    }
    let library = ["libbraid.so", "deps/libbraid.so"].map(|name| beside.join(name));
    match library.into_iter().find(|path| path.is_file()) {
        Some(library) => Ok((braid, library)),
        None => fail(format!("there is no libbraid.so beside {}: build braid-client, too", braid.display())),
    }
}

fn release(packages: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    cmd("cargo").args(["build", "--release", "--locked"]).args(packages).dir(&paths::root()).run()
}
