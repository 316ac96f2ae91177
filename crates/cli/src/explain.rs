//! `braid explain`.

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_contract::Shown;
use braid_contract::units::{show_size, write_size};
use braid_ipc::protocol::{Explanation, Reply, Request};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) fn run(args: &ExplainArgs) -> Result<()> {
    let shown = args.path.shown();
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
            "{}: {}, {size} in ranges of {} (object {object})\n",
            path.shown(),
            explanation.layout,
            write_size(explanation.range_size.into())
        ),
        // The file's owner does not see the object.
        None if explanation.layout != "plain" => {
            let ranges = write_size(explanation.range_size.into());
            format!("{}: {}, {size} in ranges of {ranges}\n", path.shown(), explanation.layout)
        }
        None => format!("{}: {}, {size}\n", path.shown(), explanation.layout),
    };
    if let Some(usual) = explanation.volume_range_size.filter(|usual| *usual != explanation.range_size) {
        let spread = if explanation.layout == "spread" { "of" } else { "if it is spread now, of" };
        let (own, usual) = (write_size(explanation.range_size.into()), write_size(usual.into()));
        text.push_str(&format!("ranges: {spread} {own}; those of the volume are of {usual}\n"));
    }
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
    text.push_str(&placed_by(explanation));
    if let Some(next) = &explanation.next {
        text.push_str(&format!("placement: a new range of it would go to {}\n", next.name));
    }
    if explanation.runs.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        ("OFFSET", Align::Right),
        ("LENGTH", Align::Right),
        ("RANGES", Align::Right),
        ("TIER", Align::Left),
        ("SINCE", Align::Left),
        ("HEAT", Align::Right),
        ("WHY", Align::Left),
        ("NOW", Align::Left),
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
            run.since.map_or_else(|| "-".into(), show_time),
            if run.tier.is_some() { format!("{}%", run.heat) } else { "-".into() },
            run.reason.clone(),
            if run.now.is_empty() { "-".into() } else { run.now.clone() },
        ]);
    }
    text.push_str(&table.render());
    let share = |(tier, len): (&&str, &u64)| {
        let percent = 100.0 * *len as f64 / explanation.size.max(1) as f64;
        let tier = if **tier == *"-" { "never written" } else { tier };
        format!("{tier} {} ({percent:.1} %)", show_size(*len))
    };
    text.push_str(&format!("in all: {}\n", sums.iter().map(share).collect::<Vec<_>>().join(", ")));
    text
}

/// The rule and the policy that hold for the file now.
fn placed_by(explanation: &Explanation) -> String {
    let mut text = String::new();
    if let Some(rule) = &explanation.rule {
        text.push_str(&format!("rule: number {} holds for it now: {}", rule.number, rule.when));
        if !rule.tiers.is_empty() {
            text.push_str(&format!("; it goes to {}", rule.tiers.join(", or else to ")));
        }
        text.push('\n');
    }
    if let Some(stream) = &explanation.stream {
        let by =
            stream.profile.as_ref().map_or(String::new(), |profile| format!(", by the profile {profile}"));
        let life = stream.life.as_ref().map_or(String::new(), |life| format!("; expected life: {life}"));
        text.push_str(&format!("stream: {}{by}{life}\n", stream.name));
    }
    if let Some(policy) = &explanation.policy {
        let of_rule = explanation.rule.as_ref().filter(|rule| rule.policy.is_some());
        let whose = of_rule.map_or("the volume's".into(), |rule| format!("that of rule {}", rule.number));
        text.push_str(&format!("policy: {whose}: {policy}\n"));
    }
    text
}

/// A time in seconds since 1970 as date and time of day, UTC.
fn show_time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%F %TZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400 - 1, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_700_000_000, "2023-11-14 22:13:20Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (u64::MAX, "9999-12-30 22:00:00Z"),
        ] {
            assert_eq!(show_time(seconds), shown);
        }
    }
}
