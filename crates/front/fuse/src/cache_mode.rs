//! The setting of the kernel's data cache. Used by `session` and `front`.

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
