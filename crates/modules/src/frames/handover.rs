//! Open files, for the process that goes on with the mount. The files themselves have the rest.

use super::engine::Engine;
use crate::State;
use braid_contract::{Errno, Error, HandleId, InodeId, Result, Shown};
use serde::{Deserialize, Serialize};

/// The version of the state.
const VERSION: u32 = 1;

/// Handles and inodes of the child, which has a state of its own.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenFiles {
    /// Each handle with its inode.
    pub(crate) handles: Vec<(HandleId, InodeId)>,
    /// Inodes that were looked up once more than the front end knows.
    pub(crate) held: Vec<InodeId>,
}

impl OpenFiles {
    pub(crate) fn of(engine: &Engine) -> Self {
        let (handles, held) = engine.files.open();
        Self { handles, held }
    }

    pub(crate) fn encode(&self) -> State {
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(self).unwrap_or_default() }
    }

    pub(crate) fn decode(state: &State) -> Result<Self> {
        state.expect_version(VERSION)?;
        let odd = |error| Error::new(Errno::EINVAL, format!("not a list of open files: {error}"));
        serde_json::from_slice(&state.bytes).map_err(odd)
    }
}

impl Engine {
    /// Closes files of the module's own. Those that an error has left have their space given back
    /// when they are written again.
    pub(crate) fn leave_all(&self) {
        for file in self.files.untidy() {
            if let Err(error) = self.leave(&file, &mut file.state.write()) {
                tracing::warn!(ino = file.ino.0, %error, "a file could not be closed");
            }
        }
        self.forget_unused();
    }

    /// Goes on with the open files of the process before. The handles of one that can't be read any
    /// more are closed.
    pub(crate) fn take(&self, open: &OpenFiles) {
        for (handle, ino) in open.handles.iter().copied() {
            match self.hold(ino, handle, false) {
                Ok(file) => self.files.opened(handle, file),
                Err(error) => {
                    tracing::error!(path = %self.shared.path(ino).shown(), %error, "an open file is lost");
                    let _ = self.child().release(handle);
                }
            }
        }
        open.held.iter().for_each(|ino| self.files.is_held(*ino));
        self.forget_unused();
    }
}
