//! The priority of the daemon. Needs root and /dev/fuse; skipped without them.

use crate::common::Bench;
use std::fs;

/// The nice values of all threads of the mount's process.
fn nice_values(bench: &Bench) -> Vec<String> {
    let pid = bench.status()["pid"].as_u64().unwrap();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nice = |thread: fs::DirEntry| {
        // After the name, which may have blanks, 16 other fields are before it. A thread may end.
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        Some(stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned())
    };
    threads.filter_map(|thread| nice(thread.unwrap())).collect()
}

#[test]
fn the_daemon_has_the_priority_of_its_mount() {
    let Some(bench) = Bench::new() else { return };
    let refused = bench.refused(&["mount", "--nice", "20", "s.yaml", "m"]);
    assert!(refused.contains("--nice 20") && refused.contains("from -20 to 19"), "{refused}");
    bench.ok(&["mount", "--nice", "7", "s.yaml", "m"]);
    let values = nice_values(&bench);
    assert!(values.len() > 1 && values.iter().all(|nice| nice == "7"), "{values:?}");
    let dumped = bench.ok(&["stack", "dump", "m"]);
    assert!(dumped.contains("nice: 7"), "{dumped}");
    bench.ok(&["umount", "m"]);

    // By the file, and after an upgrade.
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&format!("{text}mount: {{ nice: -3, runtime: {{ dedicated: no }} }}\n"));
    bench.ok(&["mount", "s.yaml", "m"]);
    let values = nice_values(&bench);
    assert!(values.iter().all(|nice| nice == "-3"), "{values:?}");
    bench.ok(&["upgrade", "m"]);
    let values = nice_values(&bench);
    assert!(values.iter().all(|nice| nice == "-3"), "{values:?}");
    bench.ok(&["umount", "m"]);

    bench.ok(&["log", "create", "fs", "--size", "16MiB"]);
    bench.ok(&["log", "mount", "--log-file", "log", "--nice", "4", "fs", "m"]);
    let values = nice_values(&bench);
    assert!(values.iter().all(|nice| nice == "4"), "{values:?}");
    bench.ok(&["umount", "m"]);
}
