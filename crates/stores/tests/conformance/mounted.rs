//! Native file systems, each in a file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The smallest size for every kind.
const IMAGE: u64 = 320 << 20;

/// A mounted file system, until this is dropped.
pub(crate) struct Mounted {
    pub(crate) point: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    /// `None`, with the reason printed, where nothing can be mounted or the
    /// kernel does not know the kind.
    pub(crate) fn new(kind: &str) -> Option<Self> {
        if !braid_sys::is_privileged() || !Path::new("/dev/loop-control").exists() {
            braid_testkit::skipped("root and loop devices");
            return None;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, point) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::create_dir(&point).unwrap();
        std::fs::File::create(&image).unwrap().set_len(IMAGE).unwrap();
        succeed(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
        // Where it is not built in.
        let _ = Command::new("modprobe").args(["-q", kind]).status();
        if !is_known(kind) {
            braid_testkit::unsupported(&format!("a kernel with {kind}"));
            return None;
        }
        succeed(Command::new("mount").args(["-o", "loop", "-t", kind]).arg(&image).arg(&point));
        Some(Self { point, _dir: dir })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.point).status();
    }
}

fn is_known(kind: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    known.split_whitespace().any(|known| known == kind)
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
