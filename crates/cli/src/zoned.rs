//! `braid zoned emulate`: makes an emulated zoned device.

use crate::args::EmulateArgs;
use crate::failure::Result;
use crate::table;
use braid_contract::Shown;
use braid_contract::units::show_size;
use braid_daemon::tier_store::{self, EmulatedZones};

pub(crate) fn emulate(args: &EmulateArgs) -> Result<()> {
    let shape = EmulatedZones {
        zones: args.zones,
        conventional: args.conventional,
        capacity: args.zone_size,
        open_max: args.open,
        active_max: args.active,
    };
    tier_store::emulate(&args.dir, shape)?;
    let (zones, each, dir) = (args.zones, show_size(args.zone_size), args.dir.shown());
    table::print(&format!("{dir} is an emulated device of {zones} zones of {each}\n"))
}
