//! Answers the control socket on behalf of a volume.

use crate::wire::VolumeHandle;
use braid_contract::Errno;
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, Replaced, Reply, Status,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What is told about a mounted volume.
pub(crate) struct Control {
    pub(crate) volume: VolumeHandle,
    pub(crate) hello: Hello,
    mountpoint: PathBuf,
    /// Held while the volume is checked.
    checking: Mutex<()>,
}

impl Control {
    pub(crate) fn new(volume: VolumeHandle, mountpoint: &Path) -> Self {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: mountpoint.display().to_string(),
        };
        Self { volume, hello, mountpoint: mountpoint.to_owned(), checking: Mutex::new(()) }
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

    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        Ok(self.volume.affected(&mut |file| tell(file).map_err(|_| Errno::EINTR.into()))?)
    }

    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply> {
        self.volume.drill(tier, rules)
    }

    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply> {
        self.volume.replace_tier(tier, Path::new(dir), &self.mountpoint)
    }

    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        // Two that repair would be in each other's way.
        let Ok(_checking) = self.checking.try_lock() else {
            return Err(ErrorReply::new("another check is under way; wait for it to end"));
        };
        let report = self.volume.check(request, &mut |now| tell(Reply::FsckProgress(now)).is_ok())?;
        for problem in report.problems {
            tell(Reply::FsckProblem(problem)).map_err(|error| ErrorReply::new(error.to_string()))?;
        }
        Ok(report.summary)
    }
}
