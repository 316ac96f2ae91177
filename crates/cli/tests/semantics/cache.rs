//! The modes of the kernel's cache: the promises of `docs/semantics.md` for
//! each. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, until};
use rustix::fs::{OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

const MODES: [&str; 3] = ["writeback", "passthrough", "direct"];

/// Two tiers that may be filled to the last block.
const TWO_SMALL: &str = "stack:
  volume:
    home: fast
    policy: { weighted: { } }
    range: 64KiB
    tiers:
      fast: { dir: a, weight: 1, reserve: 0 }
      slow: { dir: b, weight: 1, reserve: 0 }
";

impl Bench {
    fn mount_with(&self, cache: &str) {
        self.ok(&["mount", "s.yaml", "m", "--cache", cache]);
    }

    /// Whether the kernel writes back on this mount.
    fn writes_back(&self) -> bool {
        self.status()["cache"] == "writeback"
    }

    /// Whether the kernel does the I/O of plain files on this mount.
    fn passes_through(&self) -> bool {
        self.status()["cache"] == "passthrough"
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn open_directly(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// Reads and writes by a mapping.
const MAP: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    with mmap.mmap(file.fileno(), 8192) as map:
        map[100] = 7
        print(map[5000:5004].decode(), end='')
";

/// Stores to a mapping.
const STORE: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 4096) as map:
    map[100] ^= 1
";

/// Prints the errors of writes, of `fsync` if that is wanted, and of `close`.
const WRITE: &str = "
import errno, os, sys
def tried(what, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        print(what, errno.errorcode[error.errno])
        return False
    return True
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
rest = int(sys.argv[2])
while rest > 0 and tried('write', os.write, fd, bytes(65536)):
    rest -= 65536
if sys.argv[3] == 'true':
    tried('sync', os.fsync, fd)
tried('close', os.close, fd)
";

fn python(program: &str, arguments: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The errors that a program gets that writes so many bytes.
fn write_and_close(path: &Path, len: usize, sync: bool) -> String {
    python(WRITE, &[path.to_str().unwrap(), &len.to_string(), &sync.to_string()])
}

/// A plain file and a spread one, each of some data.
fn files(bench: &Bench) -> [(std::path::PathBuf, Vec<u8>); 2] {
    let made = [("plain", RANGE / 2), ("spread", 8 * RANGE)];
    made.map(|(name, len)| {
        let (path, data) = (bench.path("m").join(name), pattern(len as u64, len));
        fs::write(&path, &data).unwrap();
        (path, data)
    })
}

#[test]
fn a_mode_is_what_was_asked_for() {
    let Some(bench) = Bench::new() else { return };
    for mode in ["writeback", "passthrough", "direct", "auto"] {
        bench.mount_with(mode);
        assert_eq!(bench.writes_back(), mode == "writeback" || mode == "auto", "{mode}");
        assert!(!bench.passes_through() || mode == "passthrough", "{mode}");
        bench.ok(&["umount", "m"]);
    }
    // Nothing can go to another tier.
    bench.make_dir("only");
    bench.ok(&["mount", "--tier", "only=only", "m", "--log-level", "debug"]);
    assert!(!bench.writes_back());
    bench.ok(&["umount", "m"]);
    let stack = crate::common::stack(&bench);
    let said = bench.refused(&["mount", "s.yaml", "m", "--cache", "warm"]);
    assert!(
        said.contains("--cache warm") && said.contains("write auto, writeback, passthrough or direct"),
        "{said}"
    );
    bench.write_stack(&(stack + "mount: { cache: warm }\n"));
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains("'warm'") && said.contains("write auto, writeback, passthrough or direct"),
        "{said}"
    );
}

#[test]
fn what_the_kernel_keeps_back_is_bounded() {
    let Some(bench) = Bench::new() else { return };
    let kept = |bench: &Bench| -> u64 {
        let device = fs::metadata(bench.path("m")).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let file = format!("/sys/class/bdi/{major}:{minor}/max_bytes");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    };
    // The kernel keeps it as a share of the limit of all file systems.
    let about = |found: u64, wanted: u64| found.abs_diff(wanted) < wanted / 10;
    bench.ok(&["mount", "s.yaml", "m", "--cache", "writeback", "--dirty", "32MiB"]);
    assert!(about(kept(&bench), 32 << 20), "{}", kept(&bench));
    bench.ok(&["umount", "m"]);
    bench.write_stack(&(crate::common::stack(&bench) + "mount: { cache: writeback, dirty: 64MiB }\n"));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(about(kept(&bench), 64 << 20), "{}", kept(&bench));
    bench.ok(&["umount", "m"]);
    let said = bench.refused(&["mount", "s.yaml", "m", "--dirty", "much"]);
    assert!(said.contains("--dirty much"), "{said}");
}

#[test]
fn every_way_to_change_a_file_agrees_with_every_other() {
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        for (path, mut data) in files(&bench) {
            let size = data.len();
            let file = open(&path);
            // Appends of two descriptors alternate, and are not synced.
            let appender = || File::options().append(true).open(&path).unwrap();
            let (mut one, mut two) = (appender(), appender());
            for round in 0..50_u8 {
                one.write_all(&[round; 100]).unwrap();
                two.write_all(&[round ^ 0xff; 33]).unwrap();
                data.extend([round; 100]);
                data.extend([round ^ 0xff; 33]);
            }
            // A part of a page, by a descriptor that can't read it.
            let writer = File::options().write(true).open(&path).unwrap();
            writer.write_all_at(b"part", 5000).unwrap();
            data[5000..5004].copy_from_slice(b"part");
            assert_eq!(file.metadata().unwrap().len(), data.len() as u64, "{mode}");
            // A mapping, and direct I/O beside it.
            assert_eq!(python(MAP, &[path.to_str().unwrap()]), "part", "{mode}");
            data[100] = 7;
            let direct = open_directly(&path);
            let mut page = Aligned::new();
            direct.read_exact_at(page.bytes(), 4096).unwrap();
            assert!(page.bytes() == &data[4096..8192], "{mode}: direct read after cached write");
            page.bytes().fill(9);
            direct.write_all_at(page.bytes(), 4096).unwrap();
            data[4096..8192].fill(9);
            let mut found = vec![0; 4096];
            file.read_exact_at(&mut found, 4096).unwrap();
            assert!(found == data[4096..8192], "{mode}: cached read after direct write");
            // Shorter and longer: the cut data does not come back.
            file.set_len(size as u64 - 100).unwrap();
            file.set_len(size as u64 + 3000).unwrap();
            data.truncate(size - 100);
            data.resize(size + 3000, 0);
            writer.write_all_at(b"end", size as u64 + 2000).unwrap();
            data[size + 2000..size + 2003].copy_from_slice(b"end");
            // A copy of data that may not be written yet.
            let copy = open(&bench.path("m/copy"));
            let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), data.len());
            let copied = copied.unwrap();
            assert!(fs::read(bench.path("m/copy")).unwrap() == data[..copied], "{mode}");
            fs::remove_file(bench.path("m/copy")).unwrap();
            assert!(fs::read(&path).unwrap() == data, "{mode} {}", path.display());
            drop((file, one, two, writer, direct));
            assert!(crate::common::read_anew(&path) == data, "{mode} {}", path.display());
        }
        bench.unmount_clean();
    }
}

/// A page for direct I/O.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0; 8192];
        let start = bytes.as_ptr().align_offset(4096);
        Self(bytes, start)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + 4096]
    }
}

