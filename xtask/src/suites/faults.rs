//! Tiers that fail, hang, go away, come back and are lost, while the volume is
//! used. Every case looks at what an application sees of the files concerned
//! and of all others, at the log and at `braid status`, and wants everything
//! back without a remount when the tier is back.
//!
//! `faults/bench.rs` is what the cases work with; `store.rs` arms faults of the
//! tier's store, `hang.rs` lets it hang, `device.rs` takes devices and file
//! systems away, `index.rs` damages indexes, `lost.rs` destroys a tier.
//! `docs/semantics.md` names the cases that prove what it says.

mod bench;
mod device;
mod hang;
mod index;
mod lost;
mod sample;
mod store;

use super::{Report, Suite};
use crate::error::Result;
use crate::sh::is_root;
use crate::test::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite =
    Suite { name: "faults", about: "tiers that fail, hang, go away and are lost, in use", run };

/// A case: its name, and what it does.
type Case = (&'static str, fn() -> Result<()>);

fn run(options: &Options, report: &mut Report) -> Result<()> {
    if options.on.is_some() {
        report.skip("faults", "is about the tiers of a volume");
        return Ok(());
    }
    if !is_root() {
        report.skip("faults", "needs root, to make file systems");
        return Ok(());
    }
    for cases in [store::CASES, hang::CASES, device::CASES, index::CASES, lost::CASES] {
        for (name, case) in cases {
            report.case(name, case)?;
        }
    }
    Ok(())
}
