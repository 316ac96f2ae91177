//! How the kernel's requests come: by the device, and through io_uring.
//! Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern};
use rustix::fs::XattrFlags;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

/// Whether requests come through io_uring on the last mount.
fn has_rings(bench: &Bench) -> bool {
    let status = bench.status();
    let rings = status["transport"] == "io_uring";
    assert!(rings || status["transport"] == "device", "{status}");
    rings
}

/// The first kernel that offers it is 6.14; it may be built without.
fn kernel_has_rings() -> bool {
    let has = Path::new("/sys/module/fuse/parameters/enable_uring").exists();
    if !has {
        eprintln!("SKIPPED: io_uring: the kernel does not have it for FUSE");
    }
    has
}

/// Requests and replies of every shape: empty, with long names and values, and
/// with as much data as one can have, by many threads at once.
fn work(bench: &Bench) {
    let dir = bench.path("m/dir");
    fs::create_dir(&dir).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let dir = &dir;
            scope.spawn(move || {
                let path = dir.join(format!("{thread:0>255}"));
                let data = pattern(thread, 40 * RANGE + 7);
                fs::write(&path, &data).unwrap();
                let file = fs::File::options().read(true).write(true).open(&path).unwrap();
                file.write_all_at(b"in between", 12_345).unwrap();
                file.sync_all().unwrap();
                let read = fs::read(&path).unwrap();
                assert!(read[..12_345] == data[..12_345] && &read[12_345..12_355] == b"in between");
                assert!(read[12_355..] == data[12_355..]);
                assert_eq!(fs::read(dir.join("absent")).unwrap_err().kind(), ErrorKind::NotFound);
            });
        }
    });
    let file = dir.join(format!("{:0>255}", 0));
    // Larger than a request that is copied out of a ring; ext4 takes less than
    // a block.
    let value = pattern(1, 3_500);
    rustix::fs::setxattr(&file, "user.large", &value, XattrFlags::empty()).unwrap();
    let mut read = vec![0; 65_536];
    let len = rustix::fs::getxattr(&file, "user.large", &mut read).unwrap();
    assert!(read[..len] == value);
    let refused = rustix::fs::setxattr(&file, "user.huge", &pattern(2, 60_000), XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::NOSPC));
    let target = "t".repeat(4_000);
    symlink(&target, dir.join("link")).unwrap();
    assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new(&target));
    for number in 0..2_000 {
        fs::write(dir.join(format!("small {number}")), format!("{number}")).unwrap();
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 24 + 1 + 2_000);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn requests_come_through_io_uring_where_the_kernel_can() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    if kernel_has_rings() {
        assert!(has_rings(&bench));
    }
    work(&bench);
    bench.unmount_clean();
}

/// Looks for data in so many files at once that the kernel has yet to write
/// back, from one processor.
const SEEK: &str = "
import errno, os, sys, threading
os.sched_setaffinity(0, {0})
files = [os.open(f'{sys.argv[1]}/{number}', os.O_CREAT | os.O_RDWR) for number in range(60)]
for file in files:
    os.pwrite(file, bytes(4096), 1 << 20)
def seek(file):
    try:
        found = os.lseek(file, 0, os.SEEK_DATA)
        assert found == 1 << 20, found
    except OSError as error:
        assert error.errno == errno.EINVAL
    answered.append(file)
answered = []
threads = [threading.Thread(target=seek, args=[file]) for file in files]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(answered) == len(files)
";

#[test]
fn requests_that_wait_for_the_kernel_leave_room_for_those_it_sends_meanwhile() {
    for transport in ["auto", "device"] {
        let Some(bench) = Bench::new() else { return };
        bench.ok(&[
            "mount",
            "s.yaml",
            "m",
            "--threads",
            "1",
            "--cache",
            "writeback",
            "--transport",
            transport,
        ]);
        let mut seek = Command::new("timeout");
        let sought = seek.args(["-s", "KILL", "60", "python3", "-c", SEEK]).arg(bench.path("m"));
        assert!(sought.status().unwrap().success(), "{transport}");
        bench.unmount_clean();
    }
}

#[test]
fn requests_come_by_the_device_where_that_is_asked_for() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--transport", "device"]);
    assert!(!has_rings(&bench));
    work(&bench);
    bench.unmount_clean();
    bench.write_stack(&format!("{}mount: {{ transport: device }}\n", crate::common::stack(&bench)));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(!has_rings(&bench));
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m", "--transport", "auto"]);
    assert!(has_rings(&bench) || !kernel_has_rings());
    let said = bench.ok(&["stack", "dump", "m"]);
    assert!(said.contains("transport: auto"), "{said}");
    bench.ok(&["umount", "m"]);
    let said = bench.refused(&["mount", "s.yaml", "m", "--transport", "pigeon"]);
    assert!(said.contains("--transport pigeon: not a transport\n  help: write auto or device"), "{said}");
}

#[test]
fn threads_poll_for_requests_for_as_long_as_asked_for() {
    for transport in ["auto", "device"] {
        let Some(bench) = Bench::new() else { return };
        bench.write_stack(&format!("{}mount: {{ poll: 1ms }}\n", crate::common::stack(&bench)));
        bench.ok(&["mount", "s.yaml", "m", "--transport", transport]);
        assert!(bench.ok(&["stack", "dump", "m"]).contains("poll: 1000us"));
        work(&bench);
        bench.unmount_clean();
        bench.ok(&["mount", "s.yaml", "m", "--transport", transport, "--poll", "0us"]);
        assert!(bench.ok(&["stack", "dump", "m"]).contains("poll: 0us"));
        work(&bench);
        bench.unmount_clean();
    }
    let Some(bench) = Bench::new() else { return };
    for (given, help) in [("2ms", "at most 1ms"), ("often", "a duration is")] {
        let said = bench.refused(&["mount", "s.yaml", "m", "--poll", given]);
        assert!(said.contains(&format!("--poll {given}: can't be used\n  help: {help}")), "{said}");
    }
}
