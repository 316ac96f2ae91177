//! `braid sync`.

use crate::args::SyncArgs;
use crate::failure::Result;
use crate::locate;
use braid_ipc::protocol::{Reply, Request};

pub(crate) fn run(args: &SyncArgs) -> Result<()> {
    let mut daemon = locate::need_daemon(&locate::given_or_only(args.path.as_deref())?)?;
    locate::ask(&mut daemon, &Request::Sync, |reply| matches!(reply, Reply::Done(_)).then_some(()))
}
