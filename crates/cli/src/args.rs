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
    /// Replace the home tier, or a tier that is lost
    #[command(subcommand)]
    Tier(TierCommand),
    /// Let a tier fail, to see what happens then
    Drill(DrillArgs),
    /// Check a volume, mounted or not, and repair it
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

    /// Threads that answer the kernel [default: 48]
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

    /// Mount without this tier: what is on it answers EIO; repeat for each
    #[arg(long, value_name = "TIER")]
    pub(crate) without: Vec<String>,

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
A tier is online, full, read-only (it refuses writes), failing (it answers
errors, or is gone), hanging (it answers nothing) or absent (mounted without).
Files with data on one that is failing, hanging, absent or lost answer EIO for
that data, and for nothing else.

Examples:
  braid status /mnt/volume
  braid status /mnt/volume --affected
  braid status /mnt/volume --json | jq '.tiers[] | {name, state, free}'";

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Where it is mounted, or anything below
    pub(crate) mountpoint: PathBuf,

    /// List the files with data on tiers that are in trouble or lost, and which bytes
    #[arg(long)]
    pub(crate) affected: bool,

    /// Print JSON, with sizes in bytes; with --affected, one object a line for each file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TierCommand {
    /// Put an empty directory in the place of the home tier, or of a tier that is lost, while the volume is mounted
    Replace(ReplaceArgs),
}

const REPLACE_HELP: &str = "\
The home tier is copied to the new directory while the volume is used, and goes
on there; this command shows how far it is, and gives it up when it is ended.
Any other tier can be replaced only when it is failing, hangs or is absent. What
was on it is lost: those bytes answer EIO until their files are cut or removed.
Everything else goes on, and new data goes to the new directory.

Examples:
  braid status /mnt/volume --affected
  braid tier replace /mnt/volume slow /mnt/new-sata
  braid tier replace /mnt/volume fast /mnt/new-nvme";

#[derive(Debug, Args)]
#[command(after_help = REPLACE_HELP)]
pub(crate) struct ReplaceArgs {
    /// Where the volume is mounted, or anything below
    pub(crate) mountpoint: PathBuf,

    /// Name of the tier
    pub(crate) tier: String,

    /// Empty directory on a native file system
    pub(crate) dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DRILL_HELP: &str = "\
A fault is OPERATION:EFFECT, with conditions after commas. OPERATION: all, metadata,
read, write, sync, create, remove, allocate, punch, truncate, stat, usage, label,
probe, list, descriptor. EFFECT: the name of an error, short (half of the bytes) or
hang (until the faults change). Conditions: after=N, every=N, count=N, once.
Faults that are given replace those that were armed. The daemon of root takes them
from root only.

Examples:
  braid drill /mnt/volume slow all:EIO            a device that dies
  braid drill /mnt/volume slow read:hang          one that hangs
  braid drill /mnt/volume slow sync:EIO,once write:ENOSPC,after=100
  braid drill /mnt/volume                         what is armed
  braid drill /mnt/volume slow --clear            back to normal";

#[derive(Debug, Args)]
#[command(after_help = DRILL_HELP)]
pub(crate) struct DrillArgs {
    /// Where the volume is mounted, or anything below
    pub(crate) mountpoint: PathBuf,

    /// Name of the tier, any but home
    pub(crate) tier: Option<String>,

    /// Faults to arm; without any, what is armed is shown
    #[arg(value_name = "FAULT")]
    pub(crate) faults: Vec<String>,

    /// Lift all faults of the tier
    #[arg(long, requires = "tier", conflicts_with = "faults")]
    pub(crate) clear: bool,

    /// Print JSON
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
  braid fsck /mnt/volume dir/file
  braid fsck --tier fast=/mnt/nvme --tier slow=/mnt/sata --repair

A volume that is mounted is checked by its daemon, beside its users. PATHs are
below the volume's root. With --json, one object a line for each problem, and
one with the summary at the end; docs/fsck.md lists the codes.

Exit status: 0 no problems, 1 problems found and all repaired, 2 wrong
arguments, 4 problems left, 8 the check could not be carried out. Notes, which
are no problems, count only when something was repaired.";

#[derive(Debug, Args)]
#[command(after_help = FSCK_HELP)]
pub(crate) struct FsckArgs {
    /// Stack file, or where the volume is mounted; then what to check [default: all of it]
    #[arg(value_names = ["STACK.yaml|MOUNTPOINT", "PATH"], num_args = 1.., required_unless_present = "tiers")]
    pub(crate) targets: Vec<PathBuf>,

    /// A tier, in place of a stack file; repeat for each
    #[arg(long = "tier", value_name = "NAME=DIR")]
    pub(crate) tiers: Vec<String>,

    /// The tier that holds the names and the small files [default: the first]
    #[arg(long, value_name = "NAME", requires = "tiers")]
    pub(crate) home: Option<String>,

    /// Repair what can be repaired; without it nothing is changed
    #[arg(long)]
    pub(crate) repair: bool,

    /// Tell of states too that are unusual and legal
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Print JSON lines
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
