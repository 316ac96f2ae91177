//! Scrubs as jobs, on real mounts. What modules find, the tests of frames try.

use crate::common::{Bench, RANGE, pattern, write_ranges};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Ranges of each spread file: one piece of a scrub.
const RANGES: usize = (1 << 20) / RANGE;

impl Bench {
    /// A volume of two tiers, with spread files and a plain one; `None` where nothing can be
    /// mounted.
    fn to_scrub() -> Option<Self> {
        let bench = Self::bare(&["a", "b", "m"])?;
        bench.write_stack(
            "stack:\n  volume:\n    home: fast\n    policy: { weighted: { } }\n    range: 64KiB\n    \
             tiers:\n      fast: { dir: a, weight: 2 }\n      slow: { dir: b, weight: 2 }\n",
        );
        bench.ok(&["mount", "s.yaml", "m"]);
        fs::create_dir_all(bench.path("m/d/deep")).unwrap();
        for name in ["m/d/b", "m/d/deep/a", "m/d/e"] {
            write_ranges(&bench.path(name), &pattern(1, RANGES * RANGE));
        }
        fs::write(bench.path("m/d/f"), "small").unwrap();
        fs::hard_link(bench.path("m/d/b"), bench.path("m/d/z")).unwrap();
        bench.ok(&["sync", "m"]);
        Some(bench)
    }

    /// Starts a scrub, and waits for its end.
    fn scrub(&self, path: &str) -> serde_json::Value {
        let id = self.json(&["scrub", "--background", "--json", path])["id"].to_string();
        self.braid(&["job", "wait", &id]);
        self.json(&["job", "show", &id, "--json"])
    }
}

#[test]
fn a_scrub_reads_each_file_once_and_leaves_no_trace() {
    let Some(bench) = Bench::to_scrub() else { return };
    // Times that the kernel remembers say nothing.
    let remount = || {
        bench.ok(&["umount", "m"]);
        bench.ok(&["mount", "s.yaml", "m"]);
    };
    let accessed = || fs::metadata(bench.path("m/d/e")).unwrap().atime_nsec();
    // Home's file system renews those of what it has.
    bench.ok(&["move", "m/d/e", "--to", "slow"]);
    remount();
    let before = accessed();
    let job = bench.scrub("m");
    assert_eq!(
        (&job["state"], &job["done"]["files"], &job["errors"]),
        (&"done".into(), &4.into(), &0.into())
    );
    assert_eq!(job["done"]["bytes"], 3 * (1 << 20) + 5, "{job}");
    remount();
    assert_eq!(accessed(), before);
    assert_eq!(bench.scrub("m/d/f")["done"]["files"], 1);
    assert!(bench.ok(&["job", "show", "2"]).contains("\nread: 3.00 MiB, 4 files\n"));
    bench.unmount_clean();
}

#[test]
fn a_scrub_goes_on_where_it_was_after_a_crash() {
    let Some(bench) = Bench::to_scrub() else { return };
    let slowly = ["scrub", "--background", "--json", "--bandwidth", "1B/s", "m/d"];
    let id = bench.json(&slowly)["id"].as_u64().unwrap();
    let said = bench.refused(&["scrub", "--background", "m/d"]);
    assert!(said.contains(&format!("job {id} reads all of that already")), "{said}");
    // The first piece goes at once; the next one waits for very long.
    bench.until(id, |job| job["done"]["files"] == 1);
    let id = id.to_string();
    bench.ok(&["job", "pause", &id]);
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    // What was read is not read again: it would fail.
    bench.ok(&["drill", "slow", "read:EIO", "./m"]);
    bench.ok(&["job", "set", &id, "bandwidth=none"]);
    bench.ok(&["job", "resume", &id]);
    let (status, said) = bench.fails(&["job", "wait", &id]);
    assert_eq!(status, 1);
    assert!(said.contains(" can't be read; the first: d/deep/a: bytes "), "{said}");
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    let job = bench.json(&["job", "show", &id, "--json"]);
    assert_eq!((&job["done"], &job["total"]), (&job["total"], &bench.scrub("m/d")["done"]), "{job}");
    bench.unmount_clean();
}

#[test]
fn a_scrub_under_way_holds_up_neither_an_upgrade_nor_an_unmount() {
    let Some(bench) = Bench::to_scrub() else { return };
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.ok(&["umount", "m"]);
    bench.write_stack(&format!(
        "stack:\n  checksum:\n    volume:\n{}",
        stack.split_once("volume:\n").unwrap().1.replace("    ", "      ")
    ));
    bench.ok(&["mount", "s.yaml", "m"]);
    let slowly = ["scrub", "--background", "--json", "--bandwidth", "1B/s", "m"];
    let id = bench.json(&slowly)["id"].as_u64().unwrap();
    bench.until(id, |job| job["done"]["files"] == 1);
    bench.ok(&["upgrade", "m"]);
    bench.until(id, |job| job["state"] == "running");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.until(id, |job| job["state"] == "running");
    let id = id.to_string();
    bench.ok(&["job", "set", &id, "bandwidth=none"]);
    assert!(bench.ok(&["job", "wait", &id]).contains(": done: read "));
    assert!(!fs::read_to_string(bench.path("log")).unwrap().contains("an open file is lost"));
    bench.unmount_clean();
}
