//! The command line.

mod frames;
mod front;
mod hints;
mod jobs;
mod kv;
mod log;
mod modules;
mod runtime;
mod scrub;
mod stack;
mod tiers;
mod trace;
mod zoned;

pub(crate) use jobs::{
    EvacuateArgs, ImportArgs, JobCommand, JobIdArgs, JobListArgs, JobSetArgs, JobShowArgs, JobWaitArgs,
    MoveArgs, PathArgs, PinArgs, RebalanceArgs, StartArgs, UnpinArgs,
};

pub(crate) use modules::{
    ModuleCommand, ModuleDebugArgs, ModuleListArgs, ModuleUpgradeArgs, RepoArgs, RepoCommand,
};
pub(crate) use runtime::{BenchRuntimeArgs, Load, RuntimeArgs, Through};
pub(crate) use scrub::ScrubArgs;
pub(crate) use stack::{
    ReloadArgs, StackCheckArgs, StackCommand, StackDumpArgs, StackListArgs, StackModifyArgs, UpgradeArgs,
};
pub(crate) use tiers::{ReplaceArgs, TierAddArgs, TierCommand, TierListArgs, TierRemoveArgs, TierSetArgs};

pub(crate) use trace::{PlacementCommand, SimulateArgs, TraceCommand, TraceRecordArgs};

pub(crate) use frames::{CatArgs, FramesCommand};
pub(crate) use front::FrontArgs;
pub(crate) use hints::{HintsCommand, HintsExplainArgs, HintsLearnArgs, HintsListArgs};
pub(crate) use kv::{KeyState, KvArgs, KvCommand, KvDeleteArgs, KvGetArgs, KvPutArgs, KvScanArgs};
pub(crate) use log::{LogCheckArgs, LogCommand, LogCreateArgs, LogMountArgs, LogPathArgs};
pub(crate) use zoned::{EmulateArgs, ZonedCommand};

use crate::failure::Failure;
use braid_contract::units::parse_seconds;
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
    /// Make a new volume of directories, without mounting it
    Create(CreateArgs),
    /// Join directories into one file system and mount it
    Mount(Box<MountArgs>),
    /// Unmount, and wait until the tiers are released
    Umount(UmountArgs),
    /// Show the tiers of a mounted volume
    Status(StatusArgs),
    /// Make everything durable that was written to a volume
    Sync(SyncArgs),
    /// Read files to their ends, to find what is damaged
    Scrub(ScrubArgs),
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
    /// Let what was changed in the stack file come into force on the mounted volume
    Reload(ReloadArgs),
    /// Have another version of Braid go on with a mounted volume, which stays in use
    Upgrade(UpgradeArgs),
    /// Show the stack of a mounted volume
    #[command(subcommand)]
    Stack(StackCommand),
    /// Show the workers that serve sessions of applications, and their queues
    Runtime(RuntimeArgs),
    /// Manage modules that come in libraries
    #[command(subcommand)]
    Module(ModuleCommand),
    /// Record what applications do with a volume
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Try placement policies
    #[command(subcommand)]
    Placement(PlacementCommand),
    /// See which streams of data are known
    #[command(subcommand)]
    Hints(HintsCommand),
    /// Try zoned devices without having one
    #[command(subcommand)]
    Zoned(ZonedCommand),
    /// Make, mount, check and show log-structured file systems
    #[command(subcommand)]
    Log(LogCommand),
    /// Read and write keys and values, which are the files of a directory
    #[command(subcommand)]
    Kv(KvCommand),
    /// Read files of the modules compress, encrypt and checksum without a mount
    #[command(subcommand)]
    Frames(FramesCommand),
    /// Let a tier fail, to see what happens then
    Drill(DrillArgs),
    /// Check a volume, mounted or not, and repair it
    Fsck(FsckArgs),
    /// Take Braid out of a tree: all data comes home, as plain files
    Eject(EjectArgs),
    /// Measure what the tiers can do
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print the version
    Version,
    /// Take a mount over; for `braid upgrade`
    #[command(hide = true)]
    TakeOver,
    /// Be the process of a module that is not trusted
    #[command(hide = true)]
    ModuleHost,
    /// Write the man pages and the shells' completions; for packages
    #[command(hide = true)]
    Manual(ManualArgs),
}

