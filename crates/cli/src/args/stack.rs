//! Arguments of the commands that change or show what serves a mounted volume.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StackCommand {
    /// Check whether a stack file can be mounted, without mounting it
    Check(StackCheckArgs),

    /// Print a stack file that makes a mount like this one
    Dump(StackDumpArgs),

    /// List the stacks that are mounted
    List(StackListArgs),

    /// Exchange, add and remove modules of a mounted stack
    Modify(StackModifyArgs),

    /// Print the JSON schema of stack files, for editors
    Schema,
}

const RELOAD_HELP: &str = "\
The stack file that the volume was mounted with is read and checked first; then
policy, rules, movers, settings of tiers and new tiers come into force, all or
nothing. What counts for a mount as a whole is refused, with the line. A tier
leaves by braid tier remove, which takes it out of the file too. SIGHUP makes
the daemon do the same, and log how that went.

Examples:
  braid reload --dry-run
  braid reload /mnt/volume";

#[derive(Debug, Args)]
#[command(after_help = RELOAD_HELP)]
pub(crate) struct ReloadArgs {
    /// Where the volume is mounted, anything below, or its stack file [default: the one that there is]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Only tell what would change
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const UPGRADE_HELP: &str = "\
Operations on the volume are held up for as long as the other program needs to
open it; what is open stays open, and none fails. If the program can't take the
mount over, the one before goes on. Jobs go on, recordings end.

Examples:
  braid upgrade                                   after a new package was installed
  braid upgrade --to /opt/braid-next/braid /mnt/volume
  braid upgrade --all

Exit status: 0 upgraded, 1 not, and the program before goes on.";

#[derive(Debug, Args)]
#[command(after_help = UPGRADE_HELP)]
pub(crate) struct UpgradeArgs {
    /// Where the volume is mounted, anything below, or its stack file [default: the one that there is]
    pub(crate) mountpoint: Option<PathBuf>,

    /// All volumes that this user may upgrade
    #[arg(long, conflicts_with = "mountpoint")]
    pub(crate) all: bool,

    /// The program that is to go on [default: the one that this command is]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) to: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const STACK_MODIFY_HELP: &str = "\
The modules of the file, with their settings, come into force while programs use
the volume, all or nothing. What the file says of the volume and the mount does
not count; braid stack dump prints a file to begin with. The stack file of the
mount stays as it is.

Examples:
  braid stack dump /mnt/volume >new.yaml
  braid stack modify /mnt/volume new.yaml --dry-run
  braid stack modify /mnt/volume new.yaml";

#[derive(Debug, Args)]
#[command(after_help = STACK_MODIFY_HELP)]
pub(crate) struct StackModifyArgs {
    /// The volume: where it is mounted, or anything below
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: PathBuf,

    /// The stack file with the modules
    #[arg(value_name = "FILE")]
    pub(crate) stack: PathBuf,

    /// Only tell what would change
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const STACK_CHECK_HELP: &str = "\
Checks the settings of all modules, and the tiers: that each is there, and none
is inside another. Nothing is changed.

Examples:
  braid stack check volume.yaml";

#[derive(Debug, Args)]
#[command(after_help = STACK_CHECK_HELP)]
pub(crate) struct StackCheckArgs {
    /// Stack file
    #[arg(value_name = "STACK.yaml")]
    pub(crate) stack: PathBuf,
}

const STACK_LIST_HELP: &str = "\
Of root's mounts and one's own; root sees all. Modules are listed from the top
down; those of another user's mount are not told.

Examples:
  braid stack list";

#[derive(Debug, Args)]
#[command(after_help = STACK_LIST_HELP)]
pub(crate) struct StackListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const STACK_DUMP_HELP: &str = "\
What is printed has all that is set now: tiers that were added, settings that
were changed, flags of the mount.

Examples:
  braid stack dump /mnt/volume > volume.yaml";

#[derive(Debug, Args)]
#[command(after_help = STACK_DUMP_HELP)]
pub(crate) struct StackDumpArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,
}
