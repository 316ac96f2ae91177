//! The counts of ranges that a clean unmount saved.

use crate::findings::{Findings, When};
use crate::report::Problem;
use crate::target::CheckTarget;
use braid_contract::{Result, TierId};
use braid_format::SavedCounts;

/// Compares the saved counts with `counted`, the ranges that the indexes place
/// on each tier, by its number.
pub(crate) fn check_counts(
    target: &CheckTarget<'_>,
    counted: &[u64; TierId::LIMIT as usize],
    findings: &mut Findings,
) -> Result<()> {
    if target.is_mounted() {
        return Ok(());
    }
    let Some(bytes) = target.braid.read_small("counts", SavedCounts::LEN + 1)? else { return Ok(()) };
    let what = match SavedCounts::decode(&bytes) {
        Err(_) => "the saved counts of ranges are damaged".to_owned(),
        // The ranges of a damaged index are unknown.
        Ok(_) if findings.has_damage() => return Ok(()),
        Ok(saved) if saved.0 == *counted => return Ok(()),
        Ok(saved) => {
            let pairs = saved.0.iter().zip(counted).enumerate();
            let wrong = pairs.filter(|(_, (saved, counted))| saved != counted);
            let wrong = wrong.map(|(tier, (saved, counted))| format!("tier {tier}: {saved} for {counted}"));
            let wrong = wrong.collect::<Vec<_>>().join(", ");
            format!("the saved counts of ranges are not those of the indexes ({wrong})")
        }
    };
    let problem = Problem::note("counts-wrong", what).tier(&target.home_name);
    let problem = problem.repair("removes them: the next mount counts anew");
    findings.mend(problem, When::Unmounted, || target.braid.ensure_gone_at("counts"));
    Ok(())
}
