//! Movers at work under the loads: a small fast tier fills up, gives cold
//! ranges away and gets used ones. Their guard is set to tolerate the loads,
//! which leave a machine without other work no pause.

use super::bed::{Bed, wait_for};
use crate::report::Report;
use braid_tests_support::error::{Context, Failure, Result};
use braid_tests_support::lab::Kind;

/// The loads write more than the fast tier may keep. The lines that follow a
/// policy are settings of the volume.
const POLICY: &str = "{ size: { small: 64KiB, large: fast } }\n    \
    movers: { bandwidth: 200MiB/s, watermark_high: 40%, watermark_low: 25%, latency_factor: 1000 }";

pub(super) fn run(report: &mut Report) -> Result<()> {
    let tiers = [("home", Kind::Ext4, 256, 100), ("fast", Kind::Ext4, 64, 400)];
    let mut bed = Bed::set_up(&tiers, POLICY).context("a volume with movers")?;
    bed.case(report, "movers promote and demote", |bed| {
        // The loads run until this is over, and read back their writes.
        bed.beside_loads(|bed| {
            let before = bed.moves()?;
            wait_for("movers beside the loads", || {
                Ok(bed.moves()?.iter().zip(before).all(|(now, then)| *now > then))
            })
        })
    })?;
    report.case("the check finds nothing after the movers", || bed.finish())
}

impl Bed {
    /// Ranges that were demoted and promoted so far.
    fn moves(&self) -> Result<[u64; 2]> {
        let status = self.json(&["status"])?;
        let moves = status["moves"].as_array().ok_or_else(|| Failure(format!("no moves in {status}")))?;
        let moved = |mover: &str, from: &str, to: &str| -> u64 {
            let wanted = (&mover.into(), &from.into(), &to.into());
            let of_it =
                moves.iter().filter(|count| (&count["mover"], &count["from"], &count["to"]) == wanted);
            of_it.filter_map(|count| count["ranges"].as_u64()).sum()
        };
        Ok([moved("demote", "fast", "home"), moved("promote", "home", "fast")])
    }
}
