//! The arguments of `braid frames`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum FramesCommand {
    /// Print the data of a file in frames
    Cat(CatArgs),
}

const CAT_HELP: &str = "\
The modules compress, encrypt and checksum store files in frames. This reads such a
file as it lies on the home tier of a volume that is not mounted, or as the rescue
script has put it together. Frames that are damaged are printed as zeros, and listed.

Examples:
  braid frames cat /mnt/nvme/notes.txt > notes.txt
  braid frames cat --key-file /etc/braid/key rescued/notes.txt > notes.txt

Exit status: 0 printed, 1 refused, failed or damaged, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = CAT_HELP)]
pub(crate) struct CatArgs {
    /// The file
    pub(crate) file: PathBuf,

    /// The key, if the file is encrypted: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}
