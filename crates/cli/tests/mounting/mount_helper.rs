//! The helpers of mount(8) and umount(8): on their own, and called by those
//! programs for the command line and for fstab. Needs root and /dev/fuse;
//! skipped without them.

use crate::common::{Bench, kill_and_wait};
use std::fs;
use std::process::{Command, Output};

impl Bench {
    /// Runs the command by the name of a helper.
    fn helper(&self, name: &str, words: &[&str]) -> Output {
        let path = self.path(name);
        if !path.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_braid"), &path).unwrap();
        }
        Command::new(path).current_dir(self.path(".")).args(words).output().unwrap()
    }

    /// Mounts by the helper as mount(8) calls it.
    fn mount_by_helper(&self, options: &str) -> Output {
        let options = format!("log_file={},{options}", self.path("log").display());
        let stack = self.path("s.yaml").canonicalize().unwrap();
        self.helper("mount.fuse.braid", &[stack.to_str().unwrap(), "m", "-v", "-o", &options])
    }

    /// The line of the mount table for `m`.
    fn mount_line(&self) -> String {
        let point = self.path("m").canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == point.to_str());
        line.unwrap_or_default().to_owned()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(output));
}

#[test]
fn a_helper_returns_when_the_mount_answers_and_hands_options_on() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["create", "s.yaml"]);
    done(&bench.mount_by_helper("rw,nofail,_netdev,x-systemd.automount,noexec,nosuid,noatime,allow_other"));
    fs::write(bench.path("m/file"), "here").unwrap();
    let line = bench.mount_line();
    let fields: Vec<&str> = line.split(' ').collect();
    assert_eq!(fields[0], bench.path("s.yaml").canonicalize().unwrap().to_str().unwrap());
    assert_eq!(fields[2], "fuse.braid");
    assert!(fields[3].starts_with("rw,nosuid,noexec,noatime,"), "{line}");

    let again = bench.mount_by_helper("defaults");
    assert_eq!(again.status.code(), Some(32));
    assert!(said(&again).contains("is mounted here already"), "{}", said(&again));
    // The stack file names the mount too.
    assert!(bench.ok(&["status", "s.yaml"]).contains("fast*"));
    done(&bench.helper("umount.fuse.braid", &["m", "-n", "-t", "fuse.braid"]));
    assert!(bench.mount_line().is_empty());
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"), "the tiers are not free");

    done(&bench.mount_by_helper("ro"));
    assert_eq!(fs::read_to_string(bench.path("m/file")).unwrap(), "here");
    let refused = fs::write(bench.path("m/file"), "there").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.ok(&["umount", "s.yaml"]);
    assert!(bench.mount_line().is_empty());
}

