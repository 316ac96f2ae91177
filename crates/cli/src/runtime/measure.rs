//! The measurement: clients side by side, and their results.

use super::client::{ByCalls, ByMount, Client, Task, io_error};
use super::deeds;
use crate::args::{BenchRuntimeArgs, Load, Through};
use crate::failure::{Failure, Result};
use crate::{locate, table};
use braid_contract::units::show_latency;
use braid_contract::{Caller, FileSystem, InodeId, KeyValue, Shown, SplitMix};
use braid_daemon::direct::DirectStack;
use braid_ipc::mounts::Mount;
use braid_ipc::socket;
use braid_runtime::{Geometry, Options, QUEUES_MAX, Session};
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Clients, at most.
const CLIENTS_MAX: usize = 64;

/// The results.
#[derive(Debug, Serialize)]
struct Measured {
    load: String,
    through: String,
    clients: usize,
    operations: u64,
    seconds: f64,
    operations_per_second: f64,
    /// How long an operation took, in nanoseconds.
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    longest_ns: u64,
}

pub(crate) fn bench(args: &BenchRuntimeArgs) -> Result<()> {
    if !(1..=CLIENTS_MAX).contains(&args.clients) {
        return Err(Failure::usage(format!("--clients {}: write 1 to {CLIENTS_MAX}", args.clients)));
    }
    if args.size == 0 || args.file < args.size || args.size > 1 << 30 {
        let what = "one operation is of 1 byte to 1GiB, and a file at least as long";
        return Err(Failure::usage(format!("--size {} --file {}: {what}", args.size, args.file)));
    }
    let scratch = args.dir.join(format!("braid-bench-{}", std::process::id()));
    let told = |error: io::Error| Failure::new(format!("{}: {error}", scratch.shown()));
    let measured = match args.through {
        Through::Mount => {
            std::fs::create_dir(&scratch).map_err(told)?;
            let make = |client| match args.load {
                Load::Deeds => deeds::by_mount(&scratch, task(args, client)),
                _ => Ok(Box::new(ByMount::begin(&scratch, task(args, client))?) as Box<dyn Client>),
            };
            let measured = run(args, &make).map_err(told);
            measured.and_then(|measured| std::fs::remove_dir(&scratch).map_err(told).map(|()| measured))?
        }
        Through::Runtime => {
            let mount = locate::containing(&args.dir)?;
            let (session, root) = session(args, &mount)?;
            let values = |dir| session.values(dir);
            // The runtime knows whose session it is.
            by_calls(args, (session.file_system(), &values), (Caller::root(), root), &scratch)
                .map_err(told)?
        }
        Through::Direct => {
            let stack = DirectStack::find(&args.dir)?.ok_or_else(|| no_stack(&args.dir))?;
            let values = |dir| stack.values(dir);
            let fs = stack.file_system().map_err(|error| Failure::new(error.to_string()))?;
            let place = (stack.caller().clone(), InodeId::ROOT);
            let measured = by_calls(args, (fs, &values), place, &scratch);
            let closed = stack.close().map_err(|error| Failure::new(error.to_string()));
            measured.map_err(told).and_then(|measured| closed.map(|()| measured))?
        }
    };
    if args.json { table::print_json(&measured) } else { table::print(&render(&measured)) }
}

fn no_stack(path: &Path) -> Failure {
    Failure::new(format!(
        "{}: no stack file with 'exec: direct'\n  help: docs/direct.md describes them",
        path.shown()
    ))
}

/// The values of a directory.
type ValuesOf<'a> = &'a (dyn Fn(InodeId) -> braid_contract::Result<Arc<dyn KeyValue>> + Sync);

