//! Answers the control socket on behalf of a volume.

use crate::wire::VolumeHandle;
use braid_contract::Errno;
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeProgress,
    HomeReplaced, Replaced, Reply, Status,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, TryLockError};

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

    fn replace_home(
        &self,
        dir: &str,
        tell: &mut dyn FnMut(HomeProgress) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        self.volume.replace_home(Path::new(dir), &self.mountpoint, tell)
    }

    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        // Two that repair would be in each other's way.
        let _checking = match self.checking.try_lock() {
            Ok(checking) => checking,
            // One that panicked is over.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(ErrorReply::new("another check is under way; wait for it to end"));
            }
        };
        let report = self.volume.check(request, &mut |now| tell(Reply::FsckProgress(now)).is_ok())?;
        for problem in report.problems {
            tell(Reply::FsckProblem(problem)).map_err(|error| ErrorReply::new(error.to_string()))?;
        }
        Ok(report.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{StackFlags, parse};
    use crate::wire;
    use braid_ipc::Handler;

    #[test]
    fn a_check_that_panicked_does_not_keep_others_from_theirs_and_one_under_way_does() {
        let dir = tempfile::tempdir().unwrap();
        let flags =
            StackFlags { tiers: vec![format!("home={}", dir.path().display())], ..StackFlags::default() };
        let volume = wire::open(parse(&flags).unwrap().stack.volume()).unwrap();
        let control = Control::new(volume, Path::new("/nowhere"));
        std::thread::scope(|scope| {
            let panics = || {
                let _checking = control.checking.lock().unwrap();
                panic!("meant to");
            };
            assert!(scope.spawn(panics).join().is_err());
        });
        let check = |paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            control.fsck(&FsckRequest { paths, ..FsckRequest::default() }, &mut |_| Ok(()))
        };
        assert_eq!(check(&[]).unwrap(), FsckSummary::default());
        for path in ["..", "../..", "/a/../../b"] {
            let error = check(&[path]).unwrap_err();
            assert_eq!(error.errno, Some(Errno::EINVAL.0), "{error}");
        }
        control.checking.clear_poison();
        let checking = control.checking.lock().unwrap();
        assert!(check(&[]).unwrap_err().message.contains("another check is under way"));
        drop(checking);
        control.volume.shutdown().unwrap();
    }
}
