//! Small files on every tier, through the `braid` command: new and growing
//! files on a well filled home. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, pattern, read_anew};
use rustix::fs::statvfs;
use std::fs;
use std::io::Write;

/// A home of 64 MiB and another tier of 256 MiB, each a file system of its own
/// in memory.
fn bench() -> Option<Bench> {
    let mut bench = Bench::bare(&["m"])?;
    bench.make_tmpfs("a", c"size=64m");
    bench.make_tmpfs("b", c"size=256m");
    let tiers = "{ fast: { dir: a }, slow: { dir: b } }";
    bench.write_stack(&format!(
        "stack: {{ volume: {{ home: fast, policy: {{ adaptive: {{ }} }}, tiers: {tiers} }} }}\n"
    ));
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

fn available(bench: &Bench) -> u64 {
    let vfs = statvfs(bench.path("m")).unwrap();
    vfs.f_bavail * vfs.f_frsize
}

#[test]
fn small_files_fill_all_tiers_and_names_have_room_to_the_end() {
    let Some(bench) = bench() else { return };
    let mount = bench.path("m");
    // One that begins while home has room, and grows when it has none.
    fs::write(mount.join("log"), pattern(1, 200_000)).unwrap();
    let promised = available(&bench);
    let data = pattern(2, 100_000);
    let mut written = 0;
    let make = |at: u64| -> std::io::Result<()> {
        let mut file = fs::File::create(mount.join(format!("f{at}")))?;
        file.write_all(&data)?;
        file.sync_all()
    };
    // Home alone would be full long before.
    let half = promised / 2 / data.len() as u64;
    for at in 0..half {
        make(at).unwrap();
        written += data.len() as u64;
    }
    let mut log = fs::OpenOptions::new().append(true).open(mount.join("log")).unwrap();
    let more = pattern(3, 5_000_000);
    log.write_all(&more).unwrap();
    log.sync_all().unwrap();
    drop(log);
    let mut expected = pattern(1, 200_000);
    expected.extend(&more);
    assert!(read_anew(&mount.join("log")) == expected);
    written += more.len() as u64;
    let refused = (half..).find_map(|at| match make(at) {
        Ok(()) => {
            written += data.len() as u64;
            None
        }
        Err(error) => Some((at, error)),
    });
    let (at, error) = refused.unwrap();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
    // A file system allocates blocks of 4096 for 100,000 bytes.
    let taken = written / 100_000 * 102_400;
    assert!(taken * 100 >= promised * 95, "{taken} bytes of {promised}");
    fs::remove_file(mount.join(format!("f{at}"))).unwrap();
    fs::remove_file(mount.join("f0")).unwrap();
    // There is still room for names, however much data there is.
    for name in 0..200 {
        fs::File::create(mount.join(format!("n{name}"))).unwrap();
    }
    for at in [1, half - 1, half, at - 1] {
        assert!(read_anew(&mount.join(format!("f{at}"))) == data, "f{at}");
    }
    let late = format!("m/f{}", (half + at) / 2);
    let told = bench.ok(&["explain", &late]);
    assert!(told.contains(": whole, "), "{told}");
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    bench.ok(&["umount", "m"]);
    crate::common::is_well(&bench);
}
