//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// One file system over several devices.
#[derive(Debug, Parser)]
#[command(name = "braid", version, arg_required_else_help = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join directories into one file system and mount it
    Mount(MountArgs),
    /// Unmount, and wait until the tiers are released
    Umount(UmountArgs),
    /// Show the tiers of a mounted volume
    Status(StatusArgs),
    /// Show where the data of a file is, and why
    Explain(ExplainArgs),
    /// Check a volume that is not mounted
    Fsck(FsckArgs),
    /// Print the version
    Version,
}

const MOUNT_HELP: &str = "\
Examples:
  braid mount two-tier.yaml /mnt/volume
  braid mount --tier fast=/mnt/nvme,weight=400 --tier slow=/mnt/sata,weight=120 /mnt/volume
  braid mount --tier fast=/mnt/nvme --tier slow=/mnt/sata,reserve=5% --policy home-first:watermark=80% /mnt/volume

The command returns when the file system can be used; a daemon stays behind.
Exit status: 0 mounted, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = MOUNT_HELP, allow_missing_positional = true)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,

    /// Directory to mount on
    #[arg(index = 2)]
    pub(crate) mountpoint: PathBuf,

    /// Stay in the foreground and log to standard error
    #[arg(long, short)]
    pub(crate) foreground: bool,

    /// Threads that answer the kernel [default: 32]
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,

    /// Let other users use the mount [default for root]
    #[arg(long, overrides_with = "no_allow_other")]
    pub(crate) allow_other: bool,

    /// Keep the mount to this user [default for everybody but root]
    #[arg(long)]
    pub(crate) no_allow_other: bool,

    /// Never let the kernel do I/O on a plain file by itself
    #[arg(long)]
    pub(crate) no_passthrough: bool,

    /// Mount over a directory that is not empty, and hide what is in it
    #[arg(long)]
    pub(crate) nonempty: bool,

    /// Where the daemon logs [default: below /var/log/braid, or ~/.local/state/braid for users]
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// error, warn, info, debug or trace; or a filter such as info,braid_volume=debug
    #[arg(long, value_name = "LEVEL", default_value = braid_daemon::log::LEVEL_DEFAULT)]
    pub(crate) log_level: String,

    /// Set by the command itself when it starts the daemon
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) ready_on_stdout: bool,
}

/// What the file system is made of: a stack file, or flags.
#[derive(Debug, Args)]
pub(crate) struct StackArgs {
    /// Stack file
    #[arg(index = 1, value_name = "STACK.yaml", conflicts_with = "tiers")]
    pub(crate) stack: Option<PathBuf>,

    /// A tier, in place of a stack file; repeat for each
    #[arg(long = "tier", value_name = "NAME=DIR[,weight=N][,reserve=5%]")]
    pub(crate) tiers: Vec<String>,

    /// The tier that holds the names and the small files [default: the first]
    #[arg(long, value_name = "NAME", requires = "tiers", conflicts_with = "stack")]
    pub(crate) home: Option<String>,

    /// weighted, home-first[:watermark=90%] or size[:small=4MiB,large=spread|TIER] [default: weighted]
    #[arg(long, value_name = "POLICY", requires = "tiers", conflicts_with = "stack")]
    pub(crate) policy: Option<String>,

    /// Size of a range: a power of two, 64KiB to 64MiB [default: the volume's, or 2MiB for a new one]
    #[arg(long, value_name = "SIZE", requires = "tiers", conflicts_with = "stack")]
    pub(crate) range: Option<String>,
}

const UMOUNT_HELP: &str = "\
Returns when the daemon has ended and the tiers are free for anything else.
A mount whose daemon is gone is cleaned up.

Examples:
  braid umount /mnt/volume
  braid umount --lazy /mnt/volume

Exit status: 0 unmounted, 1 failed (busy, for example), 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = UMOUNT_HELP)]
pub(crate) struct UmountArgs {
    /// Where it is mounted
    pub(crate) mountpoint: PathBuf,

    /// Detach a busy mount now and end it when its last user is gone; does not wait
    #[arg(long, short)]
    pub(crate) lazy: bool,
}

const STATUS_HELP: &str = "\
Examples:
  braid status /mnt/volume
  braid status /mnt/volume --json | jq '.tiers[] | {name, state, free}'";

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Where it is mounted, or anything below
    pub(crate) mountpoint: PathBuf,

    /// Print JSON, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
}

const EXPLAIN_HELP: &str = "\
A plain file lies on the home tier as it is. A spread file is cut into ranges,
each on one tier; ranges in a row with the same tier and reason are one line.

Examples:
  braid explain /mnt/volume/big.iso
  braid explain /mnt/volume/big.iso --json | jq '.runs[].tier.name'";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
pub(crate) struct ExplainArgs {
    /// A regular file in a Braid file system
    pub(crate) path: PathBuf,

    /// Print JSON, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
}

const FSCK_HELP: &str = "\
Examples:
  braid fsck two-tier.yaml
  braid fsck --tier fast=/mnt/nvme --tier slow=/mnt/sata --repair

Exit status: 0 no problems, 1 problems found and repaired, 2 wrong arguments,
4 problems left, 8 the check could not be carried out.";

#[derive(Debug, Args)]
#[command(after_help = FSCK_HELP)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,

    /// Repair what can be repaired; without it nothing is changed
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn mount(line: &str) -> Result<MountArgs, clap::Error> {
        match CommandLine::try_parse_from(line.split(' '))?.command {
            Command::Mount(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_stack_file_comes_before_the_mount_point() {
        let args = mount("braid mount a.yaml /mnt").unwrap();
        assert_eq!((args.stack.stack, args.mountpoint), (Some("a.yaml".into()), "/mnt".into()));

        let args = mount("braid mount --tier a=/a --tier b=/b,weight=2 /mnt --range 1MiB").unwrap();
        assert_eq!((args.stack.stack, args.mountpoint), (None, "/mnt".into()));
        assert_eq!(args.stack.tiers, ["a=/a", "b=/b,weight=2"]);
    }

    #[test]
    fn flags_that_exclude_each_other() {
        for line in [
            "braid mount",
            "braid mount a.yaml --tier a=/a /mnt",
            "braid mount a.yaml /mnt --policy weighted",
            "braid mount /mnt --home a",
            "braid mount /mnt --ready-on-stdout",
            "braid frobnicate",
        ] {
            assert_eq!(mount(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