const CREATE_HELP: &str = "\
The directories become the volume's tiers: each is labelled as one. What is in
the home tier's directory is in the volume; the others need not be empty. A
directory that is a tier already is refused. `braid mount` takes no directory
without a label for a tier, so that nothing is made or written on the disk
beneath while a device is not mounted.

Examples:
  braid create two-tier.yaml
  braid create --tier fast=/mnt/nvme,require=mountpoint --tier slow=/mnt/sata,require=mountpoint

Exit status: 0 made, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

const MOUNT_HELP: &str = "\
Examples:
  braid mount --create two-tier.yaml /mnt/volume
  braid mount two-tier.yaml /mnt/volume
  braid mount two-tier.yaml /mnt/volume -o ro,noexec
  braid mount two-tier.yaml                 the file says where: mount: { point: /mnt/volume }
  braid mount --tier fast=/mnt/nvme,weight=400 --tier slow=/mnt/sata,weight=120 /mnt/volume
  braid mount --tier fast=/mnt/nvme --tier slow=/mnt/sata,reserve=5% --policy home-first:watermark=80% /mnt/volume

The command returns when the file system can be used; a daemon stays behind.
Exit status: 0 mounted, 1 refused or failed, 2 wrong arguments.";

const MOUNT_USAGE: &str = "\
braid mount [OPTIONS] STACK.yaml [MOUNTPOINT]
       braid mount [OPTIONS] --tier NAME=DIR … MOUNTPOINT";

#[derive(Debug, Args)]
#[command(after_help = MOUNT_HELP, override_usage = MOUNT_USAGE)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,

    /// Directory to mount on [default: what the stack file says]
    #[arg(index = 2)]
    pub(crate) mountpoint: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) front: FrontArgs,

    /// Make the volume if its tiers are all new, and let new tiers join one that is there
    #[arg(long)]
    pub(crate) create: bool,

    /// What moves data in the background: some of promote, demote and balance, or none [default: by policy]
    #[arg(long, value_name = "MOVERS", requires = "tiers")]
    pub(crate) movers: Option<String>,

    /// Measure no tiers: without this, those of unknown speed are, for about 1.3 s each at most
    #[arg(long)]
    pub(crate) no_measure: bool,

    /// Most inodes that the kernel remembers; more have it forget the oldest [default: 200000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) inodes: Option<usize>,

    /// Mount without this tier: what is on it answers EIO; repeat for each
    #[arg(long, value_name = "TIER")]
    pub(crate) without: Vec<String>,
}

/// What the file system is made of: a stack file, or flags.
#[derive(Debug, Args)]
pub(crate) struct StackArgs {
    /// Stack file
    #[arg(index = 1, value_name = "STACK.yaml")]
    pub(crate) stack: Option<PathBuf>,

    /// A tier, in place of a stack file; repeat for each
    #[arg(
        long = "tier",
        value_name = "NAME=DIR[,weight=N][,reserve=5%][,readonly=true][,require=mountpoint|uuid=UUID]"
    )]
    pub(crate) tiers: Vec<String>,

    /// The tier that holds the names and the small files [default: the first]
    #[arg(long, value_name = "NAME", requires = "tiers")]
    pub(crate) home: Option<String>,

    /// Which tier a new range goes to
    #[arg(long, value_name = "POLICY", requires = "tiers", help = braid_daemon::flags::policy_help())]
    pub(crate) policy: Option<String>,

    /// Size of a range: a power of two, 64KiB to 64MiB [default: the volume's, or 2MiB for a new one]
    #[arg(long, value_name = "SIZE", requires = "tiers")]
    pub(crate) range: Option<String>,
}

