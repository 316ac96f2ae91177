//! A discrete-event simulator: applications' operations over tiers of given
//! bandwidths, with the policies, the rules and the monitor that a volume runs.
//! It has no randomness: a run always has the same result.
//!
//! `engine` runs it by a `clock`, over `tiers`, each with a `device` (its
//! timing), and `file`s (the tiers of their ranges, which `placing` decides).
//! Operations come from a [`Source`](source::Source): a trace ([`simulate`],
//! which `braid placement simulate` calls), or synthetic work (`workload`, for
//! `tests`, which compare the policies; `docs/placement.md` has the figures).

mod clock;
mod config;
mod device;
mod engine;
mod file;
mod outcome;
mod placing;
mod replay;
mod source;
#[cfg(test)]
mod tests;
mod tiers;
#[cfg(test)]
mod workload;

use crate::trace::Trace;
pub use config::{Pace, SimulatedTier, SimulatorConfig};
use engine::Engine;
pub use outcome::{PlacedBy, Simulated, TierSimulated};
use replay::Replay;

/// Replays a trace. `None` if a policy or rule names an unknown tier, or there
/// are no tiers.
#[must_use]
pub fn simulate(config: &SimulatorConfig, trace: &Trace, pace: Pace) -> Option<Simulated> {
    let mut engine = Engine::new(config)?;
    engine.run(&mut Replay::new(trace, config.range_size.get(), pace));
    Some(engine.outcome())
}