#[test]
fn holes_are_found_beside_data_that_is_not_written_yet() {
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        for size in [RANGE as u64 / 2, 16 * RANGE as u64] {
            let file = open(&bench.path(&format!("m/f{size}")));
            file.set_len(size).unwrap();
            let at = size / 2;
            file.write_all_at(&[1; 4096], at).unwrap();
            let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(at)).unwrap();
            assert_eq!((data, hole), (at, at + 4096), "{mode} {size}");
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(at + 4096)), Err(Errno::NXIO), "{mode}");
        }
        bench.unmount_clean();
    }
}

#[test]
fn times_are_those_of_the_writes_and_last() {
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        let seen = files(&bench).map(|(path, _)| {
            let file = open(&path);
            file.write_all_at(b"x", 1).unwrap();
            let written = file.metadata().unwrap();
            // Written back in the middle, and again at the close.
            file.sync_all().unwrap();
            drop(file);
            let closed = fs::metadata(&path).unwrap();
            assert_eq!(closed.modified().unwrap(), written.modified().unwrap(), "{mode}");
            (path, closed)
        });
        // A time that was set by hand outlasts earlier writes.
        let by_hand = bench.path("m/by-hand");
        let file = open(&by_hand);
        file.write_all_at(&pattern(3, 5 * RANGE), 0).unwrap();
        let past = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: past, last_modification: past };
        rustix::fs::futimens(&file, &times).unwrap();
        drop(file);
        bench.ok(&["umount", "m"]);
        bench.mount_with(mode);
        for (path, before) in seen {
            let now = fs::metadata(&path).unwrap();
            assert_eq!(
                (now.mtime(), now.mtime_nsec()),
                (before.mtime(), before.mtime_nsec()),
                "{mode} {path:?}"
            );
            assert_eq!(now.len(), before.len());
        }
        let now = fs::metadata(&by_hand).unwrap();
        assert_eq!((now.mtime(), now.mtime_nsec()), (past.tv_sec, past.tv_nsec), "{mode}");
        bench.unmount_clean();
    }
}

