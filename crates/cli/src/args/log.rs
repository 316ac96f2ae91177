//! The arguments of `braid log`.

use super::front::FrontArgs;
use braid_contract::units::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Make a log file system on a device or in a file
    Create(LogCreateArgs),
    /// Mount a log file system
    Mount(Box<LogMountArgs>),
    /// Check a log file system that is not mounted, and repair it
    Check(LogCheckArgs),
    /// Show the figures of a log file system that is not mounted
    Show(LogPathArgs),
}

const CREATE_HELP: &str = "\
What is there is not overwritten unless --force says so. A file that is not there
is made, with its space reserved where the file system can.

Examples:
  braid log create /dev/nvme1n1
  braid log create /var/lib/files.log --size 10GiB

Exit status: 0 made, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct LogCreateArgs {
    /// A block device or a file
    pub(crate) path: PathBuf,

    /// Size of the file, if it is not there: at least 16MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,

    /// Overwrite what is there, whatever it is
    #[arg(long)]
    pub(crate) force: bool,
}

const MOUNT_HELP: &str = "\
Returns when the file system can be used; a daemon serves it until it is unmounted.
What a crash left is recovered first. It is the same as `braid mount` of a stack file
with `stack: { log: { device: PATH } }`, which can have modules, too.

Examples:
  braid log mount /dev/nvme1n1 /mnt/log
  braid log mount --workers 8 files.log /mnt/log
  braid log mount --salvage damaged.log /mnt/left
  braid umount /mnt/log

Exit status: 0 mounted, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = MOUNT_HELP)]
pub(crate) struct LogMountArgs {
    /// A block device or a file with a log file system
    pub(crate) path: PathBuf,

    /// Where to mount it
    pub(crate) mountpoint: PathBuf,

    /// The way to the device: auto, or io_uring for direct I/O, without a page cache [default: auto]
    #[arg(long, value_name = "DRIVER")]
    pub(crate) driver: Option<String>,

    /// Workers, each with a log and a share of the blocks [default: one for each processor, at most 8]
    #[arg(long, value_name = "COUNT")]
    pub(crate) workers: Option<usize>,

    /// Read what can be read, damaged or not, and write nothing: the mount is read-only
    #[arg(long)]
    pub(crate) salvage: bool,

    #[command(flatten)]
    pub(crate) front: FrontArgs,
}

const CHECK_HELP: &str = "\
Without --repair, nothing is written. A file system that is mounted is refused.

With --repair, a damaged one is what `braid log mount --salvage` shows of it, from
then on for good: look at that first, or copy the device. A sound one is left as it
is.

Examples:
  braid log check /dev/nvme1n1
  braid log check --repair /dev/nvme1n1

Exit status: 0 sound or repaired, 1 damaged, refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct LogCheckArgs {
    /// A block device or a file with a log file system
    pub(crate) path: PathBuf,

    /// Make a sound file system of what can be read of a damaged one
    #[arg(long)]
    pub(crate) repair: bool,
}

const PATH_HELP: &str = "\
Nothing is written. A file system that is mounted is refused.

Examples:
  braid log show files.log

Exit status: 0 shown, 1 damaged, refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = PATH_HELP)]
pub(crate) struct LogPathArgs {
    /// A block device or a file with a log file system
    pub(crate) path: PathBuf,
}
