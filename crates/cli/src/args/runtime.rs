//! The arguments of `braid runtime` and `braid bench runtime`.

use braid_contract::Class;
use braid_contract::units::{parse_seconds, parse_size};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const RUNTIME_HELP: &str = "\
A worker serves queues of applications that have a session with the mount. With
the dynamic policy there are as few workers as the load allows.

Examples:
  braid runtime /mnt/all
  braid runtime /mnt/all --json

Exit status: 0 shown, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = RUNTIME_HELP)]
pub(crate) struct RuntimeArgs {
    /// A mount point, or any path below it [default: the only mount]
    pub(crate) path: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_HELP: &str = "\
Has clients do one thing over and over for some seconds, each by itself, in a new
directory below DIR that is removed in the end: through the runtime, through the
mount as any program, or in this process, on the stack of a file. Prints how many
operations a second there were, and how long each took.

Examples:
  braid bench runtime /mnt/all
  braid bench runtime /mnt/all --load create --through mount
  braid bench runtime /mnt/all --load write --size 1MiB --clients 4 --json
  braid bench runtime values.yaml --load put --through direct

Exit status: 0 measured, 1 refused or failed, 2 wrong arguments.";

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Load {
    /// Ask for the attributes of a file
    Stat,
    /// Make empty files
    Create,
    /// Read at random places of a file
    Read,
    /// Write at random places of a file
    Write,
    /// Put values of the size under new keys; through the mount, a file each
    Put,
    /// Get them by keys at random
    Get,
    /// Do one thing after another that would show if it were done twice or not at all, and check it
    Deeds,
}

/// The way to the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Through {
    /// By queues in shared memory
    Runtime,
    /// By system calls
    Mount,
    /// In this process, which opens the stack of a file itself
    Direct,
}

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct BenchRuntimeArgs {
    /// A directory of a mount, in which this user may make another; or a stack file with
    /// 'exec: direct'
    pub(crate) dir: PathBuf,

    /// What clients do
    #[arg(long, value_enum, default_value = "stat")]
    pub(crate) load: Load,

    /// How they get to the file system
    #[arg(long, value_enum, default_value = "runtime")]
    pub(crate) through: Through,

    /// Clients at the same time, each in a thread, up to 64
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) clients: usize,

    /// Size of one read or write, or of a value
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    pub(crate) size: u64,

    /// Size of each client's file, or of all values that it gets
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    pub(crate) file: u64,

    /// What the runtime takes the requests for: auto, latency or throughput
    #[arg(long, value_name = "CLASS", default_value = "auto", value_parser = Class::parse)]
    pub(crate) class: Class,

    /// How long to measure, in seconds
    #[arg(long, value_name = "N", default_value = "3", value_parser = |text: &str| parse_seconds(text, 0.01..=3600.0))]
    pub(crate) seconds: Duration,

    /// Wait so long between two operations of a client, in seconds
    #[arg(long, value_name = "N", default_value = "0", value_parser = |text: &str| parse_seconds(text, 0.0..=60.0))]
    pub(crate) pause: Duration,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