#[test]
fn a_store_to_a_mapping_changes_the_time() {
    let past = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: past, last_modification: past };
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        let changed = files(&bench).map(|(path, _)| {
            rustix::fs::futimens(open(&path), &times).unwrap();
            python(STORE, &[path.to_str().unwrap()]);
            let now = fs::metadata(&path).unwrap().mtime();
            assert!(now > past.tv_sec, "{mode} {path:?}: {now}");
            path
        });
        bench.ok(&["umount", "m"]);
        bench.mount_with(mode);
        for path in changed {
            let now = fs::metadata(&path).unwrap().mtime();
            assert!(now > past.tv_sec, "{mode} {path:?}: {now} after another mount");
        }
        bench.unmount_clean();
    }
}

/// The kernel sets no time for a write within the same tick of its clock as the
/// creation, and writes back later.
#[test]
fn times_of_new_files_stay_when_the_kernel_forgets_them() {
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        let lens = (0..40).map(|number| if number % 2 == 0 { 100 } else { 4 * RANGE });
        let files = lens.enumerate().map(|(number, len)| {
            let path = bench.path(&format!("m/{number}"));
            fs::write(&path, pattern(number as u64, len)).unwrap();
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            (path, modified)
        });
        let files: Vec<_> = files.collect();
        bench.ok(&["umount", "m"]);
        bench.mount_with(mode);
        for (path, before) in files {
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before, "{mode} {path:?}");
        }
        bench.unmount_clean();
    }
}

#[test]
fn what_was_synced_survives_the_daemon() {
    for mode in MODES {
        let Some(bench) = Bench::new() else { return };
        bench.mount_with(mode);
        let made = files(&bench);
        let held: Vec<File> = made.iter().map(|(path, _)| open(path)).collect();
        // By `fsync` of one, and for all.
        held[0].write_all_at(b"synced", 10).unwrap();
        held[0].sync_data().unwrap();
        held[1].write_all_at(b"synced", 10).unwrap();
        bench.ok(&["sync", "m"]);
        held[1].write_all_at(b"later", 20).unwrap();
        bench.kill();
        drop(held);
        bench.mount_with(mode);
        for (path, mut data) in made {
            data[10..16].copy_from_slice(b"synced");
            let mut found = fs::read(&path).unwrap();
            // The last write may be there or not.
            if &found[20..25] == b"later" {
                found[20..25].copy_from_slice(&data[20..25]);
            }
            assert!(found == data, "{mode} {}", path.display());
        }
        bench.ok(&["umount", "m"]);
        crate::common::is_well(&bench);
    }
}

