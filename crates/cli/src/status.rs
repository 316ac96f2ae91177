//! `braid status`.

use crate::affected;
use crate::args::StatusArgs;
use crate::failure::Result;
use crate::figures;
use crate::locate;
use crate::poll::Poller;
use crate::runtime;
use crate::served;
use crate::table::{self, Align, Color, Table};
use braid_contract::units::{show_duration, show_latency, show_size, write_size};
use braid_contract::{Shown, counted};
use braid_ipc::protocol::{Reply, Request, Status, TierState, TierStatus};
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    if let Some(interval) = args.watch {
        return watch(&mut Poller::new(mount)?, interval, args.json);
    }
    let mut daemon = locate::need_daemon(&mount)?;
    if args.affected {
        return affected::run(&mut daemon, args.json);
    }
    let status = locate::ask(&mut daemon, &Request::Status, |reply| match reply {
        Reply::Status(status) => Some(status),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&status);
    }
    let unmounted = served::unmounted(&mount).unwrap_or_default();
    table::print_to_reader(&(unmounted + &render(&status, table::colour()))).map(drop)
}

/// Shows the status repeatedly, until the volume is unmounted or the reader is
/// gone. On a terminal each replaces the one before.
fn watch(poller: &mut Poller, interval: Duration, json: bool) -> Result<()> {
    let (terminal, colour) = (io::stdout().is_terminal() && !json, table::colour());
    while let Some(status) = poller.status()? {
        let text = match (json, terminal) {
            (true, _) => table::json_line(&status)?,
            // From the top left corner on, then clear the rest of the last one.
            (_, true) => redraw(&render(&status, colour)),
            (_, false) => render(&status, colour) + "\n",
        };
        if !table::print_to_reader(&text)? {
            break;
        }
        thread::sleep(interval);
    }
    Ok(())
}

/// `text` in place of all on the screen.
fn redraw(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

fn render(status: &Status, colour: bool) -> String {
    if let Some(device) = &status.log {
        let driver = status.log_driver.as_deref().filter(|driver| *driver != "kernel");
        let driver = driver.map(|driver| format!(", driver {driver}")).unwrap_or_default();
        let salvaged = status.log_salvage.as_ref().map(|wrong| match &wrong[..] {
            [] => ", salvaged to be read only; nothing is wrong".to_owned(),
            wrong => format!(", salvaged to be read only; {}", wrong.join("; ")),
        });
        let salvaged = salvaged.unwrap_or_default();
        let what = format!("log file system {} on {}{driver}{salvaged}", status.volume, device.shown());
        return without_tiers(status, &what);
    }
    if let Some(of) = &status.view {
        return without_tiers(status, &format!("view of {}", of.shown()));
    }
    let mut table = Table::new(&[
        ("TIER", Align::Left),
        ("STATE", Align::Left),
        ("KEEPS", Align::Left),
        ("SIZE", Align::Right),
        ("USED", Align::Right),
        ("FREE", Align::Right),
        ("RANGES", Align::Right),
        ("WEIGHT", Align::Right),
        ("READ", Align::Right),
        ("READS", Align::Right),
        ("READ/S", Align::Right),
        ("WRITTEN", Align::Right),
        ("WRITES", Align::Right),
        ("WRITE/S", Align::Right),
        ("WHERE", Align::Left),
    ]);
    let paint = |cell: &str| match cell {
        "failing" | "hanging" | "absent" if colour => Some(Color::DarkRed),
        "full" | "draining" | "read-only" | "volatile" if colour => Some(Color::DarkYellow),
        _ => None,
    };
    for tier in &status.tiers {
        let cells = vec![
            format!("{}{}", tier.name, if tier.home { "*" } else { "" }),
            tier.state.to_string(),
            if tier.durable { "durable" } else { "volatile" }.into(),
            show_size(tier.total),
            show_size(tier.used),
            show_size(tier.free),
            tier.ranges.to_string(),
            if tier.weight > 0.0 { format!("{:.0}", tier.weight) } else { "-".into() },
            show_size(tier.read_bytes),
            tier.read_ops.to_string(),
            show_size(tier.read_rate as u64),
            show_size(tier.write_bytes),
            tier.write_ops.to_string(),
            show_size(tier.write_rate as u64),
            tier.location.shown().to_string(),
        ];
        table.painted_row(cells, paint);
    }
    format!(
        "{}: volume {}\npolicy {}, ranges of {}; {}, {} in memory, {} pending\n\
         kernel cache {}, requests by {}; daemon {}, version {}\n\n{}* home: holds the names and the plain files\n{}",
        status.mountpoint.shown(),
        status.volume,
        status.policy,
        write_size(status.range_size.into()),
        counted(status.open_files, "open file"),
        counted(status.known_inodes, "inode"),
        counted(status.pending_removals, "removal"),
        known(&status.cache),
        known(&status.transport),
        status.pid,
        status.version,
        table.render(),
        restarts(status)
            + &status.runtime.as_ref().map_or_else(String::new, |status| runtime::summary(status) + "\n")
            + &remaps(status)
            + &speeds(status)
            + &zones(status)
            + &moves(status)
            + &figures::render(&status.modules)
            + &remarks(status),
    )
}

/// A mounted stack without a volume: `what` is at the bottom.
fn without_tiers(status: &Status, what: &str) -> String {
    format!(
        "{}: {what}\nkernel cache {}, requests by {}; daemon {}, version {}\n\n{}{}",
        status.mountpoint.shown(),
        known(&status.cache),
        known(&status.transport),
        status.pid,
        status.version,
        restarts(status)
            + &status.runtime.as_ref().map_or_else(String::new, |status| runtime::summary(status) + "\n"),
        figures::render(&status.modules),
    )
}

/// The effect of a crash of the daemon, and the crashes so far.
fn restarts(status: &Status) -> String {
    let happened = status.restarts.as_ref().map_or_else(String::new, |restarts| {
        format!(
            ", as {} before, the last by {}, when operations waited for {} ms",
            counted(restarts.count, "time"),
            restarts.how,
            restarts.paused_ns.div_ceil(1_000_000)
        )
    });
    match (status.outlives_crash, happened.as_str()) {
        (true, happened) => format!("if the daemon crashes, another process goes on{happened}\n"),
        (false, "") => String::new(),
        (false, happened) => {
            format!("if the daemon crashes, the mount ends; another process went on{happened}\n")
        }
    }
}

/// Threads that the policy mapped to another tier.
fn remaps(status: &Status) -> String {
    let Some(remaps) = status.remaps else { return String::new() };
    format!("policy: {} mapped to another tier\n", counted(remaps, "thread"))
}

/// The assumed speed of the tiers, and why.
fn speeds(status: &Status) -> String {
    let mut text = String::new();
    for tier in &status.tiers {
        let Some(basis) = tier.speed_basis else { continue };
        let rate = |verb: &str, rate: Option<f64>| Some(format!("{verb} {:.0} MB/s", rate? / 1e6));
        let rates = [rate("reads", tier.read_bandwidth), rate("writes", tier.write_bandwidth)];
        let rates: Vec<String> = rates.into_iter().flatten().collect();
        let since = show_duration(tier.speed_age.unwrap_or(0) as f64);
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "{}: {}, known from {} ({since} ago)",
            tier.name,
            rates.join(", "),
            basis.describe()
        );
    }
    text
}

