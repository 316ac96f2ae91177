//! Settings of a file system in use.

/// Bytes of log after which a checkpoint is made, at least.
const LOG_DEFAULT: u64 = 16 << 20;

/// Settings of a file system in use; none are on the device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Workers, each with a log and a share of the blocks: 1 to 64.
    pub workers: usize,
    /// A checkpoint is made when the logs have this many bytes, or as many as the image of
    /// the last checkpoint, if that is more.
    pub log_bytes: u64,
    /// Whether to note the names of commands, by their process ids.
    pub commands: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { workers: 4, log_bytes: LOG_DEFAULT, commands: true }
    }
}
