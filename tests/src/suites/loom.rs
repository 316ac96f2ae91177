//! The coordination of a range's move with its readers and writers, and of
//! operations with a replacement of home, also when one of them dies, under a
//! model checker: every interleaving of a few threads.

use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::Result;
use braid_tests_support::options::Options;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "loom",
    about: "the protocols of moving a range and of replacing home, in every interleaving",
    on_request: false,
    on_directories: false,
    turn: Turn::Processor,
    trials,
};

fn trials(_: &Options) -> Vec<Trial> {
    [
        ("readers, writers and a move", "model::moves"),
        ("operations and a freeze", "model::barrier"),
        ("the death of an owner at each step", "model::death"),
        ("locks, and the death of their holders", "model::locks"),
    ]
    .map(|(title, model)| Trial::case(title, move || check(model)))
    .into()
}

fn check(model: &str) -> Result<()> {
    let test = ["test", "--quiet", "--locked", "--release", "-p", "braid-coord", "--lib"];
    // A directory of its own: the flag rebuilds every crate.
    let target = paths::target().join("loom");
    let checked = cmd("cargo").args(test).arg(model).dir(&paths::root());
    // Full optimisation takes longer than it saves.
    let checked = checked.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    let checked = checked.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    checked.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target).run()
}
