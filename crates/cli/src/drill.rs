//! `braid drill`: faults of a tier that is mounted, armed, shown and lifted.

use crate::args::DrillArgs;
use crate::failure::Result;
use crate::{locate, table};
use braid_ipc::protocol::{Drill, Reply, Request};
use std::fmt::Write as _;

pub(crate) fn run(args: &DrillArgs) -> Result<()> {
    let mount = locate::containing(&args.mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    let change = args.clear || !args.faults.is_empty();
    let rules = change.then(|| args.faults.clone());
    let request = Request::Drill { tier: args.tier.clone(), rules };
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
            _ = writeln!(text, "{}: {} (met {} times)", tier.tier, fault.rule, fault.hits);
        }
        if tier.hanging > 0 {
            _ = writeln!(text, "{}: {} operations hang at present", tier.tier, tier.hanging);
        }
    }
    text
}
