//! The arguments of `braid tier`.

use super::{EvacuateArgs, StartArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum TierCommand {
    /// List the tiers, with how they are set
    List(TierListArgs),
    /// Make a directory one more tier, while the volume is mounted
    Add(TierAddArgs),
    /// Change settings of a tier, while the volume is mounted
    Set(TierSetArgs),
    /// Take a tier out of the volume, while it is mounted
    Remove(TierRemoveArgs),
    /// Put an empty directory in the place of the home tier, or of a tier that is lost, while the volume is mounted
    Replace(ReplaceArgs),
    /// Move everything off a tier, which takes no new data from then on
    Evacuate(EvacuateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TierListArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Print JSON, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
}

const TIER_ADD_HELP: &str = "\
The directory is used at once, for new data by the policy. The stack file that
the volume was mounted with is changed too; where that can't be done, the
command says what to put in.

Examples:
  braid tier add archive=/mnt/sata2
  braid tier add archive=/mnt/sata2,weight=120,reserve=5% /mnt/volume";

#[derive(Debug, Args)]
#[command(after_help = TIER_ADD_HELP)]
pub(crate) struct TierAddArgs {
    /// Name and directory, which is on a native file system; settings as in a stack file
    #[arg(value_name = "NAME=DIR[,weight=N][,reserve=5%][,readonly=true][,require=mountpoint|uuid=UUID]")]
    pub(crate) tier: String,

    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const TIER_SET_HELP: &str = "\
SETTING is one of
  weight=NUMBER     the share of the tier when data is dealt by weight, in MB/s; auto: measured
  reserve=AMOUNT    space to leave free, such as 5% or 10GiB; default: 1%, at most 1 GiB
  require=WHAT      mountpoint or uuid=UUID: what the directory must be at a mount; nothing: no more
  readonly          no new data, and what is written to data that is there goes elsewhere
  readonly=no       back to normal
It counts at once and, by way of the stack file, at later mounts. MOUNT is the
volume: where it is mounted, or anything below, written with a slash; without it,
that of the working directory, or the only one.

Examples:
  braid tier set slow weight=90 reserve=10GiB
  braid tier set slow readonly /mnt/volume";

#[derive(Debug, Args)]
#[command(after_help = TIER_SET_HELP)]
pub(crate) struct TierSetArgs {
    /// Name of the tier
    pub(crate) tier: String,

    /// What to set; then the volume
    #[arg(value_names = ["SETTING", "MOUNT"], num_args = 1.., required = true)]
    pub(crate) settings: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const TIER_REMOVE_HELP: &str = "\
What is on the tier is moved to the others first, by a job that goes on if the
command is interrupted; refused, with the numbers, if they have no room. Its
directory is cleared of what is Braid's, and can be used anew. The stack file
follows. Home can't be removed.

Examples:
  braid tier remove slow
  braid tier remove slow --no-evacuate /mnt/volume";

#[derive(Debug, Args)]
#[command(after_help = TIER_REMOVE_HELP)]
pub(crate) struct TierRemoveArgs {
    /// Name of the tier
    pub(crate) tier: String,

    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Refuse a tier that holds something, rather than move that away first
    #[arg(long, conflicts_with_all = ["bandwidth", "background"])]
    pub(crate) no_evacuate: bool,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}

const REPLACE_HELP: &str = "\
A tier that is well is replaced by a new one, NAME=DIR with settings as of braid
tier add: that joins, everything is moved to it (what it has no room for, to the
others), and the old tier is removed. Refused, with the numbers, if there is no
room. The home tier, which keeps its name, is copied to DIR and goes on there.
Both are jobs: Ctrl-C ends this command and leaves them running (braid job).

A tier that is failing, hangs or is absent is replaced by the empty directory DIR
at once. What was on it is lost: those bytes answer EIO until their files are cut
or removed.

The volume is used meanwhile, and the stack file follows.

Examples:
  braid tier replace slow archive=/mnt/new-sata,weight=200
  braid tier replace fast /mnt/new-nvme /mnt/volume --bandwidth 200MiB/s
  braid status /mnt/volume --affected
  braid tier replace dead /mnt/other-sata /mnt/volume";

#[derive(Debug, Args)]
#[command(after_help = REPLACE_HELP)]
pub(crate) struct ReplaceArgs {
    /// Name of the tier
    pub(crate) tier: String,

    /// Empty directory on a native file system; of a tier that is well, with the new one's name
    #[arg(value_name = "DIR|NAME=DIR[,SETTING...]")]
    pub(crate) new: PathBuf,

    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) start: StartArgs,
}
