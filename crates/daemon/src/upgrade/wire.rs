//! Messages between the two processes.

use super::launch::Launch;
use super::packed::PackedState;
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
    /// The successor is there.
    Hello { version: u32, program: String },
    /// The mount's configuration.
    Offer(Box<Launch>),
    /// The successor can probably serve it.
    Ready,
    /// The suspended mount, with descriptors: the device, the control socket, and inodes without
    /// a name. The packed inodes follow it, `inodes` bytes.
    #[serde(rename = "gift")]
    Mount {
        #[serde(rename = "text")]
        state: Box<PackedState>,
        inodes: u64,
        descriptors: usize,
    },
    /// The successor serves the mount.
    Serving,
    /// It does not, and has not changed anything.
    Failed { why: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_find_the_mount_by_the_names_that_they_know() {
        let mount = Message::Mount { state: Box::default(), inodes: 3, descriptors: 1 };
        let json = serde_json::to_value(&mount).unwrap();
        assert_eq!(json["gift"]["inodes"], 3);
        assert!(json["gift"]["text"].is_object(), "{json}");
    }
}
