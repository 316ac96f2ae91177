//! Files that are open while the process that serves them is replaced.

use crate::common::{Bench, RANGE, pattern, until};
use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock, linkat};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) const LEN: usize = 5 * RANGE + 777;

pub(crate) fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Writes a stack that compresses, encrypts and checks.
pub(crate) fn write_frames(bench: &Bench) {
    let key = bench.path("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let tiers = "{ fast: { dir: a, weight: 3 }, slow: { dir: b, weight: 1 } }";
    let volume = format!("volume: {{ home: fast, policy: weighted, range: 64KiB, tiers: {tiers} }}");
    let encrypt = format!("encrypt: {{ key_file: {}, checksum: {{ {volume} }} }}", key.display());
    bench.write_stack(&format!("stack: {{ compress: {{ {encrypt} }} }}\n"));
}

/// Open files of all kinds.
pub(crate) struct InUse {
    pub(crate) plain: File,
    pub(crate) spread: File,
    /// Removed, with data on both tiers and on home only.
    gone: File,
    gone_plain: File,
    pub(crate) unnamed: File,
    pub(crate) dir: File,
}

impl InUse {
    pub(crate) fn of(bench: &Bench) -> Self {
        let path = |name: &str| bench.path("m").join(name);
        let files = ["plain", "spread", "gone", "gone-plain"].map(|name| open(&path(name)));
        let [plain, spread, gone, gone_plain] = files;
        plain.write_all_at(b"plain", 0).unwrap();
        gone_plain.write_all_at(b"gone", 0).unwrap();
        for (file, seed) in [(&spread, 1), (&gone, 2)] {
            file.write_all_at(&pattern(seed, LEN), 0).unwrap();
        }
        let flags = i32::try_from(OFlags::TMPFILE.bits()).unwrap();
        let unnamed =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(bench.path("m")).unwrap();
        unnamed.write_all_at(&pattern(3, LEN), 0).unwrap();
        gone.sync_all().unwrap();
        fs::remove_file(path("gone")).unwrap();
        fs::remove_file(path("gone-plain")).unwrap();
        fs::create_dir(path("dir")).unwrap();
        (0..300).for_each(|at| drop(File::create(path("dir").join(at.to_string())).unwrap()));
        flock(&plain, FlockOperation::LockExclusive).unwrap();
        let dir = File::open(path("dir")).unwrap();
        Self { plain, spread, gone, gone_plain, unnamed, dir }
    }

    /// All is as it was, and goes on.
    pub(crate) fn goes_on(&self, bench: &Bench, turn: u64) {
        let read = |file: &File, len| {
            let mut found = vec![0; len];
            file.read_exact_at(&mut found, 0).unwrap();
            found
        };
        assert_eq!((read(&self.plain, 5), read(&self.gone_plain, 4)), (b"plain".to_vec(), b"gone".to_vec()));
        for (file, seed) in [(&self.spread, 1), (&self.gone, 2), (&self.unnamed, 3)] {
            assert!(read(file, LEN) == pattern(seed, LEN), "{seed}");
            assert_eq!(file.metadata().unwrap().len(), LEN as u64 + turn * RANGE as u64);
            // It grows.
            file.write_all_at(&pattern(seed + turn, RANGE), LEN as u64 + turn * RANGE as u64).unwrap();
            file.sync_all().unwrap();
        }
        let other = open(&bench.path("m/plain"));
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(), "the lock is gone");
    }
}

fn names(dir: &mut rustix::fs::Dir, most: usize) -> BTreeSet<String> {
    let names = dir.take(most).map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Uses a fresh file system, which goes on each time after `interrupt`.
pub(crate) fn stays_open_through(bench: &Bench, interrupt: impl Fn(&Bench)) {
    let used = InUse::of(bench);
    let mut listing = rustix::fs::Dir::read_from(&used.dir).unwrap();
    let mut seen = names(&mut listing, 100);
    for turn in 0..3 {
        interrupt(bench);
        used.goes_on(bench, turn);
    }
    seen.extend(names(&mut listing, usize::MAX));
    assert_eq!(seen.len(), 300, "the listing went on");
    // A file that never had a name gets one.
    let fd = format!("/proc/self/fd/{}", used.unnamed.as_raw_fd());
    linkat(CWD, &*fd, CWD, bench.path("m/named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop((used, listing));
    assert!(fs::read(bench.path("m/named")).unwrap()[..LEN] == pattern(3, LEN));
}

/// Uses a fresh volume, which goes on each time after `interrupt`.
pub(crate) fn goes_on_through(bench: &Bench, interrupt: impl Fn(&Bench)) {
    stays_open_through(bench, interrupt);
    until("what was removed is gone from the tiers", || {
        // Four files of the test, one of which is named since, have ranges.
        bench.status()["pending_removals"] == 0
            && bench.ranges_on("slow") + bench.ranges_on("fast") <= 2 * (LEN / RANGE + 4) as u64
    });
    bench.unmount_clean();
}
