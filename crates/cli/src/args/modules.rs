//! The arguments of `braid module`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ModuleCommand {
    /// List the modules that a stack file may name
    List(ModuleListArgs),

    /// Have another version of a module go on in a mounted stack
    Upgrade(ModuleUpgradeArgs),

    /// Have one module alone carry out what a trace has
    Debug(ModuleDebugArgs),

    /// Change where modules are looked for
    #[command(subcommand)]
    Repo(RepoCommand),

    /// Print the C header for modules
    Header,
}

const LIST_HELP: &str = "\
Modules are built in, or libraries NAME.so in the directories of braid module repo
list. A library that can't be loaded is listed with the reason.

Examples:
  braid module list";

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ModuleListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const UPGRADE_HELP: &str = "\
Operations are held up until those under way have ended; the new module takes over
what the old one has gathered, and goes on. If it does not take it, or takes more
than five seconds, the old one goes on. A mount that is made later takes the module
that the repositories have then.

Examples:
  braid module upgrade audit                       the repository has another file now
  braid module upgrade audit --to ./audit.so /mnt/volume

Exit status: 0 upgraded, 1 not, and the module before goes on.";

#[derive(Debug, Args)]
#[command(after_help = UPGRADE_HELP)]
pub(crate) struct ModuleUpgradeArgs {
    /// The module
    pub(crate) name: String,

    /// Where the volume is mounted, or anything below [default: the one that there is]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// The library that is to go on [default: that of the repositories]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DEBUG_HELP: &str = "\
The operations of the trace are carried out one by one on a volume of one directory,
which is made in the directory for temporary files and removed afterwards: without
the module, then with it. What is read has to be what was written. With --repair,
another module goes on afterwards as after a crash: with the state that would have
been kept, and by its function for repairs.

Examples:
  braid module debug keep --trace db.trace --settings 'suffix: .keep'
  braid module debug keep --trace db.trace --settings 'suffix: .keep' --repair

Exit status: 0 all went well, 1 an operation or the repair failed, or something else
was read, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = DEBUG_HELP)]
pub(crate) struct ModuleDebugArgs {
    /// The module
    pub(crate) name: String,

    /// A trace, from braid trace record
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// The module's settings, as in a stack file
    #[arg(long, value_name = "YAML", default_value = "")]
    pub(crate) settings: String,

    /// Have another one go on afterwards, as after a crash
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RepoCommand {
    /// Look for modules in a directory too
    Add(RepoArgs),

    /// Look for modules in a directory no more
    Remove(RepoArgs),

    /// List the directories in which modules are looked for
    List(ModuleListArgs),
}

const REPO_HELP: &str = "\
Each user has a list, which counts for the volumes that the user mounts. Modules that
are in use stay so.

Examples:
  braid module repo add /opt/modules
  braid module repo remove /opt/modules";

#[derive(Debug, Args)]
#[command(after_help = REPO_HELP)]
pub(crate) struct RepoArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
