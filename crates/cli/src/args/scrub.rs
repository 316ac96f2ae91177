//! The arguments of `braid scrub`.

use braid_contract::units::parse_rate;
use clap::Args;
use std::path::PathBuf;

const SCRUB_HELP: &str = "\
Reads files to their ends, past the kernel's cache of the mount. The modules compress,
encrypt and checksum check all that is read; without them, what a device can't read is
found. Parts that can't be read are listed; the mount's log names the frames.
Nothing is changed: write such a part anew, or bring the file back from a backup.

With --background, a volume reads them itself, as a job: as slowly as applications need
it, from where it was after a restart, and, without these three modules, past the
kernel's caches of the tiers, too. It fails if something can't be read (braid job show);
the mount's log lists all parts.

Examples:
  braid scrub /mnt/all
  braid scrub --bandwidth 50MiB/s --json /mnt/all/archive
  braid scrub --background /mnt/all

Exit status: 0 all was read (or, with --background, the jobs were started), 1 something
can't be read or the command was interrupted, 2 wrong arguments.";

fn rate(text: &str) -> Result<u64, String> {
    match parse_rate(text)? {
        0 => Err("nothing would be read".to_owned()),
        rate => Ok(rate),
    }
}

#[derive(Debug, Args)]
#[command(after_help = SCRUB_HELP)]
pub(crate) struct ScrubArgs {
    /// Files, and directories with all below, as far as they are on one mount
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Read no more than this, such as 50MiB/s
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) bandwidth: Option<u64>,

    /// Start a job for each path, for root and the user who mounted (docs/jobs.md)
    #[arg(long)]
    pub(crate) background: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
