//! The arguments of the commands for traces.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Record the reads and writes of a mounted volume into a file
    Record(TraceRecordArgs),
}

const TRACE_RECORD_HELP: &str = "\
Records until Ctrl-C, or as long or as much as is said: each read, write and
what else matters for placement, one JSON object a line (docs/trace.md). It
holds no program up: what comes too fast is left out, counted and told. Names of
files are recorded, contents are not. Only root and the user who mounted may.
What the kernel reads and writes by itself (passthrough) is not seen, and writes
are seen as its cache writes them back; to see each call, mount with
--cache direct.

Examples:
  braid trace record /mnt/volume --output db.trace
  braid trace record /mnt/volume --duration 60s --size 1GiB
  braid trace record --path 'db/**'";

#[derive(Debug, Args)]
#[command(after_help = TRACE_RECORD_HELP)]
pub(crate) struct TraceRecordArgs {
    /// The volume: where it is mounted, or anything below [default: that of the working directory, or the only one]
    #[arg(value_name = "MOUNT")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Where the trace goes; there must not be such a file yet
    #[arg(long, value_name = "FILE", default_value = "braid.trace")]
    pub(crate) output: PathBuf,

    /// How long, such as 90s or 5m [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION")]
    pub(crate) duration: Option<String>,

    /// How large the file may become, such as 1GiB [default: any size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,

    /// Only files whose paths match this pattern, as in a rule
    #[arg(long, value_name = "GLOB")]
    pub(crate) path: Option<String>,

    /// Print what was recorded as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlacementCommand {
    /// Replay a trace against policies, without moving anything
    Simulate(SimulateArgs),
}

const SIMULATE_HELP: &str = "\
The stack file says what the tiers can do (its profile, or weights in MB/s), its
rules and its policy. Nothing else of it is touched: the directories need not be
there. Each thread of the trace goes on as it did, as much later as it thought
between two operations; docs/trace.md has the model and its limits.

Examples:
  braid placement simulate two-tier.yaml --trace db.trace
  braid placement simulate two-tier.yaml --trace db.trace --policy adaptive --policy size:small=1MiB
  braid placement simulate two-tier.yaml --trace db.trace --capacity fast=100GiB --as-fast-as-possible --json";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub(crate) struct SimulateArgs {
    /// Stack file
    #[arg(value_name = "STACK.yaml")]
    pub(crate) stack: PathBuf,

    /// What braid trace record has written
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// A policy, as for braid mount; repeat for each [default: the stack file's own, and all that there are]
    #[arg(long = "policy", value_name = "POLICY")]
    pub(crate) policies: Vec<String>,

    /// What a tier has room for, its reserve included; repeat for each [default: everything]
    #[arg(long = "capacity", value_name = "TIER=SIZE")]
    pub(crate) capacities: Vec<String>,

    /// Let no thread wait between its operations
    #[arg(long)]
    pub(crate) as_fast_as_possible: bool,

    /// The devices are throttled by the kernel: reads and writes do not slow each other down
    #[arg(long)]
    pub(crate) throttled: bool,

    /// Print JSON, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
}
