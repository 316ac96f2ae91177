//! A place for tests to make file systems and volumes in: a temporary
//! directory, loop devices and mounts, all of which go away with the [`Lab`],
//! whether the test succeeds, fails, panics or is interrupted.

use crate::error::{Context, Failure, Result, ensure, fail};
use crate::paths;
use crate::sh::{cmd, is_root, root_cmd};
use crate::tools::build_braid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use tempfile::TempDir;

/// A kind of native file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ext4 on a loop device; an error remounts it read-only.
    Ext4,
    /// XFS on a loop device.
    Xfs,
    /// btrfs on a loop device.
    Btrfs,
    /// tmpfs.
    Tmpfs,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Tmpfs];

    /// The name that mount(8) knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
        }
    }
}

/// The contents of a stack file: see [`Stack::yaml`].
pub struct Stack {
    /// The policy, as a YAML value.
    pub policy: String,
    /// The range size, as in `64KiB`.
    pub range: String,
    /// Home first.
    pub tiers: Vec<Tier>,
    /// The device or file of a log file system, in place of a volume.
    pub log: Option<PathBuf>,
    /// What a view shows, in place of a volume.
    pub view: Option<PathBuf>,
    /// Whether applications, and views of it, may have sessions.
    pub runtime: bool,
    /// The modules above the volume, from the top down: each its name and, on lines of
    /// their own, its settings.
    pub modules: Vec<Vec<String>>,
}

/// One tier of a stack.
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Its weight.
    pub weight: u32,
    /// The space that Braid leaves alone there, as in `5%` or `16MiB`.
    pub reserve: Option<String>,
}

impl Tier {
    /// A tier with the usual reserve.
    pub fn new(name: &str, dir: &Path, weight: u32) -> Self {
        Self { name: name.to_owned(), dir: dir.to_path_buf(), weight, reserve: None }
    }

    /// The same with a reserve.
    pub fn reserve(mut self, reserve: impl Into<String>) -> Self {
        self.reserve = Some(reserve.into());
        self
    }
}

impl Stack {
    /// A volume without modules above it.
    pub fn new(policy: &str, range: &str, tiers: Vec<Tier>) -> Self {
        let (policy, range, modules) = (policy.into(), range.into(), Vec::new());
        Self { policy, range, tiers, log: None, view: None, runtime: false, modules }
    }

    /// A log file system below these modules.
    pub fn log(device: &Path, modules: Vec<Vec<String>>) -> Self {
        Self { log: Some(device.to_owned()), modules, ..Self::new("", "", Vec::new()) }
    }

    /// The stack file.
    pub fn yaml(&self) -> String {
        let text = match (&self.log, &self.view) {
            (Some(device), _) => format!("  log:\n    device: {}\n", device.display()),
            (None, Some(of)) => format!("  view:\n    of: {}\n", of.display()),
            (None, None) => self.volume(),
        };
        let (mut all, mut indent) = (String::from("stack:\n"), String::new());
        for module in &self.modules {
            let mut lines = module.iter();
            let name = lines.next().map_or("", String::as_str);
            // Writing to a string does not fail.
            let _ = writeln!(all, "{indent}  {name}:");
            lines.for_each(|line| _ = writeln!(all, "{indent}    {line}"));
            indent.push_str("  ");
        }
        text.lines().for_each(|line| _ = writeln!(all, "{indent}{line}"));
        if self.runtime {
            all.push_str("mount:\n  runtime: true\n");
        }
        all
    }

    /// The volume in it.
    fn volume(&self) -> String {
        let home = self.tiers.first().map_or("", |tier| &tier.name);
        let mut text = format!(
            "  volume:\n    home: {home}\n    policy: {}\n    range: {}\n    tiers:\n",
            self.policy, self.range
        );
        for tier in &self.tiers {
            let reserve =
                tier.reserve.as_ref().map_or(String::new(), |reserve| format!(", reserve: {reserve}"));
            let (name, dir, weight) = (&tier.name, tier.dir.display(), tier.weight);
            // Writing to a string does not fail.
            let _ = writeln!(text, "      {name}: {{ dir: {dir}, weight: {weight}{reserve} }}");
        }
        text
    }
}

