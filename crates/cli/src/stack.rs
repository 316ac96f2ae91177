//! `braid stack dump`: the stack of a mounted volume, as a stack file.

use crate::args::StackDumpArgs;
use crate::failure::Result;
use crate::{locate, table};
use braid_ipc::protocol::{Reply, Request};

pub(crate) fn dump(args: &StackDumpArgs) -> Result<()> {
    let mount = locate::containing_or_only(args.mountpoint.as_deref())?;
    let mut daemon = locate::need_daemon(&mount)?;
    let dump = locate::ask(&mut daemon, &Request::DumpStack, |reply| match reply {
        Reply::StackDump(dump) => Some(dump),
        _ => None,
    })?;
    table::print(&dump.text)
}