#[test]
fn a_program_hears_of_data_that_no_tier_has_room_for() {
    for mode in MODES {
        let Some(mut bench) = Bench::bare(&["m"]) else { return };
        bench.make_tmpfs("a", c"size=8m");
        bench.make_tmpfs("b", c"size=8m");
        bench.write_stack(TWO_SMALL);
        bench.mount_with(mode);
        for sync in [true, false] {
            let path = bench.path("m/large");
            let errors = write_and_close(&path, 24 << 20, sync);
            assert!(errors.contains("ENOSPC"), "{mode} {sync}: {errors}");
            fs::remove_file(&path).unwrap();
            until("the space is free again", || {
                fs::write(bench.path("m/small"), pattern(5, 4 << 20)).is_ok()
            });
        }
        bench.unmount_clean();
    }
}

#[test]
fn a_program_that_writes_until_it_is_refused_ends() {
    for mode in MODES {
        let Some(mut bench) = Bench::bare(&["m"]) else { return };
        bench.make_tmpfs("a", c"size=8m");
        bench.make_tmpfs("b", c"size=8m");
        bench.write_stack(TWO_SMALL);
        bench.mount_with(mode);
        let path = bench.path("m/endless");
        let mut file = open(&path);
        let piece = pattern(6, 10_000);
        let refused = loop {
            if let Err(error) = file.write_all(&piece) {
                break error;
            }
            assert!(file.stream_position().unwrap() < 1 << 30, "{mode}: a full volume takes data");
        };
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull, "{mode}");
        // The error is reported once. A reader does not get it.
        let mut reader = File::open(&path).unwrap();
        reader.seek(std::io::SeekFrom::End(0)).unwrap();
        assert_eq!(reader.read(&mut [0; 1000]).unwrap(), 0, "{mode}");
        drop((file, reader));
        fs::remove_file(&path).unwrap();
        until("the space is free again", || fs::write(bench.path("m/small"), pattern(5, 4 << 20)).is_ok());
        bench.unmount_clean();
    }
}

/// Makes files of 100 kB until one is refused, without a look at `close`.
#[test]
fn small_files_are_not_lost_where_close_is_not_looked_at() {
    let Some(mut bench) = Bench::bare(&["m"]) else { return };
    bench.make_tmpfs("a", c"size=8m");
    bench.make_tmpfs("b", c"size=8m");
    bench.write_stack(TWO_SMALL);
    bench.mount_with("writeback");
    let data = pattern(8, 100_000);
    let path = |number: usize| bench.path("m").join(format!("small{number}"));
    let made = (0..1000).find(|number| {
        let mut file = File::create(path(*number)).unwrap();
        file.write_all(&data).is_err()
    });
    let made = made.unwrap();
    assert!(made * data.len() > 12 << 20, "{made} files fit");
    bench.ok(&["umount", "m"]);
    bench.mount_with("writeback");
    for number in 0..made {
        let found = fs::read(path(number)).unwrap();
        let same = found.iter().zip(&data).take_while(|(found, written)| found == written).count();
        assert!(found == data, "file {number} of {made}: {same} of {} bytes are as written", found.len());
    }
    bench.unmount_clean();
}