/// A mounted volume.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its stack file.
    pub stack: PathBuf,
}

enum Undo {
    Unmount(PathBuf),
    Detach(PathBuf),
    Braid(Mount),
    Daemon(Mount, Child),
}

/// A temporary directory and the resources in it.
pub struct Lab {
    root: TempDir,
    logs: PathBuf,
    undo: Vec<Undo>,
}

impl Lab {
    /// An empty place; `name` appears in its path.
    pub fn new(name: &str) -> Result<Self> {
        Self::new_in(&std::env::temp_dir(), name)
    }

    /// The same in this directory.
    pub fn new_in(dir: &Path, name: &str) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        // Suites act as several users, who need access through it.
        builder.permissions(Permissions::from_mode(0o755));
        let root = builder.prefix(&format!("braid-{name}-")).tempdir_in(dir)?;
        Ok(Self { logs: root.path().to_path_buf(), root, undo: Vec::new() })
    }

    /// An empty place for a suite, with the `braid` command as it is now: the
    /// daemons' logs outlive it, below `target/logs`.
    pub fn for_suite(name: &str) -> Result<Self> {
        build_braid()?;
        let logs = paths::target().join("logs").join(name);
        std::fs::create_dir_all(&logs).at(&logs)?;
        let mut lab = Self::new(name)?;
        lab.logs = logs;
        Ok(lab)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// An empty directory.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::create_dir(&path).at(&path)?;
        Ok(path)
    }

    /// A new file system of about `mib` MiB; answers where it is mounted.
    pub fn file_system(&mut self, name: &str, kind: Kind, mib: u64) -> Result<PathBuf> {
        let dir = self.dir(name)?;
        if kind == Kind::Tmpfs {
            let size = format!("size={mib}m");
            root_cmd("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&dir).quiet()?;
        } else {
            let device = self.device(name, mib)?;
            make_file_system(kind, &device)?;
            let options = if kind == Kind::Ext4 { "errors=remount-ro,discard" } else { "defaults" };
            root_cmd("mount").args(["-t", kind.name(), "-o", options]).arg(&device).arg(&dir).quiet()?;
        }
        self.undo.push(Undo::Unmount(dir.clone()));
        if !is_root() {
            let me = format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
            root_cmd("chown").arg(me).arg(&dir).quiet()?;
        }
        Ok(dir)
    }

    /// Shows a directory at another one, too.
    pub fn bind(&mut self, dir: &Path, at: &Path) -> Result<()> {
        root_cmd("mount").arg("--bind").args([dir, at]).quiet()?;
        self.undo.push(Undo::Unmount(at.to_path_buf()));
        Ok(())
    }

    /// A loop device of `mib` MiB over a sparse file.
    fn device(&mut self, name: &str, mib: u64) -> Result<PathBuf> {
        let image = self.path().join(format!("{name}.image"));
        std::fs::File::create(&image).at(&image)?.set_len(mib << 20)?;
        self.attach(&image)
    }

    /// A loop device over a file.
    pub fn attach(&mut self, image: &Path) -> Result<PathBuf> {
        let device = root_cmd("losetup").args(["--find", "--show", "--direct-io=on"]).arg(image).read()?;
        let device = PathBuf::from(device.trim());
        self.undo.push(Undo::Detach(device.clone()));
        Ok(device)
    }

    /// Detaches a loop device now; the device goes when its last user lets go.
    pub fn detach(&mut self, device: &Path) -> Result<()> {
        // Its number may belong to another device afterwards.
        self.undo.retain(|undo| !matches!(undo, Undo::Detach(other) if other == device));
        root_cmd("losetup").arg("--detach").arg(device).quiet()
    }

    /// Writes a stack file and mounts it at a new directory `name`.
    pub fn volume(&mut self, name: &str, stack: &Stack) -> Result<Mount> {
        let mount = Mount { point: self.dir(name)?, stack: self.path().join(format!("{name}.yaml")) };
        std::fs::write(&mount.stack, stack.yaml()).at(&mount.stack)?;
        self.mount_with(&mount, &["--create"])?;
        Ok(mount)
    }

    /// Makes a log file system of `mib` MiB in a file, and mounts it below these modules.
    pub fn log(&mut self, name: &str, mib: u64, modules: Vec<Vec<String>>) -> Result<Mount> {
        let device = self.path().join(format!("{name}.log"));
        let size = format!("--size={mib}MiB");
        self.braid().args(["log", "create", &size]).arg(&device).quiet()?;
        let mount = Mount { point: self.dir(name)?, stack: self.path().join(format!("{name}.yaml")) };
        std::fs::write(&mount.stack, Stack::log(&device, modules).yaml()).at(&mount.stack)?;
        self.mount_with(&mount, &[])?;
        Ok(mount)
    }

    /// Mounts a view of a mount, below these modules.
    pub fn view(&mut self, name: &str, of: &Mount, modules: Vec<Vec<String>>) -> Result<Mount> {
        let mount = Mount { point: self.dir(name)?, stack: self.path().join(format!("{name}.yaml")) };
        let stack = Stack { view: Some(of.point.clone()), modules, ..Stack::new("", "", Vec::new()) };
        std::fs::write(&mount.stack, stack.yaml()).at(&mount.stack)?;
        self.mount_as_is(&mount, &[])?;
        Ok(mount)
    }

    /// Checks the log file system of an unmounted stack that [`log`](Self::log) made.
    pub fn check_log(&self, mount: &Mount) -> Result<String> {
        self.braid().args(["log", "check"]).arg(mount.stack.with_extension("log")).read()
    }

    /// Mounts a volume (again); the command returns when it is usable.
    pub fn mount(&mut self, mount: &Mount) -> Result<()> {
        self.mount_with(mount, &[])
    }

    /// The same with more flags.
    pub fn mount_with(&mut self, mount: &Mount, flags: &[&str]) -> Result<()> {
        let asked: Vec<String> = asked_flags().collect();
        let flags = flags.iter().copied().chain(asked.iter().map(String::as_str));
        self.mount_as_is(mount, &flags.collect::<Vec<_>>())
    }

    /// Mounts a view, or a volume, with these flags and no others.
    pub fn mount_as_is(&mut self, mount: &Mount, flags: &[&str]) -> Result<()> {
        self.undo.push(Undo::Braid(mount.clone()));
        let mount_command = self.braid().arg("mount").args(flags);
        let mount_command = mount_command.arg("--log-file").arg(self.daemon_log());
        mount_command.arg(&mount.stack).arg(&mount.point).quiet()?;
        ensure(is_mounted(&mount.point)?, || format!("{} is not mounted", mount.point.display()))
    }

    /// Where the daemons log.
    pub fn daemon_log(&self) -> PathBuf {
        self.logs.join("daemon.log")
    }

    /// Mounts a volume by a daemon that is our child, for
    /// [`kill_daemon`](Self::kill_daemon).
    pub fn mount_by_child(&mut self, mount: &Mount) -> Result<()> {
        let log = self.logs.join("daemon-in-foreground.log");
        let args = ["mount", "--create", "--foreground"];
        let mut child =
            self.braid().args(args).args(asked_flags()).arg(&mount.stack).arg(&mount.point).start(&log)?;
        let mounted = wait_until_mounted(&mount.point, &mut child);
        // If it has ended by itself, there is nothing to undo.
        if !matches!(child.try_wait(), Ok(Some(_))) {
            self.undo.push(Undo::Daemon(mount.clone(), child));
        }
        mounted.map_err(|failure| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Failure(format!("{failure}\n{}", said.trim_end()))
        })
    }

    /// Kills the daemon, which is our child, with `SIGKILL`. Access below the
    /// mount point fails from now on, until [`clear_mount`](Self::clear_mount).
    pub fn kill_daemon(&mut self) -> Result<()> {
        let at = self.undo.iter().rposition(|undo| matches!(undo, Undo::Daemon(..)));
        let Some(Undo::Daemon(mount, mut child)) = at.map(|at| self.undo.remove(at)) else {
            return fail("there is no daemon to kill");
        };
        self.undo.push(Undo::Braid(mount));
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Clears the mount point that a killed daemon has left. Nothing may be at
    /// work below it: it would write to the directory beneath.
    pub fn clear_mount(&mut self, mount: &Mount) -> Result<()> {
        self.braid().args(["umount", "--lazy"]).arg(&mount.point).cleanup().quiet()?;
        self.undo.retain(|undo| !matches!(undo, Undo::Braid(other) if other.point == mount.point));
        Ok(())
    }

    /// Unmounts a volume.
    pub fn unmount(&mut self, mount: &Mount) -> Result<()> {
        self.braid().arg("umount").arg(&mount.point).quiet()?;
        ensure(!is_mounted(&mount.point)?, || format!("{} is still mounted", mount.point.display()))?;
        let is_ours = |undo: &Undo| matches!(undo, Undo::Braid(other) | Undo::Daemon(other, _) if other.point == mount.point);
        while let Some(at) = self.undo.iter().position(is_ours) {
            if let Undo::Daemon(_, mut child) = self.undo.remove(at) {
                let status = wait_until_ended(&mut child)?;
                ensure(status.success(), || format!("the daemon ended with {status}"))?;
            }
        }
        Ok(())
    }

    /// Checks an unmounted volume; a problem is a failure that lists it.
    pub fn fsck(&self, mount: &Mount) -> Result<String> {
        self.braid().arg("fsck").arg(&mount.stack).read()
    }

    /// Repairs an unmounted volume; problems that stay are a failure.
    pub fn repair(&self, mount: &Mount) -> Result<()> {
        let output = self.braid().args(["fsck", "--repair"]).arg(&mount.stack).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure(output.status.code().is_some_and(|code| code < 2), || format!("fsck --repair: {text}"))
    }

    /// The `braid` command.
    pub fn braid(&self) -> crate::sh::Cmd {
        cmd(paths::braid())
    }
}

