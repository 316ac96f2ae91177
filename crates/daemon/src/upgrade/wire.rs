//! Messages between the two processes.

use super::launch::Launch;
use super::state::Text;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of this conversation, and of what is handed over. Fields may be added to
/// either without a new one, if the other side can do without them.
pub(super) const VERSION: u32 = 2;

/// How long the requests may take that were made to hold others up. Until they are
/// answered, the mount can't be unmounted.
pub(super) const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// What one process says to the other, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// The heir is there.
    Hello { version: u32, program: String },
    /// What it would have to mount.
    Offer(Box<Launch>),
    /// It could, as far as it can tell.
    Ready,
    /// What is handed over, with descriptors: the device, the control socket, and inodes
    /// without a name. The packed inodes come behind it, as so many bytes.
    Gift { text: Box<Text>, inodes: u64, descriptors: usize },
    /// The heir serves the mount.
    Serving,
    /// It does not, and has not changed anything.
    Failed { why: String },
}
