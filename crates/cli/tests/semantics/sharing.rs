//! Programs that use one file at the same time, while its ranges move between
//! tiers: the promises of `docs/semantics.md` for appends, for reads beside a
//! write, and for users of other ranges. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, pattern, read_anew, until, write_ranges};
use rustix::fs::{Advice, OFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

impl Bench {
    /// Starts to move all of a file; when this returns, the job has moved one
    /// range and waits for [`let_go`](Self::let_go).
    fn begin_move(&self, file: &str, to: &str) -> u64 {
        let words = ["move", file, "--to", to, "--bandwidth", "1", "--background", "--json"];
        let id = self.json(&words)["id"].as_u64().unwrap();
        let job = self.until(id, |job| job["done"]["ranges"] != 0);
        assert_eq!(job["state"], "running");
        id
    }

    fn let_go(&self, id: u64) {
        self.ok(&["job", "set", &id.to_string(), "bandwidth=none"]);
    }

    /// Makes an operation on `slow` hang, which matches this fault and is
    /// caused by `work`; returns when it hangs.
    fn hang_in<T>(&self, fault: &str, work: impl FnOnce() -> T) -> T {
        self.ok(&["drill", "slow", fault, "./m"]);
        let begun = work();
        until("an operation hangs", || self.hanging() > 0);
        begun
    }

    /// Operations on `slow` that hang.
    fn hanging(&self) -> u64 {
        self.json(&["drill", "slow", "--json", "./m"])["tiers"][0]["hanging"].as_u64().unwrap()
    }
}

const MAGIC: u32 = 0x6272_6964;
/// Magic, writer, number of the record, bytes of the record.
const HEAD: usize = 20;

/// A unique record: all of it follows from its head.
fn record(writer: u32, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(writer.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend((len as u32).to_le_bytes());
    bytes.extend(pattern(u64::from(writer) << 32 | number, len - HEAD));
    bytes
}

/// Odd sizes, some of them larger than a range.
fn odd_len(writer: u32, number: u64) -> usize {
    HEAD + 1 + ((number * 7919 + u64::from(writer) * 104_729) % 80_021) as usize
}

/// Reads a file of records from the start.
#[derive(Default)]
struct Reader {
    /// Offset of the first incomplete record.
    offset: u64,
    /// The part of it read so far.
    rest: Vec<u8>,
    /// The number of each writer's next record.
    next: BTreeMap<u32, u64>,
}

impl Reader {
    /// Takes more of the file: records are whole, each writer's in order; the
    /// last one may be incomplete.
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some((writer, number, len)) = self.head() {
            let expected = record(writer, number, len);
            let there = self.rest.len().min(len);
            assert!(
                self.rest[..there] == expected[..there],
                "record {number} of {writer}, at {}: other bytes than were written",
                self.offset
            );
            if there < len {
                return;
            }
            self.rest.drain(..len);
            self.offset += len as u64;
            *self.next.entry(writer).or_default() += 1;
        }
    }

    /// The head of the next record, which must be its writer's next.
    fn head(&self) -> Option<(u32, u64, usize)> {
        let head: &[u8; HEAD] = self.rest.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap());
        let number = u64::from_le_bytes(*head[8..].first_chunk().unwrap());
        assert_eq!(word(0), MAGIC, "no record begins at {}", self.offset);
        let next = self.next.get(&word(4)).copied().unwrap_or_default();
        assert_eq!(number, next, "the record of {} at {}", word(4), self.offset);
        Some((word(4), number, word(16) as usize))
    }

    /// Takes new records; answers whether there were any.
    fn follow(&mut self, file: &File) -> bool {
        let mut piece = vec![0; 200_003];
        let got = file.read_at(&mut piece, self.offset + self.rest.len() as u64).unwrap();
        self.take(&piece[..got]);
        got > 0
    }
}

/// Number of records that each writer appends in each round.
const RECORDS: u64 = 8;

