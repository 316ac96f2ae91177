//! The arguments of `braid kv`, and of mounts that serve keys and values.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Read the value of a key
    Get(KvGetArgs),
    /// Give a key a value
    Put(KvPutArgs),
    /// Remove keys
    Delete(KvDeleteArgs),
    /// List keys in the order of their bytes
    Scan(KvScanArgs),
}

const STATUS: &str = "\
Exit status: 0 done, 1 refused or failed, 2 wrong arguments, 3 the key is not there, or
is there and must not be.";

#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct KvGetArgs {
    /// A directory of a mounted Braid file system, or a stack file with 'exec: direct'
    pub(crate) dir: PathBuf,

    /// The key
    pub(crate) key: OsString,

    /// The key is written as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,

    /// Write the value there [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

const PUT_HELP: &str = "\
A reader sees the old value or the new one. The file of a new key has the mode that the
umask leaves; one that is there keeps its mode and owner.

Examples:
  braid kv put /mnt/log/users alice 'some text'
  braid kv put /mnt/log/users alice --input photo.jpg --if absent
  tar c . | braid kv put /mnt/log/backups today --sync

Exit status: 0 done, 1 refused or failed, 2 wrong arguments, 3 the key is not there, or
is there and must not be.";

#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub(crate) struct KvPutArgs {
    /// A directory of a mounted Braid file system, or a stack file with 'exec: direct'
    pub(crate) dir: PathBuf,

    /// The key
    pub(crate) key: OsString,

    /// The value [default: what standard input has]
    #[arg(conflicts_with = "input")]
    pub(crate) value: Option<OsString>,

    /// The key is written as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,

    /// Read the value from there
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Only if the key is absent, or present
    #[arg(long = "if", value_name = "STATE", value_enum)]
    pub(crate) when: Option<KeyState>,

    /// Return when it is durable
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Whether a key is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyState {
    Absent,
    Present,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct KvDeleteArgs {
    /// A directory of a mounted Braid file system, or a stack file with 'exec: direct'
    pub(crate) dir: PathBuf,

    /// The keys
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,

    /// Keys are written as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,

    /// Return when it is durable
    #[arg(long)]
    pub(crate) sync: bool,
}

const SCAN_HELP: &str = "\
One key a line, with what is unprintable escaped; --json has all bytes.

Exit status: 0 done, 1 refused or failed, 2 wrong arguments.";

#[derive(Debug, Args)]
#[command(after_help = SCAN_HELP)]
pub(crate) struct KvScanArgs {
    /// A directory of a mounted Braid file system, or a stack file with 'exec: direct'
    pub(crate) dir: PathBuf,

    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: OsString,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY", default_value = "")]
    pub(crate) from: OsString,

    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,

    /// So many keys at most
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<usize>,

    /// With values: only with --json
    #[arg(long, requires = "json")]
    pub(crate) values: bool,

    /// As JSON: an object a line, with key and value as hexadecimal digits, too
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a mount serves keys and values.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KvArgs {
    /// Serve keys and values by the Redis protocol there: unix:/PATH, 127.0.0.1:PORT; repeat for each
    #[arg(long = "kv", value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,

    /// The directory whose files are the values, below the root of the file system [default: the root]
    #[arg(long = "kv-directory", value_name = "DIR", requires = "listen")]
    pub(crate) directory: Option<String>,

    /// A file with the password that clients have to say, in its first line
    #[arg(long = "kv-password-file", value_name = "FILE", requires = "listen")]
    pub(crate) password_file: Option<String>,

    /// Whose rights clients of ports have [default: those of who mounts]
    #[arg(long = "kv-user", value_name = "USER", requires = "listen")]
    pub(crate) user: Option<String>,
}
