//! `braid placement simulate`: a trace against policies, as tables.

use crate::args::SimulateArgs;
use crate::failure::Result;
use crate::progress::Progress;
use crate::table::{self, Align, Table};
use braid_contract::units::{show_size, write_size};
use braid_contract::{Shown, counted};
use braid_daemon::simulate::{self, Options, PolicyReport, Report};
use braid_daemon::stack_file;
use braid_daemon::trace::{self, Trace};
use serde::Serialize;
use std::fmt::Write as _;

/// The JSON output.
#[derive(Serialize)]
struct Told<'a> {
    trace: Summary,
    #[serde(flatten)]
    report: &'a Report,
}

/// Properties of the trace.
#[derive(Serialize)]
struct Summary {
    file: String,
    ops: usize,
    seconds: f64,
    dropped: u64,
    passthrough_opens: u64,
    complete: bool,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
    let config = stack_file::load(&args.stack)?;
    let trace = trace::load(&args.trace)?;
    let options = Options {
        policies: args.policies.clone(),
        capacities: args.capacities.clone(),
        fastest: args.as_fast_as_possible,
        throttled: args.throttled,
    };
    let mut progress = Progress::new();
    let report =
        simulate::run(config.stack.need_volume()?, &trace, &options, &mut |policy| progress.show(policy));
    drop(progress);
    let report = report?;
    let shown = args.trace.shown();
    warnings(&trace).iter().for_each(|warning| eprintln!("braid: {shown}: {warning}"));
    let summary = Summary {
        file: args.trace.to_string_lossy().into_owned(),
        ops: trace.ops.len(),
        seconds: trace.seconds(),
        dropped: trace.dropped,
        passthrough_opens: trace.passthrough_opens,
        complete: trace.complete,
    };
    if args.json {
        return table::print_json(&Told { trace: summary, report: &report });
    }
    table::print(&(head(&summary, &report) + &render(&report)))
}

/// Reasons to doubt the figures.
fn warnings(trace: &Trace) -> Vec<String> {
    let mut warnings = Vec::new();
    if !trace.complete {
        warnings.push("the recording was broken off; what is there is simulated".to_owned());
    }
    if trace.dropped > 0 {
        warnings.push(format!("not recorded, and missing: {}", counted(trace.dropped, "operation")));
    }
    if trace.passthrough_opens > 0 {
        let opens = trace.passthrough_opens;
        warnings.push(format!("{} by passthrough: their I/O is missing", counted(opens, "open")));
    }
    warnings
}

fn head(summary: &Summary, report: &Report) -> String {
    let Summary { ops, seconds, .. } = summary;
    let file = summary.file.shown();
    let range = write_size(report.range_size.into());
    let mut text =
        format!("{file}: {} in {seconds:.1} s; ranges of {range}\n", counted(*ops as u64, "operation"));
    for tier in &report.tiers {
        let room = tier.capacity.map_or("any size".into(), show_size);
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "tier {}: {}/s read, {}/s written ({}), {room}",
            tier.name,
            show_size(tier.read_bandwidth as u64),
            show_size(tier.write_bandwidth as u64),
            tier.source
        );
    }
    text
}

fn render(report: &Report) -> String {
    let mut policies = Table::new(&[
        ("POLICY", Align::Left),
        ("LAST BYTE", Align::Right),
        ("WRITTEN MB/S", Align::Right),
        ("READ MB/S", Align::Right),
        ("NO ROOM", Align::Right),
        ("PLACED BY", Align::Left),
    ]);
    let mut tiers = Table::new(&[
        ("POLICY", Align::Left),
        ("TIER", Align::Left),
        ("WRITTEN", Align::Right),
        ("READ", Align::Right),
        ("RANGES", Align::Right),
        ("BEFORE", Align::Right),
        ("BUSY", Align::Right),
    ]);
    for policy in &report.policies {
        let name = name(policy);
        let placed: Vec<String> =
            policy.placed_by.iter().map(|(by, ranges)| format!("{by} {ranges}")).collect();
        policies.row(vec![
            name.clone(),
            format!("{:.3} s", policy.seconds),
            format!("{:.1}", policy.write_rate / 1e6),
            format!("{:.1}", policy.read_rate / 1e6),
            show_size(policy.refused_bytes),
            placed.join(", "),
        ]);
        for tier in &policy.tiers {
            tiers.row(vec![
                name.clone(),
                tier.name.clone(),
                show_size(tier.written_bytes),
                show_size(tier.read_bytes),
                tier.ranges.to_string(),
                tier.ranges_before.to_string(),
                format!("{:.0} %", tier.busy * 100.0),
            ]);
        }
    }
    format!("\n{}\n{}", policies.render(), tiers.render())
}

fn name(policy: &PolicyReport) -> String {
    if policy.own { format!("{} (stack)", policy.policy) } else { policy.policy.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_daemon::simulate::TierReport;

    #[test]
    fn each_policy_has_a_row_and_one_for_each_tier() {
        let tier = TierReport {
            name: "fast".into(),
            read_bytes: 0,
            written_bytes: 3 << 20,
            ranges: 2,
            ranges_before: 1,
            used: 3 << 20,
            busy: 0.5,
        };
        let policy = PolicyReport {
            policy: "size".into(),
            own: true,
            seconds: 1.5,
            read_bytes: 0,
            written_bytes: 3 << 20,
            read_rate: 0.0,
            write_rate: 2_100_000.0,
            refused_bytes: 0,
            tiers: vec![tier],
            placed_by: [("plain".to_owned(), 1), ("rule 1".to_owned(), 1)].into(),
        };
        let report = Report { range_size: 65536, tiers: Vec::new(), policies: vec![policy] };
        let expected = "
POLICY        LAST BYTE  WRITTEN MB/S  READ MB/S  NO ROOM  PLACED BY
size (stack)    1.500 s           2.1        0.0      0 B  plain 1, rule 1 1

POLICY        TIER   WRITTEN  READ  RANGES  BEFORE  BUSY
size (stack)  fast  3.00 MiB   0 B       2       1  50 %
";
        assert_eq!(render(&report), expected);
    }
}
