//! A place to mount in, and the `braid` command. Each test program adds its own
//! parts in an `impl Bench`.
#![allow(dead_code, reason = "each test program uses a part of it")]

use braid_testkit::SplitMix;
use rustix::fs::Advice;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of a range in the stack files of the tests.
pub(crate) const RANGE: usize = 64 << 10;

/// Time limit for events that happen by themselves.
const PATIENCE: Duration = Duration::from_secs(90);

/// Held for writing while a new mount namespace has copies of the mounts of other
/// tests, which are busy by that, and for reading by what unmounts.
static COPIES: RwLock<()> = RwLock::new(());

/// Detaches the mounts of other tests than the one in the working directory.
const ALONE: &str = r#"findmnt -rno TARGET -t fuse.braid | grep -v "^$(pwd -P)/" | xargs -r umount --lazy"#;

/// A directory with directories for tiers, a stack file `s.yaml` and a mount
/// point `m`; commands run in it.
pub(crate) struct Bench {
    dir: TempDir,
    /// Directories in it with a file system of their own.
    mounted: Vec<PathBuf>,
}

impl Bench {
    /// Two tiers, `fast` (home, in `a`) and `slow` (in `b`). `None` where
    /// nothing can be mounted, or home would have no attributes.
    pub(crate) fn new() -> Option<Self> {
        let bench = Self::bare(&["a", "b", "m"])?;
        bench.write_stack(
            "\
stack:
  noop:
    volume:
      home: fast
      policy: { weighted: { } }
      range: 64KiB
      tiers:
        fast: { dir: a, weight: 3 }
        slow: { dir: b, weight: 1 }
",
        );
        Some(bench)
    }

