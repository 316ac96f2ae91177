//! Capabilities of programs: what Braid does with a file by itself leaves them.
//! Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, write_back, write_ranges};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "security.capability";

/// `cap_net_raw+ep`.
const VALUE: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn give(file: &Path) {
    setxattr(file, NAME, &VALUE, XattrFlags::empty()).unwrap();
}

fn is_capable(file: &Path) -> bool {
    let mut value = [0; 64];
    match getxattr(file, NAME, &mut value) {
        Err(Errno::NODATA) => false,
        len => {
            assert_eq!(value[..len.unwrap()], VALUE);
            true
        }
    }
}

impl Bench {
    /// Makes files of one to nine ranges that have capabilities since before they
    /// were closed, so that their ends are on each of the tiers.
    fn make_programs(&self) -> Vec<String> {
        let make = |ranges| {
            let name = format!("m/p{ranges}");
            write_ranges(&self.path(&name), &pattern(1, ranges * RANGE - 9));
            let open = File::options().append(true).open(self.path(&name)).unwrap();
            write_back(&open, b"some more", (ranges * RANGE - 9) as u64);
            give(&self.path(&name));
            name
        };
        (1..10).map(make).collect()
    }

    #[track_caller]
    fn all_capable(&self, programs: &[String], after: &str) {
        for program in programs {
            assert!(is_capable(&self.path(program)), "{program}, after {after}");
        }
    }
}

#[test]
fn closing_and_moving_leave_them() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let programs = bench.make_programs();
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.all_capable(&programs, "close");
    // Others are in use, as programs that run.
    let open: Vec<File> =
        programs.iter().step_by(2).map(|program| File::open(bench.path(program)).unwrap()).collect();
    for words in [
        &["move", "m", "--to", "slow"][..],
        &["move", "m", "--to", "fast"],
        &["rebalance", "m"],
        &["tier", "evacuate", "slow", "m"],
        &["tier", "evacuate", "slow", "--undo", "m"],
        &["move", "m/p9", "--to", "slow"],
        &["promote", "m"],
        &["demote", "m"],
        &["move", "m", "--to", "fast"],
    ] {
        bench.ok(words);
        bench.all_capable(&programs, &words.join(" "));
    }
    bench.make_dir("c");
    bench.ok(&["tier", "replace", "fast", "c", "m"]);
    bench.all_capable(&programs, "replacing home");
    drop(open);
    bench.unmount_clean();
}

#[test]
fn recovery_leaves_them() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    let programs = bench.make_programs();
    // In use, so that home is not up to date if the end is elsewhere.
    let open = programs.iter().zip(9..).map(|(program, range)| {
        let file = File::options().write(true).open(bench.path(program)).unwrap();
        file.write_all_at(b"more", range * RANGE as u64).unwrap();
        give(&bench.path(program));
        file
    });
    let open: Vec<File> = open.collect();
    bench.kill();
    drop(open);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.all_capable(&programs, "recovery");
    bench.unmount_clean();
}

#[test]
fn data_that_the_kernel_writes_back_later_leaves_them() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--cache", "writeback"]);
    for (name, len) in [("m/plain", 9), ("m/spread", 9 * RANGE)] {
        for turn in ["of a new file", "of one that was closed before"] {
            let file =
                File::options().write(true).create(true).truncate(false).open(bench.path(name)).unwrap();
            file.write_all_at(&pattern(1, len), 0).unwrap();
            give(&bench.path(name));
            file.sync_all().unwrap();
            assert!(is_capable(&bench.path(name)), "{name}, {turn}");
        }
    }
    bench.unmount_clean();
}

impl Bench {
    /// A program of `ranges` ranges, which any user may write to.
    fn make_common(&self, ranges: usize) {
        for dir in ["", "m"] {
            fs::set_permissions(self.path(dir), Permissions::from_mode(0o777)).unwrap();
        }
        write_ranges(&self.path("m/p"), &pattern(1, ranges * RANGE));
        fs::set_permissions(self.path("m/p"), Permissions::from_mode(0o777)).unwrap();
        give(&self.path("m/p"));
    }

    /// Moves the program to and fro, so slowly that `meanwhile` comes to pass many times.
    fn moving(&self, ranges: usize, mut meanwhile: impl FnMut()) {
        let rate = format!("{}KiB/s", ranges * RANGE / 1024);
        for to in ["slow", "fast", "slow", "fast"] {
            let mut moving = self.start(&["move", "m/p", "--to", to, "--bandwidth", &rate]);
            let mut times = 0;
            while moving.try_wait().unwrap().is_none() {
                meanwhile();
                times += 1;
            }
            assert!(moving.wait().unwrap().success() && times > 3, "{times} times");
        }
    }
}

#[test]
fn they_are_there_while_data_moves() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    for ranges in [1, 9] {
        bench.make_common(ranges);
        bench.moving(ranges, || assert!(is_capable(&bench.path("m/p"))));
    }
    bench.unmount_clean();
}

/// Moves put them back, but not those that a user's write took away meanwhile.
#[test]
fn what_a_user_took_away_during_a_move_stays_away() {
    let Some(bench) = Bench::new() else { return };
    for flags in [&[][..], &["--cache", "direct"]] {
        bench.ok(&[&["mount", "s.yaml", "m"], flags].concat());
        for ranges in [1, 9] {
            bench.make_common(ranges);
            bench.moving(ranges, || {
                give(&bench.path("m/p"));
                let mut write = Command::new("dd");
                write.args(["if=/dev/zero", "of=p", "bs=1", "count=1", "conv=notrunc", "status=none"]);
                let write = write.uid(1234).gid(1234).current_dir(bench.path("m")).stdin(Stdio::null());
                assert!(write.status().unwrap().success());
                assert!(!is_capable(&bench.path("m/p")));
            });
            assert!(!is_capable(&bench.path("m/p")));
        }
        bench.unmount_clean();
    }
}

#[test]
fn a_move_that_is_killed_leaves_them() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.make_common(9);
    for to in ["slow", "fast", "slow", "fast"] {
        // It waits for very long after each range.
        let words = ["move", "m/p", "--to", to, "--bandwidth", "1", "--background", "--json"];
        let id = bench.json(&words)["id"].as_u64().unwrap();
        bench.until(id, |job| job["done"]["ranges"].as_u64() == Some(1));
        bench.kill();
        bench.ok(&["mount", "s.yaml", "m"]);
        assert!(is_capable(&bench.path("m/p")), "to {to}, killed");
        bench.ok(&["job", "cancel", &id.to_string()]);
        bench.ok(&["move", "m/p", "--to", to]);
        assert!(is_capable(&bench.path("m/p")), "to {to}");
    }
    bench.unmount_clean();
}