#[test]
fn a_helper_says_what_it_does_not_know_and_why_it_failed() {
    let Some(bench) = Bench::new() else { return };
    let unknown = bench.mount_by_helper("ro,uid=1000");
    assert_eq!(unknown.status.code(), Some(1));
    let text = said(&unknown);
    assert!(
        text.starts_with("braid: there is no option 'uid=1000'\n  help: the options are without=TIER"),
        "{text}"
    );
    done(&bench.helper("mount.braid", &["s.yaml", "m", "-s", "-f", "-o", "uid=1000"]));
    assert!(bench.mount_line().is_empty(), "-f mounts nothing");

    fs::remove_dir_all(bench.path("b")).unwrap();
    let failed = bench.mount_by_helper("nofail");
    assert_eq!(failed.status.code(), Some(32));
    assert!(said(&failed).contains("tiers.slow.dir: there is no directory"), "{}", said(&failed));
    bench.make_dir("b");
    bench.ok(&["create", "s.yaml"]);
    done(&bench.mount_by_helper("defaults"));
    bench.ok(&["umount", "m"]);
    fs::remove_dir_all(bench.path("b")).unwrap();
    done(&bench.mount_by_helper("without=slow"));
    assert_eq!(bench.state("slow"), "absent");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_dead_mount_is_cleaned_up_by_the_next_one() {
    let Some(bench) = Bench::new() else { return };
    for mount_again in [&(|| done(&bench.mount_by_helper("defaults"))) as &dyn Fn(), &|| {
        _ = bench.ok(&["mount", "s.yaml", "m"])
    }] {
        bench.ok(&["mount", "s.yaml", "m"]);
        kill_and_wait(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap());
        mount_again();
        fs::write(bench.path("m/file"), "alive").unwrap();
        bench.ok(&["umount", "m"]);
        assert!(bench.mount_line().is_empty(), "the dead one is still there");
    }
}

#[test]
fn the_stack_file_says_where_and_how_to_mount() {
    let Some(bench) = Bench::new() else { return };
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let said = bench.fails(&["mount", "s.yaml"]);
    assert!(said.0 == 2 && said.1.contains("write mount: { point: DIRECTORY } in it"), "{said:?}");
    bench.write_stack(&format!("{text}mount: {{ point: m, options: [ ro, nodev ] }}\n"));
    bench.ok(&["mount", "s.yaml"]);
    assert!(bench.mount_line().contains(" ro,nodev"), "{}", bench.mount_line());
    let dump = bench.ok(&["stack", "dump", "m"]);
    let point = bench.path("m").canonicalize().unwrap();
    assert!(dump.contains(&format!("point: {}", point.display())), "{dump}");
    assert!(dump.contains("options: [ ro, nodev ]"), "{dump}");
    bench.ok(&["umount", "m"]);
    // Flags take precedence over the file.
    bench.ok(&["mount", "s.yaml", "--options", "rw,sync"]);
    assert!(bench.mount_line().contains(" rw,sync,nodev"), "{}", bench.mount_line());
    bench.ok(&["umount", "m"]);
    bench.write_stack(&format!("{text}mount: {{ options: [ ro, uid=3 ] }}\n"));
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("mount.options: found 'uid=3', expected an option of mounts"), "{said}");
}

/// The helpers under mount(8) and umount(8), in a mount namespace where they
/// are installed.
const SCRIPT: &str = r#"
set -eux
fails() { if "$@"; then exit 9; fi; }
mkdir sbin up work
mount -t tmpfs tmpfs up
mkdir up/new up/work
ln -s "$BRAID" up/new/mount.fuse.braid
ln -s "$BRAID" up/new/umount.fuse.braid
mount -t overlay overlay -o "lowerdir=/usr/sbin,upperdir=$PWD/up/new,workdir=$PWD/up/work" /usr/sbin
stack=$(realpath s.yaml)
pid() { "$BRAID" status m --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])'; }

fails mount -t fuse.braid "$stack" m
"$BRAID" create "$stack"
mount -t fuse.braid "$stack" m -o "nofail,noexec,log_file=$PWD/log"
test "$(findmnt -n -o SOURCE,FSTYPE m)" = "$stack fuse.braid"
echo data > m/file
mount -o remount,ro m
fails bash -c 'echo more > m/file'
mount -o remount,rw m
echo more > m/file
daemon=$(pid)
exec 3< m/file
fails umount m
exec 3<&-
umount m
fails test -e "/proc/$daemon/exe"

echo "$stack $(realpath m) fuse.braid nofail,x-systemd.requires-mounts-for=/mnt,log_file=$PWD/log 0 0" > fstab
mount -a -T fstab
test "$(cat m/file)" = more
mount -a -T fstab
test "$(findmnt -n "$(realpath m)" | wc -l)" = 1
kill -9 "$(pid)"
while kill -0 "$(pid)" 2> /dev/null; do :; done
mount -T fstab "$(realpath m)"
test "$(cat m/file)" = more
test "$(findmnt -n "$(realpath m)" | wc -l)" = 1
umount m
fails mountpoint m
"#;

#[test]
fn mount_and_fstab_know_a_braid_file_system() {
    let Some(bench) = Bench::new() else { return };
    let script = bench.in_namespace(SCRIPT);
    assert!(script.status.success(), "{}", said(&script));
}
