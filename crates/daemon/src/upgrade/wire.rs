//! Messages between the two processes.

use super::launch::Launch;
use super::state::Text;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of this conversation, and of the state handed over. Fields may be added to either
/// without a new one, if the other side can do without them.
pub(super) const VERSION: u32 = 2;

/// How long requests made to hold others up may take. Until they are answered, the mount can't be
/// unmounted.
pub(super) const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// The messages between the processes, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// The heir is there.
    Hello { version: u32, program: String },
    /// The mount's configuration.
    Offer(Box<Launch>),
    /// The heir can probably serve it.
    Ready,
    /// The state handed over, with descriptors: the device, the control socket, and inodes without
    /// a name. The packed inodes come behind it, as so many bytes.
    Gift { text: Box<Text>, inodes: u64, descriptors: usize },
    /// The heir serves the mount.
    Serving,
    /// It does not, and has not changed anything.
    Failed { why: String },
}
