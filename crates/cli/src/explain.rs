//! `braid explain`.

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_daemon::units::{show_size, write_size};
use braid_ipc::protocol::{Explanation, Reply, Request};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) fn run(args: &ExplainArgs) -> Result<()> {
    let shown = args.path.display();
    let mount = locate::containing(&args.path)?;
    let mut daemon = locate::need_daemon(&mount)?;
    let found = std::fs::metadata(&args.path).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    if !found.is_file() {
        return Err(Failure::new(format!("{shown} is not a regular file; only those have data on tiers")));
    }
    let asked = locate::ask(&mut daemon, &Request::Explain { ino: found.ino() }, |reply| match reply {
        Reply::Explanation(explanation) => Some(explanation),
        _ => None,
    });
    let explanation = asked.map_err(|failure| Failure::new(format!("{shown}: {failure}")))?;
    if args.json { table::print_json(&explanation) } else { table::print(&render(&args.path, &explanation)) }
}

fn render(path: &Path, explanation: &Explanation) -> String {
    let size = show_size(explanation.size);
    let mut text = match &explanation.object {
        Some(object) => format!(
            "{}: spread, {size} in ranges of {} (object {object})\n",
            path.display(),
            write_size(explanation.range_size.into())
        ),
        None => format!("{}: {}, {size}\n", path.display(), explanation.layout),
    };
    text.push_str(&match explanation.durable {
        true => "durability: what is synced survives power loss\n".to_owned(),
        false => {
            let names: Vec<&str> = explanation.volatile_tiers.iter().map(|tier| tier.name.as_str()).collect();
            format!(
                "durability: volatile: nothing on {} survives power loss, synced or not\n",
                names.join(", ")
            )
        }
    });
    if let Some(pin) = &explanation.pin {
        let to = pin.tier.as_ref().map_or(String::new(), |tier| format!(" to {tier}"));
        text.push_str(&format!("pinned{to}: movers leave it where it is\n"));
    }
    if explanation.runs.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        ("OFFSET", Align::Right),
        ("LENGTH", Align::Right),
        ("RANGES", Align::Right),
        ("TIER", Align::Left),
        ("WHY", Align::Left),
    ]);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for run in &explanation.runs {
        let tier = run.tier.as_ref().map_or("-", |tier| &tier.name);
        *sums.entry(tier).or_default() += run.len;
        table.row(vec![
            write_size(run.offset),
            write_size(run.len),
            run.ranges.to_string(),
            tier.to_owned(),
            run.reason.clone(),
        ]);
    }
    text.push_str(&table.render(|_, padded| padded));
    let share = |(tier, len): (&&str, &u64)| {
        let percent = 100.0 * *len as f64 / explanation.size.max(1) as f64;
        let tier = if **tier == *"-" { "never written" } else { tier };
        format!("{tier} {} ({percent:.1} %)", show_size(*len))
    };
    text.push_str(&format!("in all: {}\n", sums.iter().map(share).collect::<Vec<_>>().join(", ")));
    text
}
