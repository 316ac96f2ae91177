//! `braid status`.

use crate::args::StatusArgs;
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_daemon::units::{show_size, write_size};
use braid_ipc::protocol::{Reply, Request, Status};

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let mount = locate::containing(&args.mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    let status = match daemon.request(&Request::Status) {
        Ok(Reply::Status(status)) => status,
        Ok(_) => return Err(Failure::new("the daemon answered something else")),
        Err(error) => return Err(Failure::new(error.to_string())),
    };
    if args.json { table::print_json(&status) } else { table::print(&render(&status, table::colour())) }
}

fn render(status: &Status, colour: bool) -> String {
    let mut table = Table::new(&[
        ("TIER", Align::Left),
        ("STATE", Align::Left),
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
    for tier in &status.tiers {
        table.row(vec![
            format!("{}{}", tier.name, if tier.home { "*" } else { "" }),
            tier.state.clone(),
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
            tier.location.clone(),
        ]);
    }
    let paint = |cell: &str, padded: String| match cell {
        "failing" if colour => format!("\x1b[31m{padded}\x1b[0m"),
        "full" | "read-only" if colour => format!("\x1b[33m{padded}\x1b[0m"),
        _ => padded,
    };
    format!(
        "{}: volume {}\npolicy {}, ranges of {}; {} open files, {} inodes in memory, {} removals pending\n\
         daemon {}, version {}\n\n{}* home: holds the names and the plain files\n",
        status.mountpoint,
        status.volume,
        status.policy,
        write_size(status.range_size.into()),
        status.open_files,
        status.known_inodes,
        status.pending_removals,
        status.pid,
        status.version,
        table.render(paint),
    )
}
