//! Replaying a trace against policies, on tiers that need not exist: `braid
//! placement simulate`. Only the trace is opened.

use crate::config::{PolicySettings, Rule, TierSettings, VolumeSettings, known};
use crate::cross_check;
use crate::policy;
use crate::profile::{Figures, Profile};
use crate::refusal::{Located, Place, Refusal};
use braid_contract::units;
use braid_placement::{
    EPOCH_NS_DEFAULT, Pace, PlacedBy, Simulated, SimulatedTier, SimulatorConfig, TierSimulated, Trace,
    WEIGHT_UNIT, simulate,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Latency of each read and write on a tier that was not calibrated, in
/// nanoseconds, on top of its transfer.
const LATENCY_NS: u64 = 40_000;
/// A slice of the kernel's throttle, in nanoseconds.
const THROTTLE_NS: u64 = 100_000_000;

/// What to compare, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Policies, as flags; if empty, the stack's own and all known ones.
    pub policies: Vec<String>,
    /// `TIER=SIZE`, each: the room on the tier.
    pub capacities: Vec<String>,
    /// Whether threads issue their operations without pauses.
    pub fastest: bool,
    /// Whether the tiers are throttled like by the kernel.
    pub throttled: bool,
}

/// The results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Size of a range in bytes.
    pub range_size: u32,
    /// The simulated tiers, home first.
    pub tiers: Vec<TierGiven>,
    /// Each policy and its results.
    pub policies: Vec<PolicyReport>,
}

/// A simulated tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierGiven {
    /// Its name.
    pub name: String,
    /// Read bandwidth in bytes a second.
    pub read_bandwidth: f64,
    /// Write bandwidth in bytes a second.
    pub write_bandwidth: f64,
    /// The source of these figures: `profile` or `weight`.
    pub source: &'static str,
    /// Its room in bytes; `None` for unlimited.
    pub capacity: Option<u64>,
}

/// The results of one policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PolicyReport {
    /// Its name, or the flag.
    pub policy: String,
    /// Whether it is the stack file's own.
    pub own: bool,
    /// Seconds until the last byte was read or written.
    pub seconds: f64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Bytes a second that were read.
    pub read_rate: f64,
    /// Bytes a second that were written.
    pub write_rate: f64,
    /// Bytes of writes for which no tier had room.
    pub refused_bytes: u64,
    /// The tiers, home first.
    pub tiers: Vec<TierReport>,
    /// Number of ranges of the trace by the origin of their placement: `plain`,
    /// `policy`, `spill`, `rule 1`, …
    pub placed_by: BTreeMap<String, u64>,
}

/// The results on one tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierReport {
    /// Its name.
    pub name: String,
    /// Bytes that were read there.
    pub read_bytes: u64,
    /// Bytes that were written there.
    pub written_bytes: u64,
    /// Ranges that were placed there.
    pub ranges: u64,
    /// Ranges of files that were there before the trace began.
    pub ranges_before: u64,
    /// Bytes in use in the end.
    pub used: u64,
    /// Share of the time with operations in flight there, 0 to 1.
    pub busy: f64,
}

