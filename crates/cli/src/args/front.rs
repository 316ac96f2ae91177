//! The arguments of every mount, whatever is mounted.

use super::kv::KvArgs;
use clap::Args;
use std::path::PathBuf;

/// How a file system is mounted and served.
#[derive(Debug, Args)]
pub(crate) struct FrontArgs {
    /// Options of any mount, separated by commas: ro, noexec, nosuid, nodev, noatime …; repeat at will
    #[arg(long, short, value_name = "OPTIONS", value_delimiter = ',', value_parser = mount_option)]
    pub(crate) options: Vec<String>,

    /// Stay in the foreground and log to standard error
    #[arg(long, short)]
    pub(crate) foreground: bool,

    /// Threads that answer the kernel [default: 48]
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,

    /// Nice value of the daemon, -20 to 19 [default: that of the command]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) nice: Option<String>,

    /// Let other users use the mount [default for root]
    #[arg(long, overrides_with = "no_allow_other")]
    pub(crate) allow_other: bool,

    /// Keep the mount to this user [default for everybody but root]
    #[arg(long)]
    pub(crate) no_allow_other: bool,

    /// How the kernel treats the data of open files: auto, writeback, passthrough or direct
    #[arg(long, value_name = "MODE")]
    pub(crate) cache: Option<String>,

    /// Most data that the kernel keeps before it writes back [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) dirty: Option<String>,

    /// Serve extended attributes, and with them ACLs [default]
    #[arg(long, overrides_with = "no_xattr")]
    pub(crate) xattr: bool,

    /// Serve no extended attributes and no ACLs: listing and writing files takes fewer requests
    #[arg(long)]
    pub(crate) no_xattr: bool,

    /// How requests of the kernel come: auto (through io_uring where the kernel can) or device
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<String>,

    /// How long threads poll for the kernel's next request before they sleep, where that may be
    /// of use; 0us for never [default: 200us]
    #[arg(long, value_name = "TIME")]
    pub(crate) poll: Option<String>,

    /// If the daemon crashes, have another process go on with the mount, which programs wait for
    #[arg(long, overrides_with = "no_restart")]
    pub(crate) restart: bool,

    /// A crash of the daemon ends the mount [default]
    #[arg(long)]
    pub(crate) no_restart: bool,

    /// Let applications have sessions with workers of the daemon; SETTINGS are KEY=VALUE,...
    /// [default: no]
    #[arg(long, value_name = "SETTINGS", num_args = 0..=1, require_equals = true, default_missing_value = "", overrides_with = "no_runtime")]
    pub(crate) runtime: Option<String>,

    /// Let applications have no sessions [default]
    #[arg(long)]
    pub(crate) no_runtime: bool,

    /// Tell Prometheus metrics there: 127.0.0.1:PORT, [::1]:PORT or unix:/PATH [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

    #[command(flatten)]
    pub(crate) kv: KvArgs,

    /// Mount over a directory that is not empty, and hide what is in it
    #[arg(long)]
    pub(crate) nonempty: bool,

    /// Where the daemon logs [default: below /var/log/braid, or ~/.local/state/braid for users]
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// error, warn, info, debug or trace; or a filter such as info,braid_volume=debug
    #[arg(long, value_name = "LEVEL", default_value = braid_daemon::log::LEVEL_DEFAULT)]
    pub(crate) log_level: String,

    /// Set by the command itself when it starts the daemon
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) ready_on_stdout: bool,

    /// Set by the command itself when it guards the daemon, to which its standard input leads
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) guarded: bool,
}

fn mount_option(text: &str) -> Result<String, String> {
    braid_daemon::config::mount_option(text)
}
