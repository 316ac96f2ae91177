//! What a sync promised holds, beside tiers that fail at the wrong moment. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, kill_and_wait, pattern, until, write_ranges};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;

impl Bench {
    /// A volume of two tiers, whose second one has these settings more.
    fn of_two(more: &str) -> Option<Self> {
        let bench = Self::bare(&["a", "b", "m"])?;
        bench.two_tiers(more);
        bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
        Some(bench)
    }

    fn two_tiers(&self, more: &str) {
        self.write_stack(&format!(
            "stack:\n  volume:\n    home: fast\n    policy: {{ weighted: {{ }} }}\n    range: 64KiB\n    \
             tiers:\n      fast: {{ dir: a, weight: 1 }}\n      slow: {{ dir: b, weight: 1{more} }}\n"
        ));
    }

    /// Makes a small file on the second tier whose home inode is behind it, with two names. Answers
    /// it, open, and what was synced.
    fn ahead_of_home(&self) -> (File, Vec<u8>) {
        let (file, data) = (self.path("m/f"), pattern(1, 30_000));
        fs::write(&file, &data[..20_000]).unwrap();
        self.ok(&["move", "m/f", "--to", "slow"]);
        fs::hard_link(&file, self.path("m/g")).unwrap();
        let mut open = File::options().append(true).open(&file).unwrap();
        for part in data[20_000..].chunks(5000) {
            open.write_all(part).unwrap();
            open.sync_data().unwrap();
        }
        assert_eq!(fs::metadata(self.path("a/f")).unwrap().len(), 25_000, "home is not behind");
        (open, data)
    }

    /// The same, and kills the daemon.
    fn left_behind(&self) -> Vec<u8> {
        let (open, data) = self.ahead_of_home();
        kill_and_wait(i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap());
        drop(open);
        self.ok(&["umount", "m"]);
        data
    }

    /// The file has all that was synced, also after it is written to.
    fn has_all(&self, mut data: Vec<u8>) {
        assert!(fs::read(self.path("m/f")).unwrap() == data, "what was synced is not there");
        let mut open = File::options().append(true).open(self.path("m/f")).unwrap();
        open.write_all(b"more").unwrap();
        data.extend(b"more");
        drop(open);
        assert!(fs::read(self.path("m/f")).unwrap() == data, "what was synced went with the next write");
        self.unmount_clean();
    }
}

#[test]
fn a_file_that_could_not_be_recovered_loses_a_name_and_nothing_else() {
    let Some(bench) = Bench::of_two("") else { return };
    let data = bench.left_behind();
    bench.ok(&["mount", "s.yaml", "m", "--without", "slow"]);
    fs::remove_file(bench.path("m/g")).unwrap();
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.has_all(data);
}

#[test]
fn a_file_that_could_not_be_recovered_is_by_the_next_process() {
    let Some(bench) = Bench::of_two("") else { return };
    let data = bench.left_behind();
    bench.two_tiers(", faults: [\"stat:EIO,once\"]");
    bench.ok(&["mount", "s.yaml", "m"]);
    until("the tier is well", || bench.tier("slow")["state"] == "online");
    bench.ok(&["upgrade", "m"]);
    // It was armed anew.
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    bench.has_all(data);
}

#[test]
fn a_file_whose_last_close_failed_at_home_is_recovered_at_the_next_open() {
    let Some(bench) = Bench::of_two("") else { return };
    let (open, data) = bench.ahead_of_home();
    let chattr = |change: &str| {
        assert!(Command::new("chattr").arg(change).arg(bench.path("a/f")).status().unwrap().success());
    };
    chattr("+i");
    drop(open);
    until("it is closed", || bench.status()["open_files"] == 0);
    chattr("-i");
    bench.has_all(data);
}

#[test]
fn a_sync_beside_another_one_has_holes_that_were_just_made() {
    let Some(bench) = Bench::of_two("") else { return };
    let path = bench.path("m/f");
    write_ranges(&path, &pattern(1, 4 * RANGE));
    bench.ok(&["move", "m/f", "--to", "slow"]);
    let file = File::options().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    bench.ok(&["drill", "slow", "punch:hang", "./m"]);
    let punched = file.try_clone().unwrap();
    // Not in a scope, which would wait for it after a failure.
    let punching = std::thread::spawn(move || {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punched, flags, 0, 4096)
    });
    let hanging = || bench.json(&["drill", "slow", "--json", "./m"])["tiers"][0]["hanging"].clone();
    until("the hole is being made", || hanging() == 1);
    bench.ok(&["sync", "m"]);
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    punching.join().unwrap().unwrap();
    bench.ok(&["drill", "slow", "sync:EIO", "./m"]);
    assert!(file.sync_all().is_err(), "nothing was synced");
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    drop(file);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_write_that_fails_leaves_nothing_behind_the_end() {
    let Some(bench) = Bench::of_two("") else { return };
    let path = bench.path("m/f");
    write_ranges(&path, &pattern(1, 4 * RANGE));
    bench.ok(&["move", "m/f", "--to", "slow"]);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let end = (RANGE + 1000) as u64;
    file.set_len(end).unwrap();
    // The next range goes to the other tier.
    bench.ok(&["tier", "set", "slow", "readonly", "./m"]);
    bench.ok(&["drill", "slow", "sync:EIO", "./m"]);
    let written = file.write_all_at(&[7; RANGE], 2 * RANGE as u64);
    assert_eq!(written.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    until("the tier is well", || bench.tier("slow")["state"] != "failing");
    file.set_len(4 * RANGE as u64).unwrap();
    let mut found = vec![1; RANGE];
    file.read_exact_at(&mut found, 2 * RANGE as u64).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "data of a write that failed is there");
    drop(file);
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_an_import_left_keeps_no_mount_from_going_on_without_its_tier() {
    let Some(bench) = Bench::of_two("") else { return };
    fs::write(bench.path("m/f"), pattern(1, 20_000)).unwrap();
    bench.ok(&["move", "m/f", "--to", "slow"]);
    bench.ok(&["umount", "m"]);
    // As if it had waited for its name when the power failed.
    let waiting = bench.path("a/.braid/import");
    fs::create_dir(&waiting).unwrap();
    fs::rename(bench.path("a/f"), waiting.join("1")).unwrap();
    bench.ok(&["mount", "s.yaml", "m", "--without", "slow"]);
    assert!(waiting.join("1").exists(), "only this leads to what is on the other tier");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(!waiting.exists());
    bench.ok(&["umount", "m"]);
}
