//! Unmounting a volume in use, and mounting a mounted one. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, is_empty, until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

impl Bench {
    /// The volume mounted at `m`, and its daemon.
    fn daemon(&self) -> Daemon {
        self.ok(&["mount", "s.yaml", "m"]);
        let pid = i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap();
        let watch = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        Daemon { pid, watch }
    }
}

struct Daemon {
    pid: i32,
    watch: OwnedFd,
}

impl Daemon {
    fn name(&self) -> String {
        self.pid.to_string()
    }

    fn signal(&self) {
        kill_process(Pid::from_raw(self.pid).unwrap(), Signal::TERM).unwrap();
    }

    fn wait(&self) {
        poll(&mut [PollFd::new(&self.watch, PollFlags::IN)], None).unwrap();
    }
}

#[test]
fn another_mount_namespace_is_served_on_and_the_command_says_so() {
    let Some(bench) = Bench::new() else { return };
    let daemon = bench.daemon();
    let mut other = bench.start_in_namespace("read line");
    let said = bench.ok(&["umount", "m"]);
    let who = format!("in the mount namespace of process {}", other.id());
    assert!(
        said.contains("m is unmounted; the volume is served by daemon ") && said.contains(&who),
        "{said}"
    );
    assert!(is_empty(&bench.path("m")));

    for name in ["m", &daemon.name()] {
        let said = bench.ok(&["umount", name]);
        assert!(said.contains(&who) && said.contains("braid umount --force "), "{name}: {said}");
        let said = bench.ok(&["status", name]);
        assert!(
            said.starts_with("not mounted at ") && said.contains(&who) && said.contains("fast*"),
            "{name}: {said}"
        );
    }
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("any more, but served by daemon") && said.contains(&who), "{said}");
    assert!(said.contains(&format!("braid umount --force {}", daemon.pid)), "{said}");

    let mut waiting = bench.start(&["umount", "--wait", "m"]);
    let descriptors = format!("/proc/{}/fd", waiting.id());
    until("the command watches the daemon", || {
        let mut links = fs::read_dir(&descriptors).unwrap().flatten().flat_map(|fd| fs::read_link(fd.path()));
        links.any(|link| link.to_string_lossy().contains("pidfd"))
    });
    drop(other.stdin.take());
    other.wait().unwrap();
    daemon.wait();
    assert!(waiting.wait().unwrap().success());
    let said = bench.refused(&["umount", "m"]);
    assert!(said.contains("nothing is mounted at"), "{said}");
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.unmount_clean();
}

#[test]
fn a_bind_mount_is_served_on_until_it_goes() {
    let Some(bench) = Bench::new() else { return };
    bench.make_dir("n");
    let daemon = bench.daemon();
    mount_bind(bench.path("m"), bench.path("n")).unwrap();
    fs::write(bench.path("m/x"), "x").unwrap();
    let said = bench.ok(&["umount", "m"]);
    assert!(
        said.contains("m is unmounted; the volume is mounted at ") && said.contains("/n still"),
        "{said}"
    );
    assert_eq!(fs::read(bench.path("n/x")).unwrap(), b"x");
    assert_eq!(bench.ok(&["umount", "n"]), "");
    daemon.wait();
}

#[test]
fn a_volume_is_ended_for_those_who_use_it() {
    let Some(bench) = Bench::new() else { return };
    let daemon = bench.daemon();
    fs::write(bench.path("m/x"), "x").unwrap();
    let mut open = File::open(bench.path("m/x")).unwrap();
    let id = bench.status()["volume"].as_str().unwrap().to_owned();
    let said = bench.ok(&["umount", "--lazy", "m"]);
    assert!(said.contains("is detached") && said.contains("has files of it open"), "{said}");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
    assert!(bench.ok(&["status", &id]).contains("has files of it open"));
    bench.ok(&["umount", "--force", &id]);
    daemon.wait();
    drop(open);
    bench.ok(&["mount", "s.yaml", "m"]);

    let open = File::open(bench.path("m/x")).unwrap();
    bench.ok(&["umount", "--force", "m"]);
    drop(open);
    assert!(is_empty(&bench.path("m")));
    let said = bench.ok(&["fsck", "s.yaml"]);
    assert!(said.contains("no problems"), "{said}");
}

#[test]
fn a_signal_detaches_what_is_busy_and_a_second_one_ends_it() {
    let Some(bench) = Bench::new() else { return };
    let daemon = bench.daemon();
    fs::write(bench.path("m/x"), "x").unwrap();
    let mut open = File::open(bench.path("m/x")).unwrap();
    daemon.signal();
    until("the volume is detached", || is_empty(&bench.path("m")));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x", "a program that uses it is served on");
    daemon.signal();
    daemon.wait();
    assert!(fs::read_to_string(bench.path("log")).unwrap().contains("ending the session"));
    drop(open);
    let said = bench.ok(&["fsck", "s.yaml"]);
    assert!(said.contains("no problems"), "{said}");

    // The last user ends it too.
    let daemon = bench.daemon();
    let open = File::open(bench.path("m/x")).unwrap();
    daemon.signal();
    until("the volume is detached", || is_empty(&bench.path("m")));
    drop(open);
    daemon.wait();
}

#[test]
fn a_volume_is_mounted_at_a_second_place() {
    let Some(bench) = Bench::new() else { return };
    bench.make_dir("n");
    let daemon = bench.daemon();
    let said = bench.ok(&["mount", "s.yaml", "n"]);
    assert!(said.contains("is mounted at ") && said.contains("(a bind mount)"), "{said}");
    fs::write(bench.path("m/x"), "x").unwrap();
    assert_eq!(fs::read(bench.path("n/x")).unwrap(), b"x");
    let said = bench.ok(&["umount", "n"]);
    assert!(
        said.contains("n is unmounted; the volume is mounted at ") && said.contains("/m still"),
        "{said}"
    );
    let (_, said) = bench.fails(&["mount", "s.yaml", "n", "--foreground"]);
    assert!(said.contains("is a tier of a volume that is mounted at "), "{said}");
    bench.ok(&["umount", "m"]);
    daemon.wait();
}

#[test]
fn users_mount_at_one_place() {
    let Some(bench) = Bench::new() else { return };
    for name in ["a", "b", "m", "n"] {
        if name == "n" {
            bench.make_dir("n");
        }
        std::os::unix::fs::chown(bench.path(name), Some(4711), Some(4711)).unwrap();
    }
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(bench.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let user = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(bench.path(".")).args(words).env("HOME", bench.path("a")).uid(4711).gid(4711);
        command.output().unwrap()
    };
    let log = ["--log-file", "a/log"];
    let mounted = user(&[&["mount", "--create", "s.yaml", "m"][..], &log].concat());
    if !mounted.status.success() {
        return; // Users can't mount here, or can't run this program: nothing to test.
    }
    let again = user(&[&["mount", "s.yaml", "n"][..], &log].concat());
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("only root can mount it at a second place"), "{said}");
    assert!(user(&["umount", "m"]).status.success());
    let _ = unmount(bench.path("m"), UnmountFlags::DETACH);
}
