//! Refused settings, the shares of clients, and the clients of requests. Time is simulated.

use super::share::{Next, Shares, Ticket};
use super::*;
use crate::testing;
use braid_contract::{FigureValue, InodeId, OpenFlags, OpenRequest, Request, WriteFlags};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;

fn settings(value: serde_json::Value) -> std::result::Result<Settings, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[test]
fn settings_that_limit_nothing_or_fit_no_client_are_refused() {
    for (value, says) in [
        (json!({ "by": "uid" }), "nothing is limited"),
        (json!({ "by": "user", "each": "1MiB/s" }), "unknown variant `user`"),
        (json!({ "by": "uid", "bandwidth": "1KiB/s" }), "bandwidth: '1KiB/s' is less than 64KiB/s"),
        (json!({ "by": "uid", "bandwidth": "fast" }), "bandwidth: 'fast': a rate is"),
        (json!({ "by": "uid", "operations": "0/s" }), "operations: '0/s' is no whole number above 0"),
        (json!({ "by": "uid", "each_operations": "1.5" }), "each_operations: '1.5' is no whole number"),
        (json!({ "by": "uid", "bandwidth": "1MiB/s", "each": "2MiB/s" }), "each: one client gets no more"),
        (json!({ "by": "uid", "each": "2MiB/s", "weights": { "1": 2.0 } }), "weights: nothing is shared"),
        (json!({ "by": "uid", "bandwidth": "2MiB/s", "weights": { "eve": 2.0 } }), "'eve' is no id"),
        (
            json!({ "by": "gid", "bandwidth": "2MiB/s", "weights": { "1": 0.0 } }),
            "1: 0 is not from 0.01 to 1000",
        ),
        (json!({ "by": "cgroup", "bandwidth": "2MiB/s", "weights": { "a": 2.0 } }), "'a' is no cgroup"),
        (json!({ "by": "process", "bandwidth": "2MiB/s", "weights": { "1": 2.0 } }), "no lasting names"),
    ] {
        let said = settings(value).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
    let all = json!({ "by": "cgroup", "bandwidth": "9MiB/s", "operations": 7.to_string(), "each": "1MiB/s",
                      "each_operations": "3/s", "weights": { "/a.slice": 2.5 } });
    assert!(settings(all).is_ok());
}

/// A client that has so many requests of so many bytes waiting at any time; a new one
/// comes so many nanoseconds after one is done.
#[derive(Clone, Copy)]
struct Load {
    at_once: usize,
    bytes: u64,
    think_ns: u64,
}

/// The requests of each client that were done in so many simulated seconds.
fn simulate(value: serde_json::Value, loads: &[Load], seconds: u64) -> Vec<u64> {
    let Settings { all, each, weights, .. } = settings(value).unwrap();
    let mut shares = Shares::new(all, each, weights, 0);
    let client = |at: usize| Client::Number(u32::try_from(at).unwrap());
    let mut done = vec![0; loads.len()];
    let mut owners: HashMap<Ticket, usize> = HashMap::new();
    // When which clients come with a request.
    let mut coming: BTreeMap<u64, VecDeque<usize>> = BTreeMap::new();
    coming.insert(0, (0..loads.len()).flat_map(|at| vec![at; loads[at].at_once]).collect());
    let (mut now, end) = (0, seconds * 1_000_000_000);
    while now < end {
        while let Some(mut first) = coming.first_entry().filter(|entry| *entry.key() <= now) {
            match first.get_mut().pop_front() {
                Some(at) => _ = owners.insert(shares.arrive(&client(at), loads[at].bytes, now), at),
                None => _ = first.remove(),
            }
        }
        let arrival = coming.keys().next().copied().unwrap_or(u64::MAX);
        now = match shares.next(now) {
            Next::Go(ticket) => {
                let at = owners.remove(&ticket).unwrap();
                done[at] += 1;
                coming.entry(now + loads[at].think_ns + 1).or_default().push_back(at);
                continue;
            }
            Next::Wait(ns) => arrival.min(now + ns),
            Next::Idle => arrival,
        };
    }
    done
}

#[track_caller]
fn near(found: u64, expected: u64, percent: u64) {
    let off = found.abs_diff(expected) * 100;
    assert!(off <= expected * percent, "{found}, expected {expected}");
}

const GREEDY: Load = Load { at_once: 64, bytes: 64 << 10, think_ns: 0 };
const MODEST: Load = Load { at_once: 1, bytes: 64 << 10, think_ns: 100_000 };

#[test]
fn clients_share_alike_however_many_requests_each_has() {
    let done = simulate(json!({ "by": "uid", "bandwidth": "64MiB/s" }), &[GREEDY, MODEST], 10);
    done.iter().for_each(|done| near(*done, 5120, 2));
    let large = Load { bytes: 1 << 20, ..GREEDY };
    let done = simulate(json!({ "by": "uid", "bandwidth": "64MiB/s" }), &[large, MODEST], 10);
    near(done[0], 320, 3);
    near(done[1], 5120, 3);
    let weights = json!({ "by": "uid", "operations": "4000/s", "weights": { "1": 3.0 } });
    let done = simulate(weights, &[GREEDY, Load { at_once: 2, ..MODEST }], 10);
    near(done[0], 10_000, 3);
    near(done[1], 30_000, 3);
}

#[test]
fn what_one_leaves_the_others_get() {
    // Ten requests a second.
    let idle = Load { think_ns: 100_000_000, ..MODEST };
    let done = simulate(json!({ "by": "uid", "bandwidth": "64MiB/s" }), &[GREEDY, idle, GREEDY], 10);
    near(done[1], 100, 5);
    near(done[0] + done[2], 10_240 - 100, 1);
    near(done[0], done[2], 1);
    // A client that comes late owes nothing, and has saved nothing up.
    let each = json!({ "by": "uid", "bandwidth": "64MiB/s", "each": "16MiB/s" });
    let done = simulate(each.clone(), &[GREEDY], 10);
    near(done[0], 2560, 1);
    let done = simulate(each, &[GREEDY, GREEDY, GREEDY, GREEDY, GREEDY, MODEST], 10);
    done.iter().for_each(|done| near(*done, 10_240 / 6, 3));
    let each = json!({ "by": "uid", "each_operations": "50/s" });
    near(simulate(each, &[GREEDY, MODEST], 10)[1], 500, 1);
}

#[test]
fn what_was_not_used_is_given_back() {
    let Settings { all, each, weights, .. } =
        settings(json!({ "by": "uid", "bandwidth": "1MiB/s" })).unwrap();
    let mut shares = Shares::new(all, each, weights, 0);
    let client = Client::Number(1);
    let ticket = shares.arrive(&client, 1 << 20, 0);
    assert_eq!(shares.next(0), Next::Go(ticket));
    let second = shares.arrive(&client, 1, 0);
    assert!(matches!(shares.next(0), Next::Wait(900_000_000..)));
    shares.give_back(&client, 1 << 20);
    assert_eq!(shares.next(0), Next::Go(second));
    assert_eq!(shares.next(0), Next::Idle);
}

#[test]
fn who_is_gone_is_forgotten() {
    let Settings { all, each, weights, .. } =
        settings(json!({ "by": "process", "bandwidth": "1GiB/s" })).unwrap();
    let mut shares = Shares::new(all, each, weights, 0);
    for process in 0..5000 {
        let now = u64::from(process) * 1_000_000;
        let ticket = shares.arrive(&Client::Number(process), 1 << 20, now);
        assert_eq!(shares.next(now), Next::Go(ticket));
    }
    assert!(shares.known() <= 1100, "{}", shares.known());
}

/// Opens everything; a handle is the caller's uid.
struct Willing;

impl Service for Willing {
    fn capabilities(&self) -> FileSystemCapabilities {
        testing::capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        match request {
            Request::Open { caller, .. } => Reply::Open(Ok(testing::opened(caller.uid.into()))),
            Request::Create { caller, .. } => {
                Reply::Create(Ok((testing::entry(5), testing::opened(caller.uid.into()))))
            }
            Request::Release { .. } => Reply::Release(Ok(())),
            Request::Write { data, .. } => Reply::Write(Ok(data.len())),
            Request::CopyRange { len, .. } => Reply::CopyRange(Ok(len)),
            other => other.operation().failed(Errno::EIO.into()),
        }
    }
}

fn throttle() -> Throttle {
    let settings = settings(json!({ "by": "uid", "bandwidth": "100GiB/s" })).unwrap();
    Throttle::new(&settings, Arc::new(Served(Willing))).unwrap()
}

fn caller(uid: u32) -> Caller {
    Caller { uid, gid: 0, groups: None, pid: 0, tid: 0, of_stack: false }
}

/// The client of data written by the handle.
fn writer(fs: &Throttle, handle: u64, write_back: bool) -> (Client, u64) {
    let flags = WriteFlags { write_back, ..WriteFlags::default() };
    let (caller, data) = (caller(0), [0; 7]);
    let handle = HandleId(handle);
    fs.0.asked(&Request::Write { caller: &caller, handle, offset: 0, data: &data, flags }).unwrap()
}

#[test]
fn what_the_kernel_writes_back_is_of_who_opened_the_file_last() {
    let fs = throttle();
    let request = OpenRequest::from(OpenFlags { write: true, ..OpenFlags::default() });
    fs.create(&caller(7), InodeId::ROOT, OsStr::new("5"), 0o600, 0, true, request).unwrap();
    assert_eq!(writer(&fs, 7, true), (Client::Number(7), 7));
    fs.open(&caller(8), InodeId(5), request).unwrap();
    fs.open(&caller(9), InodeId(5), OpenRequest::default()).unwrap();
    assert_eq!(writer(&fs, 7, true), (Client::Number(8), 7));
    assert_eq!(writer(&fs, 7, false), (Client::Number(0), 7));
    fs.release(HandleId(8)).unwrap();
    let next = throttle();
    next.import(&Module::export(&fs)).unwrap();
    assert_eq!(writer(&next, 7, true), (Client::Number(8), 7));
    fs.release(HandleId(7)).unwrap();
    assert_eq!(writer(&fs, 7, true), (Client::Unknown, 7));
    assert!(next.import(&State { version: 9, bytes: Vec::new() }).is_err());
}

#[test]
fn after_a_crash_who_writes_is_known_and_debts_are_paid_off() {
    const MIB: f64 = 1_048_576.0;
    let limit = || {
        let settings = settings(json!({ "by": "uid", "each": "1MiB/s" })).unwrap();
        // It has the file of user 8 open, and no other.
        let child = testing::answering(|request| match request {
            Request::Getattr { handle: Some(HandleId(8)), .. } => Reply::Getattr(Ok(testing::entry(5).attr)),
            Request::Getattr { .. } => Reply::Getattr(Err(Errno::EBADF.into())),
            other => Willing.call(other),
        });
        Throttle::new(&settings, child).unwrap()
    };
    let fs = limit();
    let request = OpenRequest::from(OpenFlags { write: true, ..OpenFlags::default() });
    fs.open(&caller(8), InodeId(5), request).unwrap();
    fs.open(&caller(9), InodeId(6), request).unwrap();
    // An hour, by its limit.
    let hour = json!({ "all": [0.0, 0.0], "clients": [[{ "Number": 7 }, [3600.0 * MIB, 0.0]]] });
    fs.0.gate.owe(&serde_json::from_value(hour).unwrap());
    let state = Module::snapshot(&fs).unwrap();
    let owed = |fs: &Throttle| {
        let debts = serde_json::to_value(fs.0.gate.debts()).unwrap();
        debts["clients"][0][1][0].as_f64().unwrap_or_default() / MIB
    };
    let next = limit();
    next.import(&state).unwrap();
    assert!((3500.0..3600.0).contains(&owed(&next)), "{}", owed(&next));
    let age = std::time::Duration::from_secs(3000);
    Module::repair(&next, Crash { count: 1, state_age: Some(age) }).unwrap();
    assert!((500.0..600.0).contains(&owed(&next)), "{}", owed(&next));
    assert_eq!(writer(&next, 8, true), (Client::Number(8), 7));
    assert_eq!(writer(&next, 9, true), (Client::Unknown, 7), "it was closed in the last moment");
    assert!(next.import(&State { version: 2, bytes: b"[]".to_vec() }).is_err());
}

#[test]
fn the_kernel_leaves_all_to_the_module_and_copies_are_made_in_pieces() {
    let fs = throttle();
    let capabilities = fs.capabilities();
    assert!(!capabilities.passthrough && capabilities.holds_up);
    let copied = fs.copy_range(&caller(1), HandleId(1), 0, HandleId(2), 0, 1 << 40).unwrap();
    assert_eq!(copied, crate::traffic::COPY_MAX);
}

#[test]
fn what_waits_goes_on_when_there_are_other_settings() {
    let settings = settings(json!({ "by": "uid", "bandwidth": "64KiB/s" })).unwrap();
    let fs = Throttle::new(&settings, Arc::new(Served(Willing))).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=4)
            .map(|uid| {
                let fs = &fs;
                // By the limit, hours.
                let data = vec![0; 256 << 20];
                scope.spawn(move || {
                    fs.write(&caller(uid), HandleId(1), 0, &data, WriteFlags::default()).unwrap()
                })
            })
            .collect();
        // The first one owes nothing yet.
        while waiting(&fs) < 3.0 {
            std::thread::yield_now();
        }
        // The export alone lets none go: the successor may refuse the state.
        let _ = Module::export(&fs);
        assert!(waiting(&fs) >= 3.0);
        Module::end(&fs);
        writers.into_iter().for_each(|writer| assert_eq!(writer.join().unwrap(), 256 << 20));
    });
}

