//! `braid pin` and `braid unpin`.

use crate::args::{PinArgs, UnpinArgs};
use crate::failure::{Failure, Result};
use crate::{locate, movers, table};
use braid_contract::{Shown, counted};
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{JobKind, PinRequest, Pinned, Reply, Request};
use std::path::Path;

pub(crate) fn pin(args: &PinArgs) -> Result<()> {
    if args.to.is_none() && (args.start.bandwidth.is_some() || args.start.background) {
        return Err(Failure::usage("--bandwidth and --background are for a move: say where, with --to"));
    }
    let (mount, path) = locate::within(&args.path)?;
    let request =
        PinRequest { path: path.clone(), pin: true, tier: args.to.clone(), recursive: args.recursive };
    let pinned = ask(&mount, &args.path, request)?;
    let Some(to) = &args.to else { return tell(pinned, "pinned", args.start.json) };
    if !args.start.json {
        tell(pinned, "pinned", false)?;
    }
    movers::start(&mount, JobKind::Move { path, to: to.clone() }, &args.start)
}

pub(crate) fn unpin(args: &UnpinArgs) -> Result<()> {
    let (mount, path) = locate::within(&args.path)?;
    let request = PinRequest { path, pin: false, tier: None, recursive: args.recursive };
    tell(ask(&mount, &args.path, request)?, "unpinned", args.json)
}

fn ask(mount: &Mount, path: &Path, request: PinRequest) -> Result<Pinned> {
    if path.is_dir() && !request.recursive {
        let what = format!("{} is a directory\n  help: add --recursive for all files in it", path.shown());
        return Err(Failure::new(what));
    }
    let mut daemon = locate::need_daemon(mount)?;
    locate::ask(&mut daemon, &Request::Pin(request), |reply| match reply {
        Reply::Pinned(pinned) => Some(pinned),
        _ => None,
    })
}

fn tell(pinned: Pinned, what: &str, json: bool) -> Result<()> {
    if json {
        return table::print_json(&pinned);
    }
    let so = pinned.files - pinned.changed.min(pinned.files);
    let already = if so > 0 { format!(" ({so} were so already)") } else { String::new() };
    table::print(&format!("{what}: {}{already}\n", counted(pinned.files, "file")))
}