/// Appends the records of a round, with one call each.
fn append(path: &Path, writer: u32, round: u64, appended: &AtomicU64) {
    let mut file = File::options().append(true).open(path).unwrap();
    for number in round * RECORDS..(round + 1) * RECORDS {
        file.write_all(&record(writer, number, odd_len(writer, number))).unwrap();
        appended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends the records of a round from another process, all of one size.
fn append_by_dd(bench: &Bench, writer: u32, round: u64) {
    let len = odd_len(writer, 5);
    let input = bench.path(&format!("input{writer}"));
    let numbers = round * RECORDS..(round + 1) * RECORDS;
    fs::write(&input, numbers.flat_map(|number| record(writer, number, len)).collect::<Vec<_>>()).unwrap();
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", input.display())).arg(format!("of={}", bench.path("m/log").display()));
    dd.args([&format!("bs={len}"), "oflag=append", "conv=notrunc", "status=none"]);
    assert!(dd.status().unwrap().success());
}

/// Two threads and two other processes append while the file moves to `to`, and
/// a reader follows.
fn append_beside_a_move(bench: &Bench, round: u64, to: &str, reader: &mut Reader) {
    let path = &bench.path("m/log");
    let job = bench.begin_move("m/log", to);
    let (appended, end) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads = [1, 2].map(|writer| scope.spawn(move || append(path, writer, round, appended)));
        let programs = [3, 4].map(|writer| scope.spawn(move || append_by_dd(bench, writer, round)));
        let follower = scope.spawn(move || {
            let file = File::open(path).unwrap();
            // Once more after the end, for the last records.
            while !end.load(Ordering::Acquire) {
                reader.follow(&file);
            }
            while reader.follow(&file) {}
        });
        while appended.load(Ordering::Relaxed) < 3 && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::yield_now();
        }
        // Some are appended, and others are still to come.
        bench.let_go(job);
        let ended: Vec<_> = threads.into_iter().chain(programs).map(|writer| writer.join()).collect();
        end.store(true, Ordering::Release);
        follower.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "a writer failed");
    });
    bench.ok(&["job", "wait", &job.to_string()]);
}

#[test]
fn what_several_programs_append_is_there_once_and_whole_while_the_file_moves() {
    const ROUNDS: u64 = 4;
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    // Something to move from the start on.
    let begins: Vec<u8> = (0..RECORDS).flat_map(|number| record(0, number, 70_001)).collect();
    write_ranges(&bench.path("m/log"), &begins);
    let mut reader = Reader::default();
    for round in 0..ROUNDS {
        append_beside_a_move(&bench, round, ["slow", "fast"][round as usize % 2], &mut reader);
    }
    let all: BTreeMap<u32, u64> =
        (0..5).map(|writer| (writer, RECORDS * if writer == 0 { 1 } else { ROUNDS })).collect();
    let sum: u64 = (1..5)
        .flat_map(|writer| (0..ROUNDS * RECORDS).map(move |number| (writer, number)))
        .map(|(writer, number)| odd_len(writer, if writer > 2 { 5 } else { number }) as u64)
        .sum();
    let size = begins.len() as u64 + sum;
    // As read on the way, and as it is on the tiers, with nothing left over.
    let mut again = Reader::default();
    again.take(&read_anew(&bench.path("m/log")));
    for (what, reader) in [("on the way", &reader), ("in the end", &again)] {
        assert_eq!((&reader.next, reader.offset, reader.rest.len()), (&all, size, 0), "{what}");
    }
    assert_eq!(fs::metadata(bench.path("m/log")).unwrap().len(), size);
    assert!(bench.on("m/log", "fast") > 0);
    bench.unmount_clean();
}

/// Bytes of a block in the test of readers beside writers.
const BLOCK: usize = 4096;
/// Blocks written at once: some of these groups cross a range boundary.
const GROUP: usize = 6;
const GROUPS: usize = 8 * RANGE / BLOCK / GROUP;

/// A group of blocks: each word names its block and version.
fn group(number: usize, version: u32) -> Vec<u8> {
    let block = |block: usize| ((block as u64) << 32 | u64::from(version)).to_le_bytes().repeat(BLOCK / 8);
    (number * GROUP..(number + 1) * GROUP).flat_map(block).collect()
}

/// The last versions of a group that were begun and completed.
#[derive(Default)]
struct Versions {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Reads one block; every word of it is of the version completed before, or of
/// a later one that was begun.
fn read_block(file: &File, number: usize, versions: &[Versions]) {
    let of = &versions[number / GROUP];
    let oldest = of.done.load(Ordering::SeqCst);
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, (number * BLOCK) as u64).unwrap();
    let newest = of.begun.load(Ordering::SeqCst);
    for word in block.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().unwrap())) {
        let (found, version) = (word >> 32, word & u64::from(u32::MAX));
        assert!(
            found == number as u64 && (oldest..=newest).contains(&version),
            "block {number}, of version {oldest} to {newest}, has a word of block {found}, version {version}"
        );
    }
}

