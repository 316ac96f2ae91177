//! `braid stack dump`: the stack of a mounted volume, as a stack file; and
//! `braid reload`, the reverse.

use crate::args::{ReloadArgs, StackDumpArgs};
use crate::failure::Result;
use crate::{locate, table};
use braid_ipc::protocol::{Reply, Request};

pub(crate) fn dump(args: &StackDumpArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut daemon = locate::need_daemon(&mount)?;
    let dump = locate::ask(&mut daemon, &Request::DumpStack, |reply| match reply {
        Reply::StackDump(dump) => Some(dump),
        _ => None,
    })?;
    table::print(&dump.text)
}

pub(crate) fn reload(args: &ReloadArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut daemon = locate::need_daemon(&mount)?;
    let request = Request::Reload { dry_run: args.dry_run };
    let reloaded = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::Reloaded(reloaded) => Some(reloaded),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&reloaded);
    }
    if reloaded.changes.is_empty() {
        return table::print("nothing changed\n");
    }
    let lines: String = reloaded.changes.iter().map(|change| format!("{change}\n")).collect();
    table::print(&lines)
}
