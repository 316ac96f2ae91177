//! Tiers that fail, hang, go away, come back and are lost, while the volume is
//! in use. Every case checks the view of applications on affected files and on
//! all others, the log and `braid status`, and expects everything back without
//! a remount when the tier is back.
//!
//! `faults/bench.rs` is the common set-up; `store.rs` arms faults of the tier's
//! store, `hang.rs` makes it hang, `device.rs` takes devices and file systems
//! away, `index.rs` damages indexes, `lost.rs` destroys a tier.
//! `docs/semantics.md` names the cases that prove its statements.

mod bench;
mod device;
mod hang;
mod index;
mod lost;
mod sample;
mod store;

use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::options::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "faults",
    about: "tiers that fail, hang, go away and are lost, in use",
    on_request: false,
    on_directories: false,
    turn: Turn::Waiting,
    trials,
};

fn trials(_: &Options) -> Vec<Trial> {
    let cases = [store::CASES, hang::CASES, device::CASES, index::CASES, lost::CASES].into_iter().flatten();
    cases.map(|(title, case)| Trial::case(title, case).by_root()).collect()
}