/// The zones of zoned tiers, and their data of each stream.
fn zones(status: &Status) -> String {
    let mut text = String::new();
    for tier in &status.tiers {
        let Some(zones) = &tier.zones else { continue };
        let name = &tier.name;
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "{name}: {}: {} free, {} open, {} with several streams, {} failed; {} moved to empty zones{}",
            counted(zones.zones.into(), "zone"),
            zones.free,
            zones.open,
            zones.mixed,
            zones.failed,
            show_size(zones.moved_bytes),
            zones.write_amplification().map_or_else(String::new, |written| {
                format!("; the device wrote {written:.2} times the data since the mount")
            })
        );
        if zones.gc_ns > 0 {
            _ = writeln!(
                text,
                "{name}: zones were emptied for {}; {:.0} % of what was written was moved for that; {} waited, {} at most",
                show_latency(zones.gc_ns),
                100.0 * zones.gc_share().unwrap_or_default(),
                counted(zones.gc_waits, "write"),
                show_latency(zones.gc_longest_wait_ns)
            );
        }
        for stream in &zones.streams {
            let (named, bytes) = (&stream.name, show_size(stream.bytes));
            let placement =
                stream.placement.map_or_else(String::new, |placement| format!(", placement {placement}"));
            _ = writeln!(
                text,
                "{name}: {named}: {bytes} in {}{placement}",
                counted(stream.zones.into(), "zone")
            );
        }
    }
    text
}

/// An older daemon does not answer everything.
fn known(word: &str) -> &str {
    if word.is_empty() { "unknown" } else { word }
}

/// Data moved by movers since the mount.
fn moves(status: &Status) -> String {
    let mut text = String::new();
    for count in &status.moves {
        let (mover, bytes) = (&count.mover, show_size(count.bytes));
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "{mover}d from {} to {}: {}, {bytes}",
            count.from,
            count.to,
            counted(count.ranges, "range")
        );
    }
    text
}

/// Problems that need attention, below the table.
fn remarks(status: &Status) -> String {
    let mut text = String::new();
    for tier in &status.tiers {
        if !tier.durable {
            // Writing to a string does not fail.
            _ = writeln!(text, "{}: volatile: nothing on it survives power loss, synced or not", tier.name);
        }
        if let Some(trouble) = &tier.trouble {
            let since = show_duration(trouble.seconds);
            _ = writeln!(text, "{}: {} for {since}: {}", tier.name, tier.state, trouble.error);
        } else if tier.state == TierState::Hanging {
            _ = writeln!(text, "{}: hanging: no operation on it ends", tier.name);
        }
        if tier.readonly {
            let name = &tier.name;
            _ = writeln!(text, "{name}: set to read-only (lift: braid tier set {name} readonly=no)");
        }
        if !tier.faults.is_empty() {
            let (name, faults) = (&tier.name, tier.faults.join(" "));
            let point = status.mountpoint.shown();
            _ = writeln!(
                text,
                "{name}: DRILL: faults are armed: {faults} (lift: braid drill {name} --clear {point})"
            );
        }
    }
    for lost in &status.lost_tiers {
        _ = writeln!(text, "{}: tier number {} was lost and replaced", lost.name, lost.id);
    }
    for name in &status.left_out_tiers {
        _ = writeln!(
            text,
            "{name}: left out of the mount: it was removed from the volume; take it out of its settings"
        );
    }
    let healthy = |tier: &TierStatus| {
        matches!(tier.state, TierState::Online | TierState::Full | TierState::Draining)
            || tier.readonly && tier.trouble.is_none()
    };
    if !status.lost_tiers.is_empty() || !status.tiers.iter().all(healthy) {
        _ = writeln!(text, "the files concerned: braid status {} --affected", status.mountpoint.shown());
    }
    text
}