impl MountArgs {
    /// Moves the only place that is given beside `--tier` to its argument.
    pub(crate) fn settled(mut self) -> Result<Self, Failure> {
        let wrong = |text: &str| Err(Failure::usage(format!("{text} (see --help)")));
        match (&self.stack.stack, &self.mountpoint, self.stack.tiers.is_empty()) {
            (Some(_), Some(_), false) => {
                return wrong("give a stack file or --tier, not both");
            }
            (None, _, _) => {
                return wrong("give a stack file or tiers, and the directory to mount on");
            }
            (Some(_), None, false) => self.mountpoint = self.stack.stack.take(),
            (Some(place), None, true) if place.is_dir() => {
                return wrong("give a stack file, or --tier NAME=DIR for each tier");
            }
            (Some(_), _, true) => {}
        }
        Ok(self)
    }
}

const UMOUNT_HELP: &str = "\
Returns when the daemon has ended and the tiers are free for anything else.
A mount that is busy stays, and the command says who uses it. Where the volume
is mounted at another place too (a bind mount, another mount namespace), this
one is unmounted, the volume served on, and the command says for whom. A mount
whose daemon is gone is cleaned up.

A volume that is not mounted any more and still used is named by where it was
mounted, by its daemon's process id or by its own id.

Examples:
  braid umount /mnt/volume
  braid umount --lazy /mnt/volume
  braid umount --force 4711

Exit status: 0 unmounted, 1 failed (busy, for example), 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = UMOUNT_HELP)]
pub(crate) struct UmountArgs {
    /// Where it is or was mounted; its daemon's process id; its volume's id
    pub(crate) mountpoint: PathBuf,

    /// Detach a busy mount now and end it when its last user is gone; does not wait
    #[arg(long, short)]
    pub(crate) lazy: bool,

    /// End it now: programs that use it get errors, and what was not synced may be lost
    #[arg(long, short)]
    pub(crate) force: bool,

    /// Wait for the end where the volume is still used
    #[arg(long, conflicts_with = "lazy")]
    pub(crate) wait: bool,
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
  braid status /mnt/volume --check
  braid status /mnt/volume --json | jq '.tiers[] | {name, state, free}'

Exit status: 0 shown, 1 failed, 2 wrong arguments. With --check, as monitoring
has it: 0 all is well, 1 something needs attention, 2 data or room is missing,
3 it can't be told. (Wrong arguments are 2 there, too.)";

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// List the files with data on tiers that are in trouble or lost, and which bytes
    #[arg(long)]
    pub(crate) affected: bool,

    /// Show it again every so many seconds, until the volume is unmounted [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = interval, conflicts_with = "affected")]
    pub(crate) watch: Option<Duration>,

    /// Say in one line whether all is well, and by the exit status
    #[arg(long, conflicts_with_all = ["affected", "watch"])]
    pub(crate) check: bool,

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
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
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

/// Seconds between two refreshes, with or without an `s`.
fn interval(text: &str) -> Result<Duration, String> {
    parse_seconds(text, 0.1..=86_400.0)
}

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Where man1, man8 and completions are made
    pub(crate) directory: PathBuf,
}

const DRILL_HELP: &str = "\
A fault is OPERATION:EFFECT, with conditions after commas. OPERATION: all, metadata,
read, write, sync, create, remove, allocate, punch, truncate, stat, usage, label,
probe, list, descriptor. EFFECT: the name of an error, short (half of the bytes) or
hang (until the faults change). Conditions: after=N, every=N, count=N, once.
Faults that are given replace those that were armed; without any, what is armed
is shown. The daemon of root takes them from root only. MOUNT is the volume: where
it is mounted, or anything below, written with a slash; without it, that of the
working directory, or the only one.

