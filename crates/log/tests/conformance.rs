//! The file system keeps the promises of the trait, and agrees with the reference model.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the simulated device has more than this needs")]

mod common;

use braid_contract::key_value::VALUE_MAX;
use braid_contract::{Environment, FileSystem, InodeId, KeyValue, Result};
use braid_log::{Device, LogFs, Owner, Settings, format};
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::conformance::key_value;
use braid_testkit::{Common, DirectSide, ModelSide, Runner, run_parallel};
use common::SimDisk;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's clock, with or without threads.
#[derive(Debug)]
struct Clock {
    threads: bool,
}

impl Environment for Clock {
    fn wall_ns(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
    }

    fn monotonic_ns(&self) -> u64 {
        self.wall_ns() as u64
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(7);
        Ok(())
    }

    fn threads(&self) -> bool {
        self.threads
    }
}

fn fresh(size: u64, workers: usize, threads: bool) -> Arc<LogFs> {
    let device: Arc<dyn Device> = SimDisk::new(size);
    let environment = Arc::new(Clock { threads });
    format(&device, Owner::default(), &*environment).unwrap();
    let settings = Settings { workers, log_bytes: 1 << 20, ..Settings::default() };
    Arc::new(LogFs::open(device, settings, environment).unwrap())
}

#[test]
fn it_keeps_the_promises_of_a_file_system() {
    for (workers, threads) in [(1, false), (4, true)] {
        let make = || Fresh::new(fresh(64 << 20, workers, threads), ());
        run(&format!("the log, {workers} workers"), &[Part::Namespace, Part::Data], &make).conclude();
    }
}

#[test]
fn a_directory_keeps_the_promises_of_keys_and_values() {
    for (workers, threads) in [(1, false), (4, true)] {
        let make = || {
            let fs = fresh(128 << 20, workers, threads);
            let values: Arc<dyn KeyValue> = Arc::new(fs.bucket(InodeId::ROOT, None).unwrap());
            let kept = Box::new(Audited(Arc::clone(&fs)));
            let (dir, value_max) = (InodeId::ROOT, VALUE_MAX);
            key_value::Fresh { values, fs, dir, value_max, knows_callers: true, kept }
        };
        key_value::run(&format!("the log, {workers} workers"), &make).conclude();
    }
}

/// A file system whose free blocks have to be right in the end.
struct Audited(Arc<LogFs>);

impl Drop for Audited {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.audit().unwrap();
        }
    }
}

fn settings(seed: u64, common: &Common) -> braid_testkit::Settings {
    braid_testkit::Settings { seed, case_len: 150, compare_every: 50, plain_modes: !common.superuser }
}

#[test]
fn it_agrees_with_the_model() {
    let fs = fresh(256 << 20, 2, false);
    let common = Arc::new(Common::model());
    let direct = DirectSide::new(Arc::clone(&fs) as Arc<dyn FileSystem>, common.clone());
    let model = ModelSide(common.clone());
    let run = Runner::new(&direct, &model, settings(1, &common)).run(30_000);
    let totals = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
    fs.audit().unwrap();
}

#[test]
fn threads_agree_with_each_other() {
    let (left, right) = (fresh(256 << 20, 4, true), fresh(256 << 20, 1, true));
    let common = Arc::new(Common::model());
    let sides =
        [&left, &right].map(|fs| DirectSide::new(Arc::clone(fs) as Arc<dyn FileSystem>, common.clone()));
    let runner = Runner::new(&sides[0], &sides[1], settings(3, &common));
    run_parallel(&runner, 4, 10_000).unwrap_or_else(|failure| panic!("{failure}"));
    left.audit().unwrap();
    right.audit().unwrap();
}