/// Writes its share of the groups repeatedly.
fn write_groups(file: &File, me: usize, versions: &[Versions], end: &AtomicBool) {
    for version in 1.. {
        for number in (me..GROUPS).step_by(2) {
            if end.load(Ordering::Relaxed) {
                return;
            }
            versions[number].begun.store(version.into(), Ordering::SeqCst);
            file.write_all_at(&group(number, version), (number * GROUP * BLOCK) as u64).unwrap();
            versions[number].done.store(version.into(), Ordering::SeqCst);
        }
    }
}

fn readers_beside_writers(bench: &Bench, flags: OFlags) {
    let path = bench.path("m/blocks");
    write_ranges(&path, &(0..GROUPS).flat_map(|number| group(number, 0)).collect::<Vec<_>>());
    let flags = flags.bits().cast_signed();
    let open = || File::options().read(true).write(true).custom_flags(flags).open(&path).unwrap();
    let (files, end) = ([open(), open(), open()], &AtomicBool::new(false));
    let versions: Vec<Versions> = (0..GROUPS).map(|_| Versions::default()).collect();
    let (versions, reads) = (&versions[..], &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let [first, second, read] = &files;
        let writers = [(0, first), (1, second)];
        let writers = writers.map(|(me, file)| scope.spawn(move || write_groups(file, me, versions, end)));
        let reader = scope.spawn(move || {
            for turn in (0..).take_while(|_| !end.load(Ordering::Relaxed)) {
                read_block(read, turn * 37 % (GROUPS * GROUP), versions);
                if turn % 16 == 0 {
                    // From the tiers, and not from the kernel's cache.
                    rustix::fs::fadvise(read, 0, None, Advice::DontNeed).unwrap();
                }
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let moves = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for to in ["slow", "fast", "slow", "fast"] {
                let (from, job) = (reads.load(Ordering::Relaxed), bench.begin_move("m/blocks", to));
                bench.let_go(job);
                bench.ok(&["job", "wait", &job.to_string()]);
                let reads = || reads.load(Ordering::Relaxed);
                until("somebody reads", || reads() > from || reader.is_finished());
            }
        }));
        end.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        moves.unwrap();
    });
    assert!(versions.iter().all(|of| of.done.load(Ordering::Relaxed) > 0), "not all groups were written");
    (0..GROUPS * GROUP).for_each(|number| read_block(&files[0], number, versions));
    drop(files);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_reader_beside_writers_sees_what_was_or_what_is_written_while_the_file_moves() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        readers_beside_writers(&bench, flags);
    }
    bench.unmount_clean();
}

/// Does `work` in a thread of its own; fails if it does not end. Timing does
/// not matter: the limit is a hundred times what it needs.
fn ends(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        _ = tell.send(());
    });
    match told.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => Ok(()),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let why = thread.join().unwrap_err();
            Err(why.downcast_ref::<String>().cloned().unwrap_or_else(|| "it failed".into()))
        }
        Err(mpsc::RecvTimeoutError::Timeout) => Err("it waits".into()),
    }
}

#[test]
fn a_write_that_is_held_up_keeps_nobody_from_other_ranges() {
    const RANGES: usize = 12;
    let Some(bench) = Bench::new() else { return };
    // A kernel that writes back has direct writes to one file take turns.
    bench.ok(&["mount", "s.yaml", "m", "--cache", "passthrough"]);
    let path = bench.path("m/f");
    let data = pattern(7, RANGES * RANGE);
    // With `O_DIRECT` the kernel allows parallel writes to one file, as long as
    // no handle of another kind is open: a process that another test begins
    // would keep one until it runs its program.
    let flags = OFlags::DIRECT.bits().cast_signed();
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags)
            .open(&path)
            .unwrap()
    };
    let (first, second) = (open(), open());
    for (number, range) in data.chunks(RANGE).enumerate() {
        first.write_all_at(range, (number * RANGE) as u64).unwrap();
    }
    let tiers: Vec<String> = bench
        .runs("m/f")
        .iter()
        .flat_map(|run| {
            let name = run["tier"]["name"].as_str().unwrap().to_owned();
            std::iter::repeat_n(name, run["ranges"].as_u64().unwrap() as usize)
        })
        .collect();
    let held = tiers.iter().position(|tier| tier == "slow").unwrap();
    let others: Vec<usize> = (0..RANGES).filter(|range| *range != held).collect();
    assert!(others.iter().any(|range| tiers[*range] == "slow"), "{tiers:?}");

    let write = move || first.write_all_at(&[1; RANGE], (held * RANGE) as u64).unwrap();
    let writer = bench.hang_in("write:hang,once", || std::thread::spawn(write));
    let ended = ends({
        let (data, others) = (data.clone(), others.clone());
        move || {
            for range in others {
                let (at, mut found) = ((range * RANGE) as u64, vec![0; RANGE]);
                second.read_exact_at(&mut found, at).unwrap();
                assert!(found == data[range * RANGE..(range + 1) * RANGE], "range {range}");
                second.write_all_at(&[2; RANGE], at).unwrap();
                second.read_exact_at(&mut found, at).unwrap();
                assert!(found == [2; RANGE], "range {range}");
            }
        }
    });
    let hanging = bench.hanging();
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    ended.unwrap();
    assert_eq!(hanging, 1, "the write was not held up all the time");
    writer.join().unwrap();
    let found = fs::read(&path).unwrap();
    assert!(found[held * RANGE..(held + 1) * RANGE] == [1; RANGE]);
    assert!(others.iter().all(|range| found[range * RANGE..(range + 1) * RANGE] == [2; RANGE]));
    bench.unmount_clean();
}

