//! Answers the control socket on behalf of a volume.

use crate::wire::VolumeHandle;
use braid_ipc::protocol::{ErrorReply, Explanation, Hello, Status};
use std::path::Path;

/// What is told about a mounted volume.
pub(crate) struct Control {
    pub(crate) volume: VolumeHandle,
    pub(crate) hello: Hello,
}

impl Control {
    pub(crate) fn new(volume: VolumeHandle, mountpoint: &Path) -> Self {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: mountpoint.display().to_string(),
        };
        Self { volume, hello }
    }
}

impl braid_ipc::Handler for Control {
    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        Ok(self.volume.status(&self.hello))
    }

    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply> {
        Ok(self.volume.explain(ino)?)
    }
}