/// Replays `trace` on the tiers of `volume`, against each policy. `progress` is
/// called with the next one.
///
/// # Errors
/// If a policy or a tier is unknown, or the performance of a tier.
pub fn run(
    volume: &VolumeSettings,
    trace: &Trace,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, Refusal> {
    let policies = policies(volume, &options.policies)?;
    let (given, tiers) = tiers(volume, &options.capacities)?;
    let range_size = volume.range.as_ref().map_or(trace.range_size, |range| range.value);
    let pace = if options.fastest { Pace::Fastest } else { Pace::Recorded };
    let mut reports = Vec::new();
    for (name, own, policy) in policies {
        progress(&name);
        let config = SimulatorConfig {
            tiers: tiers.clone(),
            range_size,
            policy: policy.value.clone(),
            rules: volume.rules.iter().map(Rule::config).collect(),
            hints: volume.hints.clone(),
            epoch_ns: volume.epoch.as_ref().map_or(EPOCH_NS_DEFAULT, |epoch| epoch.value),
            throttle_ns: options.throttled.then_some(THROTTLE_NS),
        };
        // All names were checked before.
        let Some(simulated) = simulate(&config, trace, pace) else {
            return Err(policy.place.refuse("it names a tier that there is not", "name one of the tiers"));
        };
        reports.push(report(name, own, simulated));
    }
    Ok(Report { range_size: range_size.get(), tiers: given, policies: reports })
}

/// The policies by their names, and whether they are the stack's own.
fn policies(
    volume: &VolumeSettings,
    flags: &[String],
) -> Result<Vec<(String, bool, PolicySettings)>, Refusal> {
    if !flags.is_empty() {
        let named = |flag: &String| {
            let policy = policy::from_flag(flag, &Place::flag(format!("--policy {flag}")))?;
            cross_check::policy(volume, &policy)?;
            Ok((flag.clone(), false, policy))
        };
        return flags.iter().map(named).collect();
    }
    let own = &volume.policy;
    let mut policies = vec![(own.value.name().to_owned(), true, own.clone())];
    for name in policy::names() {
        let policy = policy::from_flag(name, &Place::flag(format!("--policy {name}")))?;
        if policy.value != own.value {
            policies.push((name.to_owned(), false, policy));
        }
    }
    Ok(policies)
}

/// The tiers, home first, for the report and for the simulation.
fn tiers(
    volume: &VolumeSettings,
    capacities: &[String],
) -> Result<(Vec<TierGiven>, Vec<SimulatedTier>), Refusal> {
    let capacities = capacities.iter().map(|flag| capacity(volume, flag)).collect::<Result<Vec<_>, _>>()?;
    let profile = volume.profile.as_ref().map(|profile| &profile.value);
    let is_home = |tier: &&TierSettings| tier.name == volume.home.value;
    let others = volume.tiers.iter().filter(|tier| !is_home(tier));
    let mut both = (Vec::new(), Vec::new());
    for tier in volume.tiers.iter().filter(is_home).chain(others) {
        let capacity = capacities.iter().rev().find(|(name, _)| *name == tier.name).map(|(_, size)| *size);
        let (given, simulated) = simulated(tier, profile, capacity)?;
        both.0.push(given);
        both.1.push(simulated);
    }
    Ok(both)
}

fn simulated(
    tier: &TierSettings,
    profile: Option<&Profile>,
    capacity: Option<u64>,
) -> Result<(TierGiven, SimulatedTier), Refusal> {
    let weight = tier.weight.as_ref().map(|weight| weight.value);
    let figures = profile.and_then(|profile| profile.tiers.get(&tier.name));
    let (bandwidth, latency_ns, source) = match (figures, weight) {
        (Some(figures), _) => {
            let sides = [&figures.read, &figures.write];
            (sides.map(|side| side.bandwidth as f64), sides.map(latency_ns), "profile")
        }
        (None, Some(weight)) => ([weight * WEIGHT_UNIT; 2], [LATENCY_NS; 2], "weight"),
        (None, None) => {
            let found = format!("it is not known what tier '{}' can do", tier.name);
            let advice = "measure it where the devices are: braid bench calibrate STACK.yaml, and name the \
                          profile in the stack file; or give each tier a weight, in MB/s";
            return Err(tier.place.refuse(found, advice));
        }
    };
    let [read_bandwidth, write_bandwidth] = bandwidth;
    let given = TierGiven { name: tier.name.clone(), read_bandwidth, write_bandwidth, source, capacity };
    let simulated = SimulatedTier {
        name: tier.name.clone(),
        bandwidth,
        latency_ns,
        weight,
        profile: profile.and_then(|profile| profile.tier(&tier.name)),
        capacity,
        reserve: tier.reserve_or_default(),
        readonly: tier.readonly.as_ref().is_some_and(|readonly| readonly.value),
    };
    Ok((given, simulated))
}

/// Latency of an operation besides its transfer: the latency of a single
/// thread, less the transfer at full speed.
fn latency_ns(figures: &Figures) -> u64 {
    let Some(alone) = figures.points.first() else { return LATENCY_NS };
    let block = alone.bandwidth as f64 * alone.latency_ns as f64 / f64::from(alone.threads.max(1)) / 1e9;
    (alone.latency_ns as f64 - block / figures.bandwidth as f64 * 1e9).max(0.0) as u64
}

/// `TIER=SIZE`
fn capacity(volume: &VolumeSettings, flag: &str) -> Result<(String, u64), Refusal> {
    let place = Place::flag(format!("--capacity {flag}"));
    let Some((name, size)) = flag.split_once('=') else {
        return Err(place.refuse("found no tier and its size", "write it as in: --capacity fast=100GiB"));
    };
    known(&volume.tiers, &Located::new(name.to_owned(), place.clone()))?;
    match units::parse_size(size) {
        Ok(size) => Ok((name.to_owned(), size)),
        Err(advice) => Err(place.refuse(format!("'{size}' is not a size"), advice)),
    }
}

fn report(policy: String, own: bool, simulated: Simulated) -> PolicyReport {
    let rate = |bytes: u64| if simulated.seconds > 0.0 { bytes as f64 / simulated.seconds } else { 0.0 };
    let [read_bytes, written_bytes] = simulated.bytes;
    let mut placed_by: BTreeMap<String, u64> = BTreeMap::new();
    let placed = simulated.tiers.iter().flat_map(|tier| &tier.ranges);
    for (by, count) in placed.filter(|(by, _)| **by != PlacedBy::Before) {
        *placed_by.entry(name_of(*by)).or_default() += count;
    }
    PolicyReport {
        policy,
        own,
        seconds: simulated.seconds,
        read_bytes,
        written_bytes,
        read_rate: rate(read_bytes),
        write_rate: rate(written_bytes),
        refused_bytes: simulated.refused_bytes,
        tiers: simulated.tiers.into_iter().map(tier_report).collect(),
        placed_by,
    }
}

fn tier_report(tier: TierSimulated) -> TierReport {
    let ranges_before = tier.ranges.get(&PlacedBy::Before).copied().unwrap_or(0);
    TierReport {
        name: tier.name,
        read_bytes: tier.bytes[0],
        written_bytes: tier.bytes[1],
        ranges: tier.ranges.values().sum::<u64>() - ranges_before,
        ranges_before,
        used: tier.used,
        busy: tier.busy,
    }
}

fn name_of(by: PlacedBy) -> String {
    match by {
        PlacedBy::Before => "before".into(),
        PlacedBy::Plain => "plain".into(),
        PlacedBy::Policy => "policy".into(),
        PlacedBy::Spill => "spill".into(),
        PlacedBy::Rule(number) => format!("rule {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Point;
    use crate::stack_file;
    use braid_placement::{TraceFile, TraceOp, TraceOpKind};
    use std::path::Path;

    const STACK: &str = "stack:\n  volume:\n    home: fast\n    policy: { weighted: { } }\n    range: 64KiB\n    \
                         rules: [ { when: 'path.matches(\"*.wal\")', tier: slow } ]\n    tiers:\n      \
                         slow: { dir: /nowhere/b, weight: 10 }\n      fast: { dir: /nowhere/a, weight: 30 }\n";

    fn trace() -> Trace {
        let file = |number, path: &str| TraceFile { number, path: path.into(), ..TraceFile::default() };
        let write = |at: u64, file| TraceOp {
            kind: TraceOpKind::Write,
            at_ns: at * 1_000_000,
            took_ns: 1_000_000,
            thread: 1,
            file,
            offset: at / 2 * 65536,
            len: 65536,
            size: 0,
            sync: false,
            direct: true,
            uid: 0,
            gid: 0,
            stream: None,
        };
        let ops = (0..80).map(|at| write(at, (at % 2) as usize)).collect();
        let files = vec![file(1, "a"), file(2, "b.wal")];
        Trace { files, ops, complete: true, ..Trace::default() }
    }

    fn simulated(stack: &str, options: &Options) -> Result<Report, Refusal> {
        let config = stack_file::parse(stack, "s.yaml", Path::new("")).unwrap();
        run(config.stack.need_volume()?, &trace(), options, &mut |_| {})
    }

    fn refused(stack: &str, policies: &[&str], capacities: &[&str]) -> String {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let options =
            Options { policies: owned(policies), capacities: owned(capacities), ..Options::default() };
        simulated(stack, &options).unwrap_err().to_string()
    }

    #[test]
    fn the_stacks_own_policy_is_compared_with_all_others() {
        let report = simulated(STACK, &Options { fastest: true, ..Options::default() }).unwrap();
        let names: Vec<(&str, bool)> =
            report.policies.iter().map(|policy| (policy.policy.as_str(), policy.own)).collect();
        let others = ["adaptive", "static", "dynamic", "home-first", "size"].map(|name| (name, false));
        assert_eq!(names, [&[("weighted", true)], &others[..]].concat());
        assert_eq!(
            (report.range_size, report.tiers[0].name.as_str(), report.tiers[0].source),
            (65536, "fast", "weight")
        );
        for policy in &report.policies {
            assert_eq!((policy.written_bytes, policy.placed_by["rule 1"]), (80 * 65536, 40), "{policy:?}");
            assert!(policy.tiers[1].ranges >= 40 && policy.seconds > 0.0, "{policy:?}");
        }
        // The part that home-first leaves on home is spread by weight, one in
        // four.
        let on_fast = |name: &str| {
            let policy = report.policies.iter().find(|policy| policy.policy == name).unwrap();
            policy.tiers[0].ranges
        };
        assert_eq!(on_fast("home-first"), 40);
        assert!((28..=32).contains(&on_fast("weighted")), "{}", on_fast("weighted"));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let all = STACK.replace(", weight: 10", "");
        for (said, message) in [
            (
                refused(&all, &[], &[]),
                "s.yaml:8: stack.volume.tiers.slow: it is not known what tier 'slow' can do",
            ),
            (refused(STACK, &["weihgted"], &[]), "--policy weihgted: there is no policy 'weihgted'"),
            (refused(STACK, &["size:large=no"], &[]), "size:large=no: large: there is no tier 'no'"),
            (refused(STACK, &[], &["fats=1GiB"]), "--capacity fats=1GiB: there is no tier 'fats'"),
            (refused(STACK, &[], &["fast"]), "--capacity fast: found no tier and its size"),
            (refused(STACK, &[], &["fast=lots"]), "--capacity fast=lots: 'lots' is not a size"),
        ] {
            assert!(said.contains(message), "{message}: {said}");
        }
        assert!(refused(&all, &[], &[]).contains("braid bench calibrate"));
    }

    #[test]
    fn a_full_tier_is_passed_over_and_what_has_no_room_anywhere_is_told() {
        let capacities = vec!["fast=2MiB".into(), "slow=512KiB".into()];
        let policies = vec!["weighted".into()];
        let stack = STACK
            .replace("weight: 30", "weight: 30, reserve: 0")
            .replace("weight: 10", "weight: 10, reserve: 0");
        let report = simulated(&stack, &Options { capacities, policies, ..Options::default() }).unwrap();
        let policy = &report.policies[0];
        assert_eq!((policy.tiers[0].used, policy.tiers[1].used), (2 << 20, 512 << 10));
        assert_eq!(policy.written_bytes + policy.refused_bytes, 80 * 65536);
        assert!(policy.placed_by["spill"] > 0, "{policy:?}");
    }

    #[test]
    fn what_a_thread_alone_waits_beyond_its_bytes_is_latency() {
        // 64 KiB take 1 ms for one thread, and 0.25 ms of the tier.
        let alone = Point { threads: 1, bandwidth: 65_536_000, latency_ns: 1_000_000 };
        let figures = Figures {
            bandwidth: 262_144_000,
            latency_ns: 1,
            threads: 4,
            degrades_at: None,
            points: vec![alone],
        };
        assert_eq!(latency_ns(&figures), 750_000);
        assert_eq!(latency_ns(&Figures { points: Vec::new(), ..figures }), LATENCY_NS);
    }
}
