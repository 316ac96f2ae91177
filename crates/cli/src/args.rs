//! The command line.

mod jobs;
mod tiers;
mod trace;

pub(crate) use jobs::{
    EvacuateArgs, ImportArgs, JobCommand, JobIdArgs, JobListArgs, JobSetArgs, JobShowArgs, JobWaitArgs, MoveArgs,
    PathArgs, PinArgs, RebalanceArgs, StartArgs, UnpinArgs,
};

pub(crate) use tiers::{ReplaceArgs, TierAddArgs, TierCommand, TierListArgs, TierRemoveArgs, TierSetArgs};

pub(crate) use trace::{PlacementCommand, SimulateArgs, TraceCommand, TraceRecordArgs};

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

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
    /// Watch what a volume is doing
    Top(TopArgs),
    /// Show where the data of a file is, and why
    Explain(ExplainArgs),
    /// List, add, set, empty, remove and replace tiers of a mounted volume
    #[command(subcommand)]
    Tier(TierCommand),
    /// Move a file, or all files of a directory, to a tier
    Move(MoveArgs),
    /// Move a file, or all files of a directory, to the fastest tier with room
    Promote(PathArgs),
    /// Move a file, or all files of a directory, to the slowest tier with room
    Demote(PathArgs),
    /// Move data so that every tier has its share, as after one was added
    Rebalance(RebalanceArgs),
    /// Bring the files that a tier has of its own into the volume, where they are
    Import(ImportArgs),
    /// Leave a file where it is, whatever movers want
    Pin(PinArgs),
    /// Let movers move a file again
    Unpin(UnpinArgs),
    /// See and steer the jobs that move data
    #[command(subcommand)]
    Job(JobCommand),
    /// Show the stack of a mounted volume
    #[command(subcommand)]
    Stack(StackCommand),
    /// Record what applications do with a volume
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Try placement policies
    #[command(subcommand)]
    Placement(PlacementCommand),
    /// Let a tier fail, to see what happens then
    Drill(DrillArgs),
    /// Check a volume, mounted or not, and repair it
    Fsck(FsckArgs),
    /// Measure what the tiers can do
    #[command(subcommand)]
    Bench(BenchCommand),
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

    /// Tell Prometheus metrics there: 127.0.0.1:PORT, [::1]:PORT or unix:/PATH [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

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
    #[arg(long = "tier", value_name = "NAME=DIR[,weight=N][,reserve=5%][,readonly=true]")]
    pub(crate) tiers: Vec<String>,

    /// The tier that holds the names and the small files [default: the first]
    #[arg(long, value_name = "NAME", requires = "tiers", conflicts_with = "stack")]
    pub(crate) home: Option<String>,

    /// adaptive, weighted, static[:threads=8], dynamic[:threads=8,threshold=50%,global-threshold=50%],
    /// home-first[:watermark=90%] or size[:small=4MiB,sync=64KiB,large=spread|TIER] [default: weighted]
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
A tier is online, full, draining (it takes no new data: it is to be emptied),
read-only (it refuses writes, or is set to), failing (it answers
errors, or is gone), hanging (it answers nothing) or absent (mounted without).
Files with data on one that is failing, hanging, absent or lost answer EIO for
that data, and for nothing else.

Examples:
  braid status /mnt/volume
  braid status /mnt/volume --affected
  braid status /mnt/volume --watch 5
  braid status /mnt/volume --json | jq '.tiers[] | {name, state, free}'";

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Where it is mounted, or anything below
    pub(crate) mountpoint: PathBuf,

    /// List the files with data on tiers that are in trouble or lost, and which bytes
    #[arg(long)]
    pub(crate) affected: bool,

    /// Show it again every so many seconds, until the volume is unmounted [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = interval, conflicts_with = "affected")]
    pub(crate) watch: Option<Duration>,

    /// Print JSON, with sizes in bytes; with --affected, one object a line for each file
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP_HELP: &str = "\
Of each tier: what is read and written a second, against the most that it does
as calibrated or learned (or, with ~, the most that was seen since the start);
how long half and 99 in a hundred operations of the last second (or of the last
epoch, where that is longer) took at most; operations under way and threads at
it; space. Then the busiest threads of applications, the jobs that have not
ended and the hottest files; threads, jobs and names are for root and the user
who mounted.

Keys: q ends it, left and right choose the order of the tiers, up and down
scroll the files. Where standard output is no terminal, one frame is printed.

Examples:
  braid top
  braid top /mnt/volume --interval 0.5s
  braid top /mnt/volume --json | jq '.tiers[].write_rate'";

#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub(crate) struct TopArgs {
    /// Where it is mounted, or anything below [default: the one Braid file system there is]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Time between two frames, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Print one frame as text
    #[arg(long)]
    pub(crate) once: bool,

    /// Print the status as JSON, one object a line for each interval
    #[arg(long)]
    pub(crate) json: bool,
}

/// Seconds between two looks, with or without an `s`.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write seconds, from 0.1 to 86400".into())
}

#[derive(Debug, Subcommand)]
pub(crate) enum StackCommand {
    /// Print a stack file that makes a mount like this one
    Dump(StackDumpArgs),
}

const STACK_DUMP_HELP: &str = "\
What is printed has all that is set now: tiers that were added, settings that
were changed, flags of the mount.

Examples:
  braid stack dump /mnt/volume > volume.yaml";

#[derive(Debug, Args)]
#[command(after_help = STACK_DUMP_HELP)]
pub(crate) struct StackDumpArgs {
    /// Where the volume is mounted, or anything below [default: the one that there is]
    pub(crate) mountpoint: Option<PathBuf>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Find how many threads saturate each tier, and write the profile that policies use
    Calibrate(CalibrateArgs),
}

const CALIBRATE_HELP: &str = "\
Each tier is read and written with direct I/O by 1, 2, 4, … threads, for some
seconds each, on files of its own that have no names and leave nothing behind.
What a tier holds is not touched. On a tier that is in use by a mounted volume,
the figures are what its users leave.

Examples:
  braid bench calibrate two-tier.yaml
  braid bench calibrate two-tier.yaml --tiers slow --seconds 10
  braid bench calibrate two-tier.yaml --output /tmp/p.yaml --svg /tmp/p.svg --json";

#[derive(Debug, Args)]
#[command(after_help = CALIBRATE_HELP)]
pub(crate) struct CalibrateArgs {
    /// Stack file
    #[arg(value_name = "STACK.yaml")]
    pub(crate) stack: PathBuf,

    /// Where the profile goes [default: STACK.profile.yaml beside the stack file]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Where the plot goes [default: STACK.profile.svg beside the stack file]
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Only these tiers; what the profile has of others stays [default: all]
    #[arg(long, value_name = "TIER,…", value_delimiter = ',')]
    pub(crate) tiers: Vec<String>,

    /// How long each number of threads is measured, after a start that is not counted
    #[arg(long, value_name = "N", default_value_t = 3.0, allow_negative_numbers = true)]
    pub(crate) seconds: f64,

    /// The largest number of threads, up to 256
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    pub(crate) threads_max: usize,

    /// Size of one read or write, a multiple of 4KiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) block: String,

    /// Size of what is read and written on each tier
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) size: String,

    /// Print the profile as JSON
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