/// Measures calls of a file system, below this directory.
fn by_calls(
    args: &BenchRuntimeArgs,
    (fs, values_of): (Arc<dyn FileSystem>, ValuesOf<'_>),
    (caller, root): (Caller, InodeId),
    scratch: &Path,
) -> io::Result<Measured> {
    let name = scratch.file_name().unwrap_or(OsStr::new("braid-bench"));
    let dir = fs.mkdir(&caller, root, name, 0o700, 0).map_err(io_error)?.attr.ino;
    let make = |client| {
        if args.load == Load::Deeds {
            return deeds::by_calls(Arc::clone(&fs), (caller.clone(), dir), task(args, client));
        }
        let begin =
            |values| ByCalls::begin((Arc::clone(&fs), values), (caller.clone(), dir), task(args, client));
        let client = values_of(dir).and_then(begin).map_err(io_error)?;
        Ok(Box::new(client) as Box<dyn Client>)
    };
    let measured = run(args, &make)?;
    fs.rmdir(&caller, root, name).map_err(io_error)?;
    Ok(measured)
}

fn task(args: &BenchRuntimeArgs, client: usize) -> Task {
    Task { load: args.load, client, size: args.size, file: args.file }
}

/// A session with the mount that sees the files below `dir`.
fn session(args: &BenchRuntimeArgs, mount: &Mount) -> Result<(Arc<Session>, InodeId)> {
    let point = mount.point.shown();
    let path = socket::of_sessions(mount).map_err(|error| Failure::new(format!("{point}: {error}")))?;
    let geometry = Geometry { queues: QUEUES_MAX, ..Geometry::default() };
    let options = Options { geometry, class: args.class, ..Options::default() };
    let begun = Session::begin(&path, &args.dir, options);
    begun.map_err(|error| Failure::new(format!("{point}: {error}")))
}

/// Has all clients work at the same time.
fn run(
    args: &BenchRuntimeArgs,
    make: &(dyn Fn(usize) -> io::Result<Box<dyn Client>> + Sync),
) -> io::Result<Measured> {
    let start = Barrier::new(args.clients);
    let start = &start;
    let all: Vec<io::Result<(Vec<u64>, Duration)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.clients)
            .map(|number| {
                scope.spawn(move || {
                    let client = make(number);
                    // The others wait for it even if it failed.
                    start.wait();
                    work(args, number, client?)
                })
            })
            .collect();
        let panicked = || Err(io::Error::other("a client panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let (mut took, mut longest) = (Vec::new(), Duration::ZERO);
    for one in all {
        let (times, time) = one?;
        took.extend(times);
        longest = longest.max(time);
    }
    took.sort_unstable();
    let at =
        |part: f64| took.get((took.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(0);
    let (count, seconds) = (took.len() as u64, longest.as_secs_f64());
    Ok(Measured {
        load: format!("{:?}", args.load).to_lowercase(),
        through: format!("{:?}", args.through).to_lowercase(),
        clients: args.clients,
        operations: count,
        seconds,
        operations_per_second: count as f64 / seconds.max(f64::MIN_POSITIVE),
        mean_ns: took.iter().sum::<u64>().checked_div(count).unwrap_or(0),
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        longest_ns: at(1.0),
    })
}

/// One client's work: how long each operation took, and all of it.
fn work(
    args: &BenchRuntimeArgs,
    number: usize,
    mut client: Box<dyn Client>,
) -> io::Result<(Vec<u64>, Duration)> {
    let mut random = SplitMix::new(number as u64);
    let places = (args.file / args.size).max(1);
    let (begun, mut took) = (Instant::now(), Vec::new());
    let mut ended = Ok(());
    while ended.is_ok() && begun.elapsed() < args.seconds {
        if !args.pause.is_zero() {
            std::thread::sleep(args.pause);
        }
        let offset = random.next_u64() % places * args.size;
        let one = Instant::now();
        ended = client.operate(took.len() as u64, offset);
        took.push(u64::try_from(one.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let time = begun.elapsed();
    if ended.is_err() {
        took.pop();
    }
    let cleaned = client.end(took.len() as u64);
    ended.and(cleaned).map(|()| (took, time))
}

fn render(measured: &Measured) -> String {
    let Measured { load, through, clients, operations_per_second, p50_ns, p99_ns, longest_ns, .. } = measured;
    let way = if through == "direct" { "in this process".into() } else { format!("through the {through}") };
    format!(
        "{load}, {way}, clients: {clients}\n\
         {operations_per_second:.0} operations a second; each took {} at the median, {} at 99 %, {} at most\n",
        show_latency(*p50_ns),
        show_latency(*p99_ns),
        show_latency(*longest_ns),
    )
}
