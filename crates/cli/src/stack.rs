//! `braid stack`: stack files, and the stacks of mounted volumes; and `braid reload`,
//! which brings a stack file into force.

use crate::args::{ReloadArgs, StackCheckArgs, StackDumpArgs, StackListArgs, StackModifyArgs};
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_contract::{Shown, counted};
use braid_daemon::{schema, stack_file, validate};
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{ModifyStack, Reply, Request};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A mounted stack.
#[derive(Serialize)]
struct Mounted {
    mountpoint: String,
    /// From the top down; `None` if the daemon does not report it.
    modules: Option<Vec<String>>,
    pid: u32,
    version: String,
}

pub(crate) fn check(args: &StackCheckArgs) -> Result<()> {
    let config = stack_file::load(&args.stack)?;
    validate::stack(&config)?;
    let modules = config.stack.modules().join(" over ");
    let stack = &config.stack;
    let tiers = stack.volume().map(|volume| counted(volume.tiers.len() as u64, "tier"));
    let device = stack.log().map(|log| log.device.value.shown().to_string());
    let view = stack.view().map(|view| view.of.value.shown().to_string());
    let of = tiers.or(device).or(view).unwrap_or_default();
    table::print(&format!("{}: {modules} of {of}; no problems\n", args.stack.shown()))
}

pub(crate) fn dump(args: &StackDumpArgs) -> Result<()> {
    table::print(&dump_of(&locate::given_or_only(args.mountpoint.as_deref())?)?)
}

fn dump_of(mount: &Mount) -> Result<String> {
    let mut daemon = locate::need_daemon(mount)?;
    let dump = locate::ask(&mut daemon, &Request::DumpStack, |reply| match reply {
        Reply::StackDump(dump) => Some(dump),
        _ => None,
    })?;
    Ok(dump.text)
}

pub(crate) fn list(args: &StackListArgs) -> Result<()> {
    let stacks: Vec<Mounted> = braid_ipc::daemons::list()
        .iter()
        .map(|daemon| {
            let dump = dump_of(&daemon.mount()).ok();
            let config = dump.and_then(|text| stack_file::parse(&text, "", Path::new("/")).ok());
            let names = |modules: Vec<&str>| modules.into_iter().map(str::to_owned).collect();
            let modules = config.map(|config| names(config.stack.modules()));
            let hello = &daemon.hello;
            let (mountpoint, version) = (hello.mountpoint.clone(), hello.version.clone());
            Mounted { mountpoint, modules, pid: hello.pid, version }
        })
        .collect();
    if args.json {
        return table::print_json(&BTreeMap::from([("stacks", stacks)]));
    }
    let columns = [("MOUNT", Align::Left), ("MODULES", Align::Left), ("PROCESS", Align::Right)];
    let mut table = Table::new(&columns);
    for stack in stacks {
        let modules = stack.modules.map_or_else(|| "-".to_owned(), |modules| modules.join(", "));
        table.row(vec![stack.mountpoint, modules, stack.pid.to_string()]);
    }
    table::print(&table.render())
}

pub(crate) fn schema() -> Result<()> {
    table::print(&schema::with_libraries().map_err(|error| Failure::new(error.to_string()))?)
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
    table::print(&lines(&reloaded.changes))
}

fn lines(changes: &[String]) -> String {
    if changes.is_empty() {
        return "nothing changed\n".to_owned();
    }
    changes.iter().map(|change| format!("{change}\n")).collect()
}

pub(crate) fn modify(args: &StackModifyArgs) -> Result<()> {
    // Read here: it has to be readable for the user who asks.
    let text = stack_file::text(&args.stack)?;
    let name = args.stack.to_string_lossy().into_owned();
    let mut daemon = locate::need_daemon(&locate::given_or_only(Some(&args.mountpoint))?)?;
    let request = Request::ModifyStack(ModifyStack { name, text, dry_run: args.dry_run });
    let modified = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::StackModified(modified) => Some(modified),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&modified);
    }
    table::print(&lines(&modified.changes))
}
