//! How to mount. Used by `session` and `front`.

use crate::ledger::Ledger;
use std::sync::Arc;
use std::time::Duration;

/// How to mount.
#[derive(Clone, Debug)]
pub struct FuseConfig {
    /// Most threads that serve requests: of each processor, where they come
    /// through io_uring. At least one is used.
    pub threads: usize,
    /// Whether requests may come through io_uring.
    pub rings: bool,
    /// How long a thread that has answered a request polls for the next one, where that may be
    /// of use, before it sleeps. Zero: not at all.
    pub poll: Duration,
    /// Whether to let other users than the mounting one in, as far as
    /// permissions go.
    pub allow_other: bool,
    /// Whether extended attributes are served, and with them ACLs. Without,
    /// the kernel asks for none.
    pub xattrs: bool,
    /// How the kernel treats the data of open files.
    pub cache: CacheMode,
    /// The most bytes that the kernel keeps before it writes back.
    pub dirty_max: u64,
    /// Source in the mount table.
    pub fs_name: String,
    /// Options that mean the same for every mount: some of
    /// [`generic_options`](crate::generic_options).
    pub options: Vec<String>,
    /// Where open files are noted, for a process that goes on after a crash of this one.
    /// Requests come by the device then: those in a ring would be lost.
    pub ledger: Option<Arc<Ledger>>,
}

/// How the kernel treats the data of open files. It is one for a whole mount:
/// write-back caching and passthrough exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheMode {
    /// Writes stay in the kernel's page cache and reach the file system later,
    /// many at once. The kernel owns size and times of a file while it knows
    /// it.
    WriteBack,
    /// The kernel does the I/O of files on their backing files, where the file
    /// system offers one; this needs a privileged daemon and Linux 6.9. Writes
    /// to others reach the file system at once.
    Passthrough,
    /// Each read and write reaches the file system.
    Direct,
}