#[test]
fn a_move_that_is_held_up_keeps_nobody_from_other_ranges_or_from_closing() {
    let Some(bench) = Bench::bare(&["a", "b", "c", "m"]) else { return };
    bench.write_stack(
        "stack: { volume: { home: fast, range: 64KiB, policy: { size: { small: 64KiB, large: third } },\n  \
         tiers: { fast: { dir: a }, slow: { dir: b, faults: [ \"write:hang\" ] }, third: { dir: c } } } }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let path = bench.path("m/f");
    let data = pattern(8, 4 * RANGE);
    write_ranges(&path, &data);
    assert_eq!(bench.on("m/f", "third"), 3);
    let words = ["move", "m/f", "--to", "slow", "--background", "--json"];
    let id = bench.json(&words)["id"].as_u64().unwrap().to_string();
    until("the move hangs", || bench.hanging() > 0);
    let ended = ends({
        let (path, data) = (path.clone(), data.clone());
        move || {
            // The file grows on a tier other than home, and is closed several
            // times: each close brings the home inode up to date.
            for turn in 0..3 {
                let mut file = File::options().append(true).open(&path).unwrap();
                file.write_all(&vec![turn; RANGE]).unwrap();
                drop(file);
                assert!(read_anew(&path)[..data.len()] == data);
            }
        }
    });
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    ended.unwrap();
    bench.ok(&["job", "wait", &id]);
    let found = fs::read(&path).unwrap();
    let added = (0..3).flat_map(|turn| vec![turn; RANGE]);
    assert!(found == data.iter().copied().chain(added).collect::<Vec<_>>());
    bench.unmount_clean();
}

#[test]
fn what_is_written_to_a_range_on_its_way_goes_with_it() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let path = bench.path("m/f");
    let mut data = pattern(9, RANGE + RANGE / 2);
    write_ranges(&path, &data);
    bench.ok(&["move", "m/f", "--to", "fast"]);
    // The second range was read, and is then written on its new tier.
    let job = bench.hang_in("write:hang,after=1,once", || {
        bench.json(&["move", "m/f", "--to", "slow", "--background", "--json"])["id"].to_string()
    });
    File::options().append(true).open(&path).unwrap().write_all(&[1; 10_000]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[2; 20_000], RANGE as u64 - 10_000).unwrap();
    drop(file);
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    bench.ok(&["job", "wait", &job]);
    data.extend([1; 10_000]);
    data[RANGE - 10_000..RANGE + 10_000].fill(2);
    assert_eq!(bench.on("m/f", "slow"), 2);
    assert!(read_anew(&path) == data);
    bench.unmount_clean();
}

#[test]
fn a_read_of_a_range_that_leaves_meanwhile_finds_what_is_in_it() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let path = bench.path("m/f");
    let data = pattern(10, 2 * RANGE);
    write_ranges(&path, &data);
    bench.ok(&["move", "m/f", "--to", "slow"]);
    let file =
        File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&path).unwrap();
    // It knows the tier of the range, and reads there after nothing is left.
    let reader = bench.hang_in("read:hang,once", || {
        std::thread::spawn(move || {
            let mut found = vec![0; RANGE];
            file.read_exact_at(&mut found, RANGE as u64).unwrap();
            found
        })
    });
    bench.ok(&["move", "m/f", "--to", "fast"]);
    assert_eq!((bench.on("m/f", "slow"), bench.hanging()), (0, 1));
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    assert!(reader.join().unwrap() == data[RANGE..]);
    bench.unmount_clean();
}
