//! A place to mount in, and the `braid` command to do it with.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct Bench {
    dir: TempDir,
}

impl Bench {
    /// `None` where nothing can be mounted, or home would have no attributes.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("passed over: needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "m"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let stack = "\
stack:
  passthrough:
    volume:
      home: fast
      policy: { weighted: { } }
      range: 64KiB
      tiers:
        fast: { dir: a, weight: 3 }
        slow: { dir: b, weight: 1 }
";
        fs::write(dir.path().join("s.yaml"), stack).unwrap();
        Some(Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn braid(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null());
        if words[0] == "mount" {
            command.arg("--log-file").arg(self.path("log"));
        }
        command.output().unwrap()
    }

    /// A command that goes on; its standard output is piped.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.braid(words);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {error}");
        assert_eq!(error, "", "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit status and standard error of a command that fails.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str]) -> (i32, String) {
        let output = self.braid(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.braid(&["umount", "--lazy", "m"]);
        }
    }
}
