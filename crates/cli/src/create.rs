//! `braid create`: creates a volume without mounting it.

use crate::args::CreateArgs;
use crate::failure::Result;
use crate::{mount, table};
use braid_contract::Shown;
use braid_daemon::serve;
use std::fmt::Write as _;

pub(crate) fn run(args: &CreateArgs) -> Result<()> {
    let config = mount::stack(&args.stack)?;
    let volume = config.stack.need_volume()?;
    let id = serve::create(&config)?;
    let mut text = format!("volume {id} is made\n");
    for tier in &volume.tiers {
        let home = if tier.name == volume.home.value { ", home" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}: {}{home}", tier.name, tier.dir.value.shown());
    }
    mount::tell_own_files(volume);
    table::print(&text)
}
