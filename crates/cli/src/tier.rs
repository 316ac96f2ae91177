//! `braid tier replace`: an empty directory for a tier that is lost, or for the
//! home tier.

use crate::args::ReplaceArgs;
use crate::failure::{Failure, Result};
use crate::{locate, rehome, table};
use braid_ipc::Client;
use braid_ipc::protocol::{Replaced, Reply, Request};

pub(crate) fn replace(args: &ReplaceArgs) -> Result<()> {
    let mount = locate::containing(&args.mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    let shown = args.dir.display();
    // The daemon works elsewhere.
    let dir = std::fs::canonicalize(&args.dir).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    let Some(dir) = dir.to_str() else {
        return Err(Failure::new(format!("{shown}: the name is not UTF-8\n  help: name another directory")));
    };
    if is_home(&mut daemon, &args.tier)? {
        return rehome::replace(&mut daemon, dir.to_owned(), args);
    }
    let request = Request::ReplaceTier { tier: args.tier.clone(), dir: dir.to_owned() };
    let replaced = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::Replaced(replaced) => Some(replaced),
        _ => None,
    })?;
    if args.json {
        table::print_json(&replaced)
    } else {
        table::print(&render(&replaced, &mount.point.display().to_string()))
    }
}

fn is_home(daemon: &mut Client, tier: &str) -> Result<bool> {
    let status = locate::ask(daemon, &Request::Status, |reply| match reply {
        Reply::Status(status) => Some(status),
        _ => None,
    })?;
    Ok(status.tiers.iter().any(|found| found.home && found.name == tier))
}

fn render(replaced: &Replaced, point: &str) -> String {
    let Replaced { lost, lost_location, lost_ranges, location, next_mount } = replaced;
    format!(
        "tier {} is at {location} now, and takes new data\n\
         lost: tier number {} at {lost_location}, with {lost_ranges} ranges; what was there answers EIO\n  \
         see what: braid status {point} --affected\n\
         before the next mount, set\n  {next_mount}\n",
        lost.name, lost.id
    )
}
