//! `cargo xtask check`: the one gate, the same for a change and for CI.

use crate::{test, tidy};
use braid_tests_support::error::Result;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;

/// Format, lints, house rules, dependency policy; then all tests.
pub(crate) fn run(command: &test::Command) -> Result<()> {
    step("format", &["fmt", "--all", "--check"])?;
    step(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    )?;
    // It takes no part in `cargo test`, and so not in the lints of all targets.
    let suites = ["--workspace", "--test", "suites"];
    let lint = [&["clippy"][..], &suites, &["--locked", "--quiet", "--", "-D", "warnings"]].concat();
    step("lints of the suites", &lint)?;
    println!("== tidy");
    tidy::run()?;
    dependency_policy()?;
    test::run(command)
}

fn step(name: &str, args: &[&str]) -> Result<()> {
    println!("== {name}");
    cmd("cargo").args(args).dir(&paths::root()).run()
}

/// `cargo deny` takes minutes to build, so it is used if present, and not
/// installed.
fn dependency_policy() -> Result<()> {
    if cmd("cargo").args(["deny", "--version"]).quiet().is_err() {
        println!("== dependency policy: not checked, there is no cargo-deny here");
        return Ok(());
    }
    step("dependency policy", &["deny", "--all-features", "check", "--config", ".deny.toml"])
}