/// The flags that `BRAID_CACHE` and `BRAID_TRANSPORT` ask for.
fn asked_flags() -> impl Iterator<Item = String> {
    let asked = [("BRAID_CACHE", "cache"), ("BRAID_TRANSPORT", "transport")];
    asked.into_iter().filter_map(|(name, flag)| Some(format!("--{flag}={}", std::env::var(name).ok()?)))
}

impl Drop for Lab {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            undo.carry_out();
        }
        let own = std::fs::remove_dir_all(self.path());
        if own.is_err() && self.path().exists() {
            // Files that tests made as other users.
            let _ = root_cmd("rm").args(["-rf", "--one-file-system"]).arg(self.path()).cleanup().quiet();
        }
    }
}

impl Undo {
    /// Takes it down as well as possible: a failure here shows as a resource left behind, which
    /// says more than a second message would.
    fn carry_out(self) {
        match self {
            Self::Unmount(dir) => {
                let plain = root_cmd("umount").arg(&dir).cleanup().quiet();
                if plain.is_err() {
                    let _ = root_cmd("umount").arg("--lazy").arg(&dir).cleanup().quiet();
                }
            }
            Self::Detach(device) => {
                let _ = root_cmd("losetup").arg("--detach").arg(&device).cleanup().quiet();
            }
            Self::Braid(mount) => unmount_anyhow(&mount.point),
            Self::Daemon(mount, mut child) => {
                unmount_anyhow(&mount.point);
                let _ = child.kill();
                let _ = child.wait();
                // It may have mounted in the last moment.
                unmount_anyhow(&mount.point);
            }
        }
    }
}

