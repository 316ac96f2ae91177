//! Measures the log file system without a kernel in front: `cargo bench -p braid-log --
//! PATH FILES THREADS` on a device or file that is overwritten. Prints the microseconds
//! that each operation of a thread takes, as JSON: of time, and of a processor's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement fails by panicking")]

mod common;

use braid_contract::{Caller, FileSystem, InodeId, OpenFlags};
use braid_log::{Device, Disk, LogFs, Owner, Settings, Use, format};
use common::Machine;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a file that is made for the measurement.
const SIZE: u64 = 1 << 30;

fn caller(thread: usize) -> Caller {
    Caller { pid: std::process::id(), tid: thread as u32, ..Caller::root() }
}

/// Microseconds of one operation, when each of some threads does it `count` times: as they
/// pass, and as processors work for it.
fn measure(threads: usize, count: usize, operation: impl Fn(usize, usize) + Sync) -> String {
    let (begun, worked) = (Instant::now(), worked());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let operation = &operation;
            scope.spawn(move || (0..count).for_each(|which| operation(thread, which)));
        }
    });
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    let worked = (self::worked() - worked) / threads as f64;
    format!("{{\"time\": {:.2}, \"cpu\": {:.2}}}", each(begun.elapsed().as_secs_f64()), each(worked))
}

/// Seconds that processors worked for this process.
fn worked() -> f64 {
    let worked = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    worked.tv_sec as f64 + worked.tv_nsec as f64 / 1e9
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [path, rest @ ..] = &words[..] else { return println!("give a PATH, which is overwritten") };
    let number = |at: usize, otherwise: usize| rest.get(at).map_or(otherwise, |word| word.parse().unwrap());
    let (count, threads) = (number(0, 100_000), number(1, 1));
    if !Path::new(path).exists() {
        braid_log::make_file(Path::new(path), SIZE).unwrap();
    }
    let disk: Arc<dyn Device> = Arc::new(Disk::open(Path::new(path), Use::Write).unwrap());
    format(&disk, Owner::default(), &Machine).unwrap();
    let settings = Settings { workers: threads.max(2), ..Settings::default() };
    let fs = LogFs::open(disk, settings, Arc::new(Machine)).unwrap();
    let name = |which: usize| format!("file-{which}");
    let dirs: Vec<InodeId> = (0..threads)
        .map(|thread| {
            fs.mkdir(&caller(0), InodeId::ROOT, OsStr::new(&format!("d{thread}")), 0o755, 0).unwrap()
        })
        .map(|entry| entry.attr.ino)
        .collect();
    let create = |thread: usize, which: usize, sync: bool| {
        let (name, flags) = (name(which), OpenFlags { write: true, ..OpenFlags::default() });
        let made = fs.create(&caller(thread), dirs[thread], OsStr::new(&name), 0o644, 0, true, flags.into());
        let (entry, opened) = made.unwrap();
        if sync {
            fs.fsync(&caller(thread), opened.handle, false).unwrap();
        }
        fs.release(opened.handle).unwrap();
        fs.forget(entry.attr.ino, 1);
    };
    let memory = resident();
    let made = measure(threads, count, |thread, which| create(thread, which, false));
    let bytes = (resident() - memory) / (count * threads) as f64;
    let begun = Instant::now();
    fs.sync().unwrap();
    let synced = begun.elapsed().as_secs_f64();
    let found = measure(threads, count, |thread, which| {
        let entry = fs.lookup(&caller(thread), dirs[thread], OsStr::new(&name(which))).unwrap();
        fs.forget(entry.attr.ino, 1);
    });
    let begun = Instant::now();
    fs.checkpoint().unwrap();
    let checkpoint = begun.elapsed().as_secs_f64();
    let removed = measure(threads, count, |thread, which| {
        fs.unlink(&caller(thread), dirs[thread], OsStr::new(&name(which))).unwrap();
    });
    let few = (count / 100).clamp(1, 2000);
    let durable = measure(threads, few, |thread, which| create(thread, which, true));
    println!(
        "{{\"files\": {count}, \"threads\": {threads}, \"create_us\": {made}, \"lookup_us\": {found}, \"unlink_us\": {removed}, \"create_fsync_us\": {durable}, \"sync_s\": {synced:.3}, \"checkpoint_s\": {checkpoint:.3}, \"bytes_per_file\": {bytes:.0}}}"
    );
    fs.close().unwrap();
}

/// Bytes of memory in use.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}
