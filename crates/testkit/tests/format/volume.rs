//! A real volume of two tiers, created by the `braid` command.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Range size of the volumes made here.
pub(crate) const RANGE: u64 = 64 * 1024;

/// The `braid` command: `BRAID_BIN`, or built beside this test.
fn braid() -> &'static Path {
    static BRAID: OnceLock<PathBuf> = OnceLock::new();
    BRAID.get_or_init(|| {
        if let Some(path) = std::env::var_os("BRAID_BIN") {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "BRAID_BIN={} is not a file", path.display());
            return path;
        }
        let test = std::env::current_exe().unwrap();
        let profile_dir = test.parent().and_then(Path::parent).expect("tests lie in <target>/<profile>/deps");
        let profile = profile_dir.file_name().unwrap().to_str().unwrap();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build
            .args(["build", "--quiet", "--package", "braid-cli", "--target-dir"])
            .arg(profile_dir.parent().unwrap());
        build.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = build.output().expect("cargo runs");
        let path = profile_dir.join("braid");
        assert!(output.status.success() && path.is_file(), "braid could not be built: {}", text(&output));
        path
    })
}

/// Everything that a command printed.
pub(crate) fn text(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{} {stdout}{stderr}", output.status)
}

/// A volume, mounted or not. Unmounted and removed in the end.
pub(crate) struct TestVolume {
    dirs: TempDir,
    memory: TempDir,
}

impl TestVolume {
    /// Makes and mounts a volume with two empty tiers, on two file systems.
    pub(crate) fn new() -> Self {
        let volume = Self { dirs: TempDir::new().unwrap(), memory: TempDir::new_in("/dev/shm").unwrap() };
        for dir in [volume.home(), volume.mount_point()] {
            fs::create_dir(dir).unwrap();
        }
        volume.mount();
        volume
    }

    /// The home tier, number 0, called `fast`.
    pub(crate) fn home(&self) -> PathBuf {
        self.dirs.path().join("fast")
    }

    /// The other tier, number 1, called `slow`.
    pub(crate) fn other(&self) -> PathBuf {
        self.memory.path().to_owned()
    }

    /// Where it is mounted.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dirs.path().join("mount")
    }

    /// A directory of the test's own.
    pub(crate) fn scratch(&self) -> &Path {
        self.dirs.path()
    }

    /// Mounts the volume.
    pub(crate) fn mount(&self) {
        let tier = |name: &str, dir: &Path| format!("{name}={},weight=100,reserve=0", dir.display());
        let mut mount = Command::new(braid());
        mount.args(["mount", "--create", "--range", "64KiB", "--policy", "weighted", "--home", "fast"]);
        mount.args(["--tier", &tier("fast", &self.home()), "--tier", &tier("slow", &self.other())]);
        mount.arg("--log-file").arg(self.dirs.path().join("log")).arg(self.mount_point());
        let output = mount.output().unwrap();
        assert!(output.status.success(), "braid mount: {}", text(&output));
    }

    /// Unmounts the volume; the tiers are released when this returns.
    pub(crate) fn unmount(&self) {
        let output = Command::new(braid()).arg("umount").arg(self.mount_point()).output().unwrap();
        assert!(output.status.success(), "braid umount: {}", text(&output));
    }

    /// Writes pieces of a file through the mount, a range at a time: what one
    /// write touches first goes to one tier.
    pub(crate) fn write(&self, name: &str, size: u64, pieces: &[(u64, &[u8])]) -> fs::File {
        let path = self.mount_point().join(name);
        let file =
            fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        for (offset, bytes) in pieces {
            for (part, bytes) in bytes.chunks(RANGE as usize).enumerate() {
                file.write_all_at(bytes, offset + part as u64 * RANGE).expect("writing through the mount");
            }
        }
        file.set_len(size).unwrap();
        file
    }
}

impl Drop for TestVolume {
    fn drop(&mut self) {
        // A test that failed may have left it mounted; one that did not, not.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.contains(&format!(" {} ", self.mount_point().display())) {
            let lazy = ["umount", "--lazy"];
            let output = Command::new(braid()).args(lazy).arg(self.mount_point()).output();
            eprintln!("left mounted; unmounting: {}", output.map_or_else(|e| e.to_string(), |o| text(&o)));
        }
    }
}

/// Bytes that differ from offset to offset.
pub(crate) fn pattern(seed: u8, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed | 1).collect()
}
