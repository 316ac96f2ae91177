//! `braid drill`: arms, shows and lifts faults of a mounted tier.

use crate::args::DrillArgs;
use crate::failure::{Failure, Result};
use crate::{locate, table};
use braid_contract::counted;
use braid_ipc::protocol::{Drill, Reply, Request};
use std::fmt::Write as _;

pub(crate) fn run(args: &DrillArgs) -> Result<()> {
    let (words, mountpoint) = locate::split_mount(&args.words);
    let mount = locate::given_or_only(mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    let (tier, faults) = words.split_first().map_or((None, words), |(tier, faults)| (Some(tier), faults));
    if args.clear && (tier.is_none() || !faults.is_empty()) {
        let what = "--clear lifts all faults of one tier";
        return Err(Failure::usage(format!("{what}\n  help: write braid drill TIER --clear")));
    }
    let change = args.clear || !faults.is_empty();
    let rules = change.then(|| faults.to_vec());
    let request = Request::Drill { tier: tier.cloned(), rules };
    let drill = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::Drill(drill) => Some(drill),
        _ => None,
    })?;
    if args.json { table::print_json(&drill) } else { table::print(&render(&drill)) }
}

fn render(drill: &Drill) -> String {
    let mut text = String::new();
    for tier in &drill.tiers {
        // Writing to a string does not fail.
        if tier.faults.is_empty() {
            _ = writeln!(text, "{}: no faults", tier.tier);
        }
        for fault in &tier.faults {
            _ = writeln!(text, "{}: {} (met {})", tier.tier, fault.rule, counted(fault.hits, "time"));
        }
        if tier.hanging > 0 {
            _ = writeln!(text, "{}: hanging at present: {}", tier.tier, counted(tier.hanging, "operation"));
        }
    }
    text
}
