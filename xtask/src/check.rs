//! `cargo xtask check`: the one gate, the same for a change and for CI.

use crate::error::Result;
use crate::sh::cmd;
use crate::{paths, test, tidy};

/// Format, lints, house rules, dependency policy; then all tests.
pub(crate) fn run(options: &test::Options) -> Result<()> {
    step("format", &["fmt", "--all", "--check"])?;
    step(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    )?;
    println!("== tidy");
    tidy::run()?;
    dependency_policy()?;
    test::run(options)
}

fn step(name: &str, args: &[&str]) -> Result<()> {
    println!("== {name}");
    cmd("cargo").args(args).dir(&paths::root()).run()
}

/// `cargo deny` takes minutes to build, so it is used where it is and not
/// installed.
fn dependency_policy() -> Result<()> {
    if cmd("cargo").args(["deny", "--version"]).quiet().is_err() {
        println!("== dependency policy: not checked, there is no cargo-deny here");
        return Ok(());
    }
    step("dependency policy", &["deny", "--all-features", "check", "--config", ".deny.toml"])
}
