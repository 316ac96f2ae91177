//! The arguments of `braid hints`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum HintsCommand {
    /// List the streams that are known, and how they are recognised
    List(HintsListArgs),
    /// Tell which stream a file belongs to by its path
    Explain(HintsExplainArgs),
    /// Make a profile of what files did in a recorded trace
    Learn(HintsLearnArgs),
}

const LIST_HELP: &str = "\
Streams are classes of data that die together: logs, tables, temporary files. Tiers
on zoned devices keep them apart, and other devices are told how long each is
expected to live. Without a stack file, these are the profiles that come with Braid.
With a mount, they are the streams that its volume has learned so far.

Examples:
  braid hints list
  braid hints list --mount /mnt/volume
  braid hints list volume.yaml --json";

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct HintsListArgs {
    /// Stack file, for its rules and profiles
    #[arg(value_name = "STACK.yaml")]
    pub(crate) stack: Option<PathBuf>,

    /// Mounted volume, for what it has learned
    #[arg(long, value_name = "DIR", conflicts_with = "stack")]
    pub(crate) mount: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXPLAIN_HELP: &str = "\
The path is that below the mount; the file need not exist, and counts as empty. Of
one that exists, braid explain tells it too. With --mount, streams that the volume
has learned count where no profile that comes with Braid, or of the stack file given
by --stack, knows the file.

Examples:
  braid hints explain db/000123.sst --thread rocksdb:high
  braid hints explain --stack volume.yaml mail/cur/1700000000.M1P2.host

Exit status: 0 there is a stream, 1 there is none or an error, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
pub(crate) struct HintsExplainArgs {
    /// Path below the mount
    pub(crate) path: String,

    /// Stack file, for its rules and profiles
    #[arg(long, value_name = "STACK.yaml")]
    pub(crate) stack: Option<PathBuf>,

    /// Mounted volume, for what it has learned
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,

    /// Name of the process that writes it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) program: String,

    /// Name of the thread that writes it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) thread: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const LEARN_HELP: &str = "\
Files whose paths differ in numbers only count as one kind. Kinds that lived alike and
were written alike become a stream; the profile tells them by their paths. Add it to a
stack file by the key hints: { profiles: [ mail.yaml, all ] }.

Examples:
  braid trace record /mnt/volume --output mail.trace --duration 1h
  braid hints learn --trace mail.trace --out mail.yaml

Exit status: 0 written, 1 nothing to learn or an error, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = LEARN_HELP)]
pub(crate) struct HintsLearnArgs {
    /// Trace that was recorded by braid trace record
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// New file for the profile, which is called like it; without, it is printed
    #[arg(long, value_name = "PROFILE")]
    pub(crate) out: Option<PathBuf>,
}