/// Requests that wait now.
fn waiting(fs: &Throttle) -> f64 {
    let figure = Module::figures(fs).into_iter().find(|figure| figure.name == "waiting");
    let FigureValue::Gauge(count) = figure.unwrap().value else { panic!("it is a gauge") };
    count
}

#[test]
fn requests_go_on_when_one_gives_back_what_it_did_not_use() {
    let settings = settings(json!({ "by": "uid", "bandwidth": "64KiB/s" })).unwrap();
    let (fail, failing) = std::sync::mpsc::channel::<()>();
    let failing = crate::sync::Mutex::new(failing);
    let child = testing::answering(move |request| match request {
        Request::Write { data, .. } => Reply::Write(Ok(data.len())),
        other => {
            failing.lock().recv().unwrap();
            other.operation().failed(Errno::EOPNOTSUPP.into())
        }
    });
    let fs = Throttle::new(&settings, child).unwrap();
    let (copier, writer, handle) = (caller(1), caller(2), HandleId(1));
    std::thread::scope(|scope| {
        // By the limit, the other one waits for half a day.
        let copy = scope.spawn(|| fs.copy_range(&copier, handle, 0, handle, 0, 3 << 30));
        let write = scope.spawn(|| {
            while fs.0.gate.debts() == Debts::default() {
                std::thread::yield_now();
            }
            fs.write(&writer, handle, 0, &[0; 4096], WriteFlags::default())
        });
        while waiting(&fs) < 1.0 {
            std::thread::yield_now();
        }
        fail.send(()).unwrap();
        assert_eq!(write.join().unwrap().unwrap(), 4096);
        assert!(copy.join().unwrap().is_err());
    });
}