    /// Only these directories, and no stack file.
    pub(crate) fn bare(dirs: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            braid_testkit::skipped("root and /dev/fuse");
            return None;
        }
        let bench =
            Self { dir: tempfile::Builder::new().prefix("braid-").tempdir().unwrap(), mounted: Vec::new() };
        dirs.iter().for_each(|name| bench.make_dir(name));
        Some(bench)
    }

    pub(crate) fn make_dir(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
    }

    /// Mounts a file system in memory at a directory, with these options.
    pub(crate) fn make_tmpfs(&mut self, name: &str, options: &CStr) {
        self.make_dir(name);
        let path = self.path(name);
        rustix::mount::mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(options)).unwrap();
        self.mounted.push(path);
    }

    /// Binds a directory of the bench to another name.
    pub(crate) fn bind(&mut self, from: &str, name: &str) {
        self.make_dir(name);
        let path = self.path(name);
        rustix::mount::mount_bind(self.path(from), &path).unwrap();
        self.mounted.push(path);
    }

    /// Mounts the file system in an image of the bench at a directory.
    pub(crate) fn mount_image(&mut self, name: &str, image: &str) {
        self.make_dir(name);
        let path = self.path(name);
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(self.path(image)).arg(&path).output();
        let mounted = mounted.unwrap();
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        self.mounted.push(path);
    }

    pub(crate) fn write_stack(&self, text: &str) {
        fs::write(self.path("s.yaml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command, to be run in the bench's directory. A mount creates the
    /// volume if it is new. Jobs are those of `m`: other tests have mounts of
    /// their own.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null());
        // The user's own lists are not the test's.
        command.env("XDG_CONFIG_HOME", self.path("config"));
        match words.first() {
            Some(&"mount") => _ = command.arg("--create").arg("--log-file").arg(self.path("log")),
            Some(&"job") if words.len() > 1 => _ = command.arg("./m"),
            _ => {}
        }
        command
    }

    pub(crate) fn braid(&self, words: &[&str]) -> Output {
        let unmounts = words.first() == Some(&"umount");
        let _copies = unmounts.then(without_copies);
        self.command(words).output().unwrap()
    }

    /// Runs a script of bash in the bench's directory, in a mount namespace of
    /// its own. `$BRAID` is the command.
    pub(crate) fn in_namespace(&self, script: &str) -> Output {
        self.start_in_namespace(script).wait_with_output().unwrap()
    }

    /// Starts such a script, and returns when only this bench's mounts are there.
    pub(crate) fn start_in_namespace(&self, script: &str) -> Child {
        let _copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("unshare");
        let alone = format!("{ALONE}; echo; exec bash -c \"$0\"");
        command.args(["--mount", "--propagation", "private", "bash", "-c", &alone, script]);
        command.env("BRAID", env!("CARGO_BIN_EXE_braid")).current_dir(self.dir.path());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        // Without the line, the script failed before; its status tells.
        let _ = child.stdout.as_mut().unwrap().read(&mut [0]);
        child
    }

    /// As [`refused`](Self::refused), with exactly these words.
    #[track_caller]
    pub(crate) fn refused_as_written(&self, words: &[&str]) -> String {
        let output = self.as_written(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        said
    }

    /// The command with exactly these words: mounts create no volume.
    pub(crate) fn as_written(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a command that keeps running, with its standard output piped.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Standard output of a command that succeeds without messages.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let mut output = self.braid(words);
        // A process that another test forks holds copies of all descriptors for
        // a moment, so that a mount may be busy even after all were closed.
        let busy = |output: &Output| output.stderr.windows(7).any(|text| text == b"is busy");
        let turns = if words[0] == "umount" { 100 } else { 0 };
        for _ in 0..turns {
            if !busy(&output) {
                break;
            }
            output = self.braid(words);
        }
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {error}");
        // Long work prints its progress.
        let is_progress = |line: &str| {
            line.starts_with("job ") && line.contains(" running [") || line.contains("; waiting while ")
        };
        let complaint = error.lines().find(|line| !is_progress(line));
        assert_eq!(complaint, None, "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit status and standard error of a command that fails.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str]) -> (i32, String) {
        let output = self.braid(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// Standard error of a command that is refused: it fails with status 1.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let (status, said) = self.fails(words);
        assert_eq!(status, 1, "{words:?}: {said}");
        said
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["status", "m", "--json"])
    }

    /// The entry of a tier in `braid tier list`; null if there is none.
    pub(crate) fn tier(&self, name: &str) -> Value {
        let tiers = self.json(&["tier", "list", "m", "--json"]);
        let found = tiers["tiers"].as_array().unwrap().iter().find(|tier| tier["name"] == name);
        found.cloned().unwrap_or(Value::Null)
    }

    pub(crate) fn state(&self, tier: &str) -> String {
        self.tier(tier)["state"].as_str().unwrap().to_owned()
    }

    /// Ranges that are on a tier.
    pub(crate) fn ranges_on(&self, tier: &str) -> u64 {
        self.tier(tier)["ranges"].as_u64().unwrap()
    }

    /// Whether home is in this directory.
    pub(crate) fn home_is_at(&self, name: &str) -> bool {
        let home = self.tier("fast");
        Path::new(home["location"].as_str().unwrap()) == self.path(name).canonicalize().unwrap()
    }

    pub(crate) fn job(&self, id: u64) -> Value {
        self.json(&["job", "show", &id.to_string(), "--json"])
    }

    /// Polls until the job is as `wanted`; fails if it ends before.
    #[track_caller]
    pub(crate) fn until(&self, id: u64, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut job = Value::Null;
        until(&format!("job {id} comes to what is waited for"), || {
            job = self.job(id);
            let over = ["done", "failed", "cancelled"].contains(&job["state"].as_str().unwrap());
            assert!(wanted(&job) || !over, "{job}");
            wanted(&job)
        });
        job
    }

    /// The stretches of a file in `braid explain`.
    pub(crate) fn runs(&self, file: &str) -> Vec<Value> {
        self.json(&["explain", file, "--json"])["runs"].as_array().unwrap().clone()
    }

    /// Ranges of a file that are on a tier.
    pub(crate) fn on(&self, file: &str, tier: &str) -> u64 {
        let runs = self.runs(file);
        let there = runs.iter().filter(|run| run["tier"]["name"] == tier);
        there.map(|run| run["ranges"].as_u64().unwrap()).sum()
    }

    /// Kills the daemon, and removes the dead mount.
    pub(crate) fn kill(&self) {
        kill_and_wait(i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap());
        self.ok(&["umount", "m"]);
    }

    /// Ends all mounts in the bench, even if operations hang there: a thread that waits for an
    /// operation would keep the test's process for good.
    fn end_mounts(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(2);
            let (Some(device), Some(point)) = (words.next(), words.nth(1)) else { continue };
            if let Some(connection) =
                device.strip_prefix("0:").filter(|_| Path::new(point).starts_with(self.dir.path()))
            {
                let _ = fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1");
                let _ = self.braid(&["umount", "--lazy", point]);
            }
        }
        // Daemons that can't end, since operations hang in them.
        let log = self.path("log");
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let ours = words.split(|byte| *byte == 0).any(|word| word == log.as_os_str().as_bytes());
            let number = process.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = number.filter(|_| ours).and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Unmounts, and checks that all is well.
    pub(crate) fn unmount_clean(&self) {
        self.ok(&["umount", "m"]);
        let output = self.braid(&["fsck", "s.yaml"]);
        let (said, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(said.ends_with("no problems\n"), "{said}{error}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.path("log")).unwrap_or_default());
            self.end_mounts();
        }
        for path in &self.mounted {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// Gives this thread, and processes that it starts, a mount namespace of its own,
/// without the mounts of other tests.
pub(crate) fn leave_namespace() {
    let _copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    assert!(Command::new("bash").args(["-c", ALONE]).status().unwrap().success());
}

/// Held while something is unmounted without the command: no other test makes copies of mounts.
pub(crate) fn without_copies() -> RwLockReadGuard<'static, ()> {
    COPIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Repeats a step until it succeeds; fails after the time limit.
#[track_caller]
pub(crate) fn until(what: &str, mut step: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !step() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The text of the stack file.
pub(crate) fn stack(bench: &Bench) -> String {
    fs::read_to_string(bench.path("s.yaml")).unwrap()
}

/// Checks that an unmounted volume is fine, except for a killed daemon.
#[track_caller]
pub(crate) fn is_well(bench: &Bench) {
    let said = bench.ok(&["fsck", "s.yaml"]);
    assert!(said.ends_with("no problems\n") || said.contains("not unmounted cleanly"), "{said}");
    assert!(!said.contains("damage:") && !said.contains("leak:"), "{said}");
}

/// Kills a process, and waits until it is gone.
pub(crate) fn kill_and_wait(pid: i32) {
    let pid = Pid::from_raw(pid).unwrap();
    let watch = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let mut ended = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).unwrap();
}

/// `len` bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SplitMix::new(seed).fill(&mut data);
    data
}

/// Writes a file a range at a time, so that each is placed by itself.
pub(crate) fn write_ranges(path: &Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    for (at, chunk) in data.chunks(RANGE).enumerate() {
        write_back(&file, chunk, (at * RANGE) as u64);
    }
}

/// Writes, and has the kernel write back.
pub(crate) fn write_back(file: &File, data: &[u8], offset: u64) {
    file.write_all_at(data, offset).unwrap();
    file.sync_data().unwrap();
}

/// Reads all of a file from its tiers, bypassing the kernel's cache.
pub(crate) fn read_anew(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fs::read(path).unwrap()
}

/// Has the kernel forget all pages, names and inodes that are not in use.
pub(crate) fn drop_caches() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Whether a directory is empty.
pub(crate) fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}
