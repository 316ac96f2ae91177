//! Placement of new ranges, and learning the performance of tiers.
//!
//! Pure: no I/O, no threads. The volume asks `rules`, and those a `policy`,
//! with a `context`; `load` counts the I/O of each tier. The `simulator` runs
//! the same code over simulated devices, on a `trace` or on synthetic threads.
//!
//! A new policy is one file in `policies` and one line in its table.
#![forbid(unsafe_code)]

mod believed;
mod context;
mod credits;
mod epoch;
mod learn;
mod load;
mod per_tier;
mod policies;
mod policy;
mod policy_config;
mod policy_setting;
mod rules;
mod settings;
mod simulator;
mod sync;
mod trace;

pub use believed::{KnownRates, WEIGHT_UNIT, believed, weights, with_means};
pub use context::{Context, Origin, TierView, WriteSpan};
pub use credits::Credits;
pub use epoch::{Epoch, EpochLoad, TierEpoch};
pub use learn::REST_BUSY_MAX;
pub use load::{Direction, Load, LoadSample};
pub use policies::{POLICIES, shares};
pub use policy::{Policy, TURNS_MAX};
pub use policy_config::{PolicyConfig, PolicyKind, make_policy};
pub use policy_setting::{Setting, SettingKind, SettingValue, Target};
pub use rules::{Chosen, Condition, ConditionError, Facts, Rule, Rules};
pub use settings::{DirectionProfile, EPOCH_NS_DEFAULT, Reserve, RuleConfig, TierProfile};
pub use simulator::{Pace, PlacedBy, Simulated, SimulatedTier, SimulatorConfig, TierSimulated, simulate};
pub use trace::{
    Header, LineKind, Record, TRACE_VERSION, Trace, TraceError, TraceFile, TraceOp, TraceOpKind, end_line,
    line,
};