fn unmount_anyhow(point: &Path) {
    let mounted = || is_mounted(point).unwrap_or(true);
    let _ = mounted() && cmd(paths::braid()).arg("umount").arg(point).cleanup().quiet().is_err();
    if mounted() {
        let program = if is_root() { cmd("umount").arg("--lazy") } else { cmd("fusermount3").arg("-uz") };
        let _ = program.arg(point).cleanup().quiet();
    }
}

fn make_file_system(kind: Kind, device: &Path) -> Result<()> {
    match kind {
        Kind::Ext4 => root_cmd("mkfs.ext4").args(["-q", "-m", "0"]).arg(device).quiet(),
        Kind::Xfs => root_cmd("mkfs.xfs").arg("-q").arg(device).quiet(),
        Kind::Btrfs => root_cmd("mkfs.btrfs").arg("-q").arg(device).quiet(),
        Kind::Tmpfs => Ok(()),
    }
}

/// Whether something is mounted exactly there. Asks the kernel's table, since
/// a dead mount answers no other question.
pub fn is_mounted(point: &Path) -> Result<bool> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let wanted = point.to_string_lossy().replace(' ', "\\040");
    Ok(table.lines().any(|line| line.split(' ').nth(4) == Some(&wanted)))
}

/// Waits for the kernel to announce changes of the mount table until `point`
/// is in it and answers.
fn wait_until_mounted(point: &Path, child: &mut Child) -> Result<()> {
    let table = std::fs::File::open("/proc/self/mountinfo")?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    while !is_mounted(point)? {
        if let Some(status) = child.try_wait()? {
            return fail(format!("the daemon ended with {status} before it had mounted"));
        }
        crate::sh::uninterrupted()?;
        poll(&mut [PollFd::new(&table, PollFlags::PRI)], Some(&second))?;
    }
    std::fs::metadata(point).at(point).map(drop)
}

