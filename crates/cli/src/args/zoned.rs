//! The arguments of `braid zoned`.

use braid_contract::units::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ZonedCommand {
    /// Make an emulated zoned device of a directory
    Emulate(EmulateArgs),
}

const EMULATE_HELP: &str = "\
The directory gets a file for each zone. Used as a tier, it keeps to the rules of
zoned devices: zones are written from their beginning to their end, and emptied as
a whole. For trying things out: it is no faster than the file system that it is on.

Examples:
  braid zoned emulate /mnt/nvme/zones
  braid zoned emulate /mnt/nvme/zones --zones 256 --zone-size 16MiB --conventional 4
  braid mount --create --tier fast=/mnt/ssd --tier zns=/mnt/nvme/zones /mnt/volume

Exit status: 0 made, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = EMULATE_HELP)]
pub(crate) struct EmulateArgs {
    /// An empty directory
    pub(crate) dir: PathBuf,

    /// Zones in all
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(3..=1_000_000))]
    pub(crate) zones: u32,

    /// Room in each zone, a multiple of 4KiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) zone_size: u64,

    /// The first zones of them, which can be written anywhere
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) conventional: u32,

    /// Most zones that are open at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 14, value_parser = clap::value_parser!(u32).range(3..))]
    pub(crate) open: u32,

    /// Most zones that are begun and not full
    #[arg(long, value_name = "NUMBER", default_value_t = 14, value_parser = clap::value_parser!(u32).range(3..))]
    pub(crate) active: u32,
}
