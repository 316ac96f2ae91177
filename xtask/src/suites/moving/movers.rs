//! Movers at work under the loads: a small fast tier runs full and gives what
//! is cold, and gets what is used.

use super::super::Report;
use super::bed::{Bed, wait_for};
use crate::error::{Context, Failure, Result};
use crate::lab::Kind;
use std::time::{Duration, Instant};

/// The loads write more than the fast tier may keep. The lines that follow a
/// policy are settings of the volume.
const POLICY: &str = "{ size: { small: 64KiB, large: fast } }\n    \
    movers: { bandwidth: 200MiB/s, watermark_high: 60%, watermark_low: 40% }";

/// How long it is waited for the movers beside the loads. Where these leave
/// them no room for so long, they go on when the loads have ended.
const BESIDE_LOADS: Duration = Duration::from_secs(15);

pub(super) fn run(report: &mut Report) -> Result<()> {
    let tiers = [("home", Kind::Ext4, 256, 100), ("fast", Kind::Ext4, 64, 400)];
    let mut bed = Bed::set_up(&tiers, POLICY).context("a volume with movers")?;
    bed.case(report, "movers promote and demote", |bed| {
        bed.beside_loads(|bed| {
            let begun = Instant::now();
            wait_for("movers beside the loads", || Ok(begun.elapsed() > BESIDE_LOADS || bed.movers_moved()?))
        })?;
        wait_for("movers", || {
            // What is read again and again is used.
            bed.verify()?;
            bed.movers_moved()
        })
    })?;
    report.case("the check finds nothing after the movers", || bed.finish())
}

impl Bed {
    /// Whether both movers have moved something.
    fn movers_moved(&self) -> Result<bool> {
        let status = self.json(&["status"])?;
        let moves = status["moves"].as_array().ok_or_else(|| Failure(format!("no moves in {status}")))?;
        let moved = |mover: &str, from: &str, to: &str| {
            moves.iter().any(|count| {
                (&count["mover"], &count["from"], &count["to"]) == (&mover.into(), &from.into(), &to.into())
                    && count["ranges"].as_u64() > Some(0)
            })
        };
        Ok(moved("demote", "fast", "home") && moved("promote", "home", "fast"))
    }
}