/// Waits for a child, for as long as a daemon may take to end.
fn wait_until_ended(child: &mut Child) -> Result<ExitStatus> {
    const SECONDS: i64 = 60;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return fail("a process without an id") };
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    for _ in 0..SECONDS {
        if poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&second))? > 0 {
            return Ok(child.wait()?);
        }
        crate::sh::uninterrupted()?;
    }
    child.kill()?;
    child.wait()?;
    fail(format!("the daemon did not end within {SECONDS} s of its unmount"))
}

/// Bytes that are free for an unprivileged writer.
pub fn free_space(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).at(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_file_names_home_first() {
        let tiers = vec![
            Tier::new("fast", Path::new("/a"), 400),
            Tier::new("slow", Path::new("/b"), 120).reserve("5%"),
        ];
        let mut stack = Stack::new("{ weighted: { } }", "64KiB", tiers);
        let expected = "stack:\n  volume:\n    home: fast\n    policy: { weighted: { } }\n    range: 64KiB\n    tiers:\n      \
                        fast: { dir: /a, weight: 400 }\n      slow: { dir: /b, weight: 120, reserve: 5% }\n";
        assert_eq!(stack.yaml(), expected);
        stack.modules = vec![vec!["compress".into()], vec!["encrypt".into(), "key_file: /k".into()]];
        let yaml = stack.yaml();
        assert!(
            yaml.starts_with(
                "stack:\n  compress:\n    encrypt:\n      key_file: /k\n      volume:\n        home: fast\n"
            ),
            "{yaml}"
        );
    }

    #[test]
    fn a_lab_leaves_nothing_behind() {
        let lab = Lab::new("unit").unwrap();
        let path = lab.path().to_path_buf();
        std::fs::write(lab.dir("a").unwrap().join("file"), "x").unwrap();
        drop(lab);
        assert!(!path.exists());
    }

    #[test]
    fn the_mount_table_is_read() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(Path::new("/proc/self")).unwrap());
        assert!(free_space(Path::new("/")).is_ok());
    }
}
