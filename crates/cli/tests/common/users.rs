//! Several users of one volume: its maker and two others. For the tests of
//! `docs/security.md`.
#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::{Bench, RANGE};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The user who creates and mounts volumes, and two users of the mounts.
pub(crate) const MAKER: u32 = 4711;
pub(crate) const ALICE: u32 = 4801;
pub(crate) const BOB: u32 = 4802;
pub(crate) const BIG: usize = 12 * RANGE;

pub(crate) fn as_user(uid: u32, command: &Command) -> Output {
    let mut other = Command::new("setpriv");
    other.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]);
    other.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        other.current_dir(dir);
    }
    other.env_remove("XDG_RUNTIME_DIR").output().unwrap()
}

/// A Python that every user can run.
pub(crate) fn python() -> &'static Path {
    // A user's own version is out of reach for others.
    let system = Path::new("/usr/bin/python3");
    if system.exists() { system } else { Path::new("python3") }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Bench {
    /// Directories that every user can reach; the tiers belong to the maker.
    pub(crate) fn shared() -> Option<Self> {
        let bench = Self::bare(&["a", "b", "m"])?;
        fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
        for name in ["a", "b", "m"] {
            chown(bench.path(name), Some(MAKER), Some(MAKER)).unwrap();
        }
        bench.write_stack(
            "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    range: 64KiB
    tiers:
      fast: { dir: a, weight: 1 }
      slow: { dir: b, weight: 1 }
",
        );
        Some(bench)
    }

    /// A volume like one that a user created and mounted: attributes in
    /// `user.`, and tiers of her own. She could not do that herself where
    /// /dev/fuse is root's alone.
    pub(crate) fn made_by_a_user(&self) {
        self.mount();
        self.ok(&["umount", "m"]);
        for tier in ["a", "b"] {
            let label = self.path(tier).join(".braid/label");
            let mut bytes = fs::read(&label).unwrap();
            bytes[34] = 1;
            fs::write(&label, with_crc(bytes, 12)).unwrap();
            let owner = format!("{MAKER}:{MAKER}");
            let chown = Command::new("chown").args(["-R", &owner]).arg(self.path(tier)).status();
            assert!(chown.unwrap().success());
        }
    }

    pub(crate) fn mount(&self) {
        self.ok(&["mount", "s.yaml", "m"]);
    }

    pub(crate) fn open_to_all(&self) {
        fs::set_permissions(self.path("m"), Permissions::from_mode(0o1777)).unwrap();
    }

    /// Runs a line of Python as a user, in the bench's directory.
    pub(crate) fn python(&self, uid: u32, line: &str) -> Output {
        let mut command = Command::new(python());
        command.args(["-c", &format!("import os, sys\n{line}")]).current_dir(self.path("."));
        as_user(uid, &command)
    }

    #[track_caller]
    pub(crate) fn python_ok(&self, uid: u32, line: &str) {
        let output = self.python(uid, line);
        assert!(output.status.success(), "{line}: {}", said(&output));
    }

    /// The line fails, since the file's attribute or index is not believed.
    #[track_caller]
    pub(crate) fn python_euclean(&self, uid: u32, line: &str) {
        let output = self.python(uid, line);
        assert!(
            !output.status.success() && said(&output).contains("[Errno 117]"),
            "{line}: {}",
            said(&output)
        );
    }

    /// The file `alice`, as [`big_file`](Self::big_file) made it with bytes 10.
    #[track_caller]
    pub(crate) fn alice_has_her_data(&self) {
        self.python_ok(ALICE, &format!("sys.exit(open('m/alice', 'rb').read() != b'\\x0a' * {BIG})"));
    }

    /// A file of a user that has ranges on both tiers.
    pub(crate) fn big_file(&self, uid: u32, name: &str, byte: u8) {
        let line = format!(
            "fd = os.open('m/{name}', os.O_WRONLY | os.O_CREAT, 0o600)\n\
             for at in range({BIG} // {RANGE}): os.write(fd, bytes([{byte}]) * {RANGE}); os.fsync(fd)"
        );
        self.python_ok(uid, &line);
    }

    pub(crate) fn attribute(&self, name: &str) -> Vec<u8> {
        let mut value = [0; 128];
        let path = self.path("a").join(name);
        let len = ["trusted.braid.id", "user.braid.id"]
            .iter()
            .find_map(|attr| rustix::fs::getxattr(&path, *attr, &mut value[..]).ok());
        value[..len.unwrap()].to_vec()
    }

    pub(crate) fn index_of(&self, name: &str) -> PathBuf {
        let id: String = self.attribute(name)[8..24].iter().map(|byte| format!("{byte:02x}")).collect();
        self.path("a/.braid/index").join(&id[..2]).join(id)
    }
}

/// The bytes with a correct CRC at this place.
pub(crate) fn with_crc(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at..at + 4].fill(0);
    let crc = crc32c::crc32c(&bytes);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}