#[test]
fn a_program_hears_of_a_tier_that_fails_when_data_is_written_back() {
    let Some(bench) = Bench::new() else { return };
    bench.mount_with("writeback");
    for name in ["synced", "closed"] {
        let sync = name == "synced";
        let path = bench.path("m").join(name);
        // The cache writes back 1 MiB at a time, to one tier.
        fs::write(&path, pattern(6, 256 * RANGE)).unwrap();
        assert!(bench.on(&format!("m/{name}"), "slow") > 0);
        let other = sync.then(|| open(&path));
        bench.ok(&["drill", "slow", "write:EIO", "./m"]);
        let errors = write_and_close(&path, 256 * RANGE, sync);
        assert_eq!(errors, if sync { "sync EIO\n" } else { "close EIO\n" });
        if let Some(other) = other {
            assert!(other.sync_all().is_err(), "each descriptor hears of it");
        }
        bench.ok(&["drill", "slow", "--clear", "./m"]);
        until("the tier is back", || bench.state("slow") == "online");
        fs::write(&path, pattern(8, 256 * RANGE)).unwrap();
        let mut found = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == pattern(8, 256 * RANGE));
    }
    bench.unmount_clean();
}

#[test]
fn a_sync_of_the_volume_hears_of_what_can_not_be_written_back() {
    let Some(bench) = Bench::new() else { return };
    bench.mount_with("writeback");
    let path = bench.path("m/file");
    fs::write(&path, pattern(6, 256 * RANGE)).unwrap();
    let file = open(&path);
    bench.ok(&["sync", "m"]);
    bench.ok(&["drill", "slow", "write:EIO", "./m"]);
    file.write_all_at(&pattern(7, 256 * RANGE), 0).unwrap();
    let (status, said) = bench.fails(&["sync", "m"]);
    assert_eq!(status, 1);
    assert!(said.contains("writing back the kernel's cache: Input/output error"), "{said}");
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    until("the tier is back", || bench.state("slow") == "online");
    file.write_all_at(&pattern(8, 256 * RANGE), 0).unwrap();
    bench.ok(&["sync", "m"]);
    drop(file);
    assert!(fs::read(&path).unwrap() == pattern(8, 256 * RANGE));
    bench.unmount_clean();
}

#[test]
fn a_file_that_the_kernel_writes_stays_on_home_until_it_is_closed() {
    let Some(bench) = Bench::new() else { return };
    let stack = crate::common::stack(&bench).replace("        slow: { dir: b, weight: 1 }\n", "");
    bench.write_stack(&stack);
    bench.mount_with("passthrough");
    if !bench.passes_through() {
        return;
    }
    let path = bench.path("m/grows");
    let mut file = open(&path);
    let data = pattern(9, 16 * RANGE);
    file.write_all(&data).unwrap();
    // Any other kind of open joins in.
    let direct = open_directly(&path);
    let mut page = Aligned::new();
    direct.read_exact_at(page.bytes(), 0).unwrap();
    assert!(page.bytes() == &data[..4096]);
    file.set_len(RANGE as u64).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4 * RANGE as u64).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 * RANGE as u64);
    drop((file, direct));
    let mut expected = data[..RANGE].to_vec();
    expected.resize(4 * RANGE, 0);
    assert!(fs::read(&path).unwrap() == expected);
    bench.unmount_clean();
}

/// The kernel writes the times of a file back after its name and its data are
/// gone, and reports an error at the next sync of the file system.
#[test]
fn files_that_were_written_and_removed_leave_no_error() {
    let Some(bench) = Bench::new() else { return };
    bench.write_stack(TWO_SMALL);
    for mode in MODES {
        bench.mount_with(mode);
        let root = File::open(bench.path("m")).unwrap();
        for number in 0..4 {
            let path = bench.path(&format!("m/{number}"));
            let file = open(&path);
            file.write_all_at(&pattern(number, 8 * RANGE), 0).unwrap();
            drop(file);
            // By then, the daemon knows that it is closed.
            bench.status();
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(rustix::fs::syncfs(&root), Ok(()), "{mode}");
        drop(root);
        bench.unmount_clean();
    }
}