Examples:
  braid drill slow all:EIO                        a device that dies
  braid drill slow read:hang /mnt/volume          one that hangs
  braid drill slow sync:EIO,once write:ENOSPC,after=100
  braid drill /mnt/volume                         what is armed
  braid drill slow --clear                        back to normal";

#[derive(Debug, Args)]
#[command(after_help = DRILL_HELP)]
pub(crate) struct DrillArgs {
    /// Name of the tier, any but home; then faults to arm; then the volume
    #[arg(value_names = ["TIER", "FAULT", "MOUNT"], num_args = 0..)]
    pub(crate) words: Vec<String>,

    /// Lift all faults of the tier
    #[arg(long)]
    pub(crate) clear: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const SYNC_HELP: &str = "\
What sync(1) with --file-system is for other file systems, whose system call the
kernel does not pass on to Braid: when this returns, all that was written and
changed on the volume before is on the devices of its tiers.

Examples:
  braid sync                      the only volume, or that of the working directory
  braid sync /mnt/volume

Exit status: 0 all is durable, 1 something is not, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = SYNC_HELP)]
pub(crate) struct SyncArgs {
    /// Where the volume is mounted, or anything below [default: the only one]
    pub(crate) path: Option<PathBuf>,
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

const EJECT_HELP: &str = "\
All data comes to the home tier; then every file is a plain one, in its place in
home's directory, and Braid's attributes and .braid directories are gone. The
volume must not be mounted, and home must have room for everything. With
--in-place, room is needed for less: a file that is wholly on another tier
becomes an ordinary file of that tier's directory, under the same path. What was
interrupted is gone on with by the same command; until the end, the volume can
be mounted as ever.

Examples:
  braid eject --dry-run two-tier.yaml
  braid eject two-tier.yaml
  braid eject --in-place two-tier.yaml

Exit status: 0 nothing of Braid is left (or, with --dry-run, nothing is in the
way), 1 refused, failed or interrupted, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = EJECT_HELP)]
pub(crate) struct EjectArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,

    /// Leave files that are wholly on another tier there, in its directory
    #[arg(long)]
    pub(crate) in_place: bool,

    /// Only tell what there is to do, and what is in the way
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Find how many threads saturate each tier, and write the profile that policies use
    Calibrate(CalibrateArgs),
    /// Measure requests through the runtime, or the same through the mount
    Runtime(BenchRuntimeArgs),
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

    /// The parsed arguments of a line, or the exit status.
    fn mount(line: &str) -> Result<MountArgs, i32> {
        let line = CommandLine::try_parse_from(line.split(' ')).map_err(|error| error.exit_code())?;
        match line.command {
            Command::Mount(args) => args.settled().map_err(|failure| 1 + i32::from(failure.is_usage())),
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
        assert_eq!((args.stack.stack, args.mountpoint), (Some("a.yaml".into()), Some("/mnt".into())));
        let args = mount("braid mount a.yaml -o ro,noexec -o dev").unwrap();
        assert_eq!((args.stack.stack, args.mountpoint), (Some("a.yaml".into()), None));
        assert_eq!(args.front.options, ["ro", "noexec", "dev"]);

        let args = mount("braid mount --tier a=/a --tier b=/b,weight=2 /mnt --range 1MiB").unwrap();
        assert_eq!((args.stack.stack, args.mountpoint), (None, Some("/mnt".into())));
        assert_eq!(args.stack.tiers, ["a=/a", "b=/b,weight=2"]);
    }

    #[test]
    fn flags_that_exclude_each_other() {
        for line in [
            "braid mount",
            "braid mount --tier a=/a",
            "braid mount a.yaml /mnt -o what",
            "braid mount a.yaml --tier a=/a /mnt",
            "braid mount a.yaml /mnt --policy weighted",
            "braid mount /mnt --home a",
            "braid mount /mnt --ready-on-stdout",
            "braid frobnicate",
        ] {
            assert_eq!(mount(line).unwrap_err(), 2, "{line}");
        }
    }
}
