//! Settings of a file system in use.

/// Bytes of log after which a checkpoint is made, at least.
const LOG_DEFAULT: u64 = 16 << 20;

/// Settings of a file system in use; none are on the device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Workers, each with a log and a share of the blocks: 1 to 64.
    pub workers: usize,
    /// A checkpoint is made when the logs have so many bytes, or, if that is more, as
    /// many as the image of the last checkpoint.
    pub log_bytes: u64,
    /// Whether to note the names of commands, by their process ids.
    pub commands: bool,
    /// A mistake to make; for tests, which have to find it.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { workers: 4, log_bytes: LOG_DEFAULT, commands: true, planted: None }
    }
}

/// Mistakes that tests have to find.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A commit does not flush the device.
    SkipFlush,
    /// Blocks are given out again before it is durable that they are free.
    ReuseAtOnce,
    /// Recovery believes records whose data did not reach the device.
    TrustData,
    /// The superblock leads to an image that may not be durable.
    SwitchEarly,
}
