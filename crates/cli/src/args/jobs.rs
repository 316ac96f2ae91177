//! The arguments of the commands that move data, pin files, and steer jobs.

use braid_ipc::protocol::JobId;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const MOVE_HELP: &str = "\
The command waits and shows how far it is; Ctrl-C leaves the job running.
Files that are in use by the kernel itself are tried again until they are free,
pinned ones are left where they are. docs/jobs.md says more.

Examples:
  braid move /mnt/volume/archive --to slow
  braid move /mnt/volume/db.sqlite --to fast --bandwidth 50MiB/s --background
  braid job list /mnt/volume

Exit status: 0 done (or, with --background, started), 1 refused, failed or
cancelled, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = MOVE_HELP)]
pub(crate) struct MoveArgs {
    /// File or directory in a Braid file system
    pub(crate) path: PathBuf,

    /// Name of the tier
    #[arg(long, value_name = "TIER")]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// How a job is started.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Move at most so much a second, such as 50MiB/s
    #[arg(long, value_name = "RATE")]
    pub(crate) bandwidth: Option<String>,

    /// Do not wait for the end
    #[arg(long)]
    pub(crate) background: bool,

    /// Print the job as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const SPEED_HELP: &str = "\
How fast a tier is follows from what was seen of it (braid status), or else from
its weight; with the policy home-first, home comes first. Data that is on a tier as good already, or for which better ones have
no room, stays where it is.

Examples:
  braid promote /mnt/volume/project
  braid demote /mnt/volume/archive --background

Exit status: as of braid move.";

#[derive(Debug, Args)]
#[command(after_help = SPEED_HELP)]
pub(crate) struct PathArgs {
    /// File or directory in a Braid file system
    pub(crate) path: PathBuf,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

const REBALANCE_HELP: &str = "\
Each file by itself gets in proportion what the policy would give it if it was
written now. Small differences, small files and pinned ones are left.

Examples:
  braid rebalance /mnt/volume
  braid rebalance --bandwidth 100MiB/s --background

Exit status: as of braid move.";

#[derive(Debug, Args)]
#[command(after_help = REBALANCE_HELP)]
pub(crate) struct RebalanceArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

const IMPORT_HELP: &str = "\
Files and directories that were in the tier's directory before it was a tier
get their place in the volume, under the same paths, and their data stays where
it is: nothing is copied. Where the volume has something of that name, that is
what stays visible, and the tier's file stays where it is; directories are
merged. --dry-run names what stays.

Examples:
  braid import disk2 --dry-run
  braid import disk2 /mnt/all

Exit status: as of braid move.";

#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct ImportArgs {
    /// The tier; not home, whose files are the volume's
    #[arg(value_name = "TIER")]
    pub(crate) tier: String,

    /// Where the volume is mounted, or anything below [default: the only one, or that of the working directory]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Only tell what would come in, and what would stay
    #[arg(long, conflicts_with = "background")]
    pub(crate) dry_run: bool,

    /// Do not wait for the end
    #[arg(long)]
    pub(crate) background: bool,

    /// Print the job, or what there is to do, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EVACUATE_HELP: &str = "\
Refused, with the numbers, if the other tiers have no room for what is on it.
When the job is done, the tier is empty and stays so, until --undo. A job that
is cancelled or fails lets it take new data again. Pinned files move, too.

Examples:
  braid tier evacuate slow /mnt/volume
  braid tier evacuate slow --bandwidth 80MiB/s --background
  braid tier evacuate slow --undo

Exit status: as of braid move.";

#[derive(Debug, Args)]
#[command(after_help = EVACUATE_HELP)]
pub(crate) struct EvacuateArgs {
    /// Name of the tier, any but home
    pub(crate) tier: String,

    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Let a tier that was emptied take new data again
    #[arg(long, conflicts_with_all = ["bandwidth", "background", "json"])]
    pub(crate) undo: bool,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

const PIN_HELP: &str = "\
Promotion, demotion, rebalancing and moves of a directory pass a pinned file
over. With --to, it is moved to that tier first, and pinned there. New data of
the file goes where the policy wants it. braid explain tells whether it is pinned.

Examples:
  braid pin /mnt/volume/db.sqlite --to fast
  braid pin /mnt/volume/project --recursive
  braid unpin /mnt/volume/project --recursive";

#[derive(Debug, Args)]
#[command(after_help = PIN_HELP)]
pub(crate) struct PinArgs {
    /// File, or directory with --recursive
    pub(crate) path: PathBuf,

    /// Move it to this tier, and leave it there
    #[arg(long, value_name = "TIER")]
    pub(crate) to: Option<String>,

    /// All files that are in the directory now
    #[arg(long, short)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

#[derive(Debug, Args)]
#[command(after_help = PIN_HELP)]
pub(crate) struct UnpinArgs {
    /// File, or directory with --recursive
    pub(crate) path: PathBuf,

    /// All files that are in the directory now
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const JOB_HELP: &str = "\
A job goes on after the daemon was restarted or killed, unless it is paused. The
last 32 that have ended are listed. The movers that are on, promote, demote and
balance, are jobs too, which never end: their names stand for numbers.

A job slows down on tiers where applications would wait for it; guard=no lets
it go on as fast as it may. docs/jobs.md says more.

Examples:
  braid job list
  braid job show 3 --follow
  braid job set 3 bandwidth=20MiB/s
  braid job set 3 guard=no
  braid job pause promote
  braid job wait 3 4 /mnt/volume

Exit status: 0 if it was done, 1 if not: no such job, or it is in a state that
does not allow it; of wait, also if a job failed or was cancelled; 2 wrong
arguments.";

#[derive(Debug, Subcommand)]
#[command(after_help = JOB_HELP)]
pub(crate) enum JobCommand {
    /// Show all jobs
    List(JobListArgs),
    /// Show one job
    Show(JobShowArgs),
    /// Wait until jobs have ended
    Wait(JobWaitArgs),
    /// Stop a job, so that it can go on later
    Pause(JobIdArgs),
    /// Let a paused job go on
    Resume(JobIdArgs),
    /// End a job; what was moved stays where it is
    Cancel(JobIdArgs),
    /// Change how fast a job may go, and whether it slows down for applications
    Set(JobSetArgs),
}

/// Which volume, and how the answer is printed.
#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobIdArgs {
    /// Number of the job, or promote, demote or balance
    pub(crate) id: JobId,

    #[command(flatten)]
    pub(crate) list: JobListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JobShowArgs {
    /// Number of the job, or promote, demote or balance
    pub(crate) id: JobId,

    /// Show how far it is until it has ended
    #[arg(long, short)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) list: JobListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JobWaitArgs {
    /// Numbers of the jobs; then the volume: where it is mounted, or anything below, written with a slash
    /// [default: that of the working directory, or the only one]
    #[arg(value_names = ["ID", "MOUNT"], num_args = 1.., required = true)]
    pub(crate) words: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobSetArgs {
    /// Number of the job, or promote, demote or balance
    pub(crate) id: JobId,

    /// bandwidth=50MiB/s, bandwidth=none, guard=no or guard=yes
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) setting: String,

    #[command(flatten)]
    pub(crate) list: JobListArgs,
}
