//! A volume keeps the promises of the trait, whatever its policy and tiers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::Store;
use braid_placement::{PolicyConfig, SettingValue};
use braid_stores::memory::MemoryStore;
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::conformance::store::AppendOnlyStore;
use braid_testkit::{Common, DirectSide, ModelSide, Runner, Settings, run_parallel};
use braid_volume::Volume;
use common::{Bed, RANGE};
use std::any::Any;
use std::sync::Arc;

/// Closes the volume, whose directories are kept until then.
struct Closed {
    volume: Arc<Volume>,
    _bed: Bed,
}

impl Drop for Closed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.volume.shutdown().unwrap();
        }
    }
}

/// The other tier is a directory.
fn directory(store: Arc<dyn Store>) -> Arc<dyn Store> {
    store
}

/// Runs the suite on a volume with this policy, whose other tier is what is made
/// of a directory.
fn conforms(name: &str, policy: &PolicyConfig, other: impl Fn(Arc<dyn Store>) -> Arc<dyn Store>) {
    let fresh = || {
        let bed = Bed::new();
        let mut config = bed.config();
        config.policy = policy.clone();
        config.tiers[0].store = config.tiers[0].store.take().map(&other);
        assert_eq!(config.range_size, Some(RANGE as u32));
        let volume = Volume::open(config).unwrap();
        let kept: Box<dyn Any> = Box::new(Closed { volume: Arc::clone(&volume), _bed: bed });
        Fresh::new(volume, kept)
    };
    run(&format!("volume, {name}"), &[Part::Namespace, Part::Data], &fresh).conclude();
}

fn policy(name: &str) -> PolicyConfig {
    PolicyConfig::named(name).unwrap()
}

/// All data goes to the tier `slow`.
fn large_to_slow() -> PolicyConfig {
    let nothing = SettingValue::Size(0);
    let settings = [("small", nothing.clone()), ("sync", nothing), ("large", SettingValue::tier("slow"))];
    policy("size").with(settings).unwrap()
}

#[test]
fn weighted() {
    conforms("weighted", &policy("weighted"), directory);
}

#[test]
fn adaptive() {
    conforms("adaptive", &policy("adaptive"), directory);
}

#[test]
fn home_first() {
    conforms("home-first", &policy("home-first"), directory);
}

#[test]
fn by_thread() {
    conforms("static", &policy("static").with([("threads", SettingValue::Threads(1))]).unwrap(), directory);
}

#[test]
fn large_files_elsewhere() {
    conforms("size", &large_to_slow(), directory);
}

#[test]
fn over_memory() {
    conforms("size, over memory", &large_to_slow(), |_| Arc::new(MemoryStore::new(64 << 20)));
}

#[test]
fn over_a_store_that_writes_each_byte_once() {
    for (seek_data, name) in [(true, "holes known"), (false, "holes not known")] {
        for policy in [large_to_slow(), policy("weighted")] {
            let name = format!("{}, each byte once, {name}", policy.name());
            conforms(&name, &policy, |store| Arc::new(AppendOnlyStore::over(store, seek_data)));
        }
    }
}

/// A volume with this policy, and what its home has in common with the model.
fn direct(
    policy: PolicyConfig,
    other: impl Fn(Arc<dyn Store>) -> Arc<dyn Store>,
) -> (DirectSide, Closed, Arc<Common>) {
    let bed = Bed::new();
    let common = Arc::new(Common::model().with(&[&bed.path("home"), &bed.path("slow")]).unwrap());
    let mut config = bed.config();
    config.policy = policy;
    config.tiers[0].store = config.tiers[0].store.take().map(other);
    let volume = Volume::open(config).unwrap();
    let side = DirectSide::new(Arc::<Volume>::clone(&volume), Arc::clone(&common));
    (side, Closed { volume, _bed: bed }, common)
}

fn settings(seed: u64, common: &Common) -> Settings {
    Settings { seed, case_len: 150, compare_every: 50, plain_modes: !common.superuser }
}

#[test]
fn random_operations_agree_with_the_model() {
    for policy in [policy("weighted"), large_to_slow()] {
        agrees_with_the_model(direct(policy, directory));
    }
}

#[test]
fn random_operations_over_a_store_that_writes_each_byte_once_do() {
    for (policy, seek_data) in [(policy("weighted"), true), (large_to_slow(), false)] {
        let once = |store| -> Arc<dyn Store> { Arc::new(AppendOnlyStore::over(store, seek_data)) };
        agrees_with_the_model(direct(policy, once));
    }
}

fn agrees_with_the_model((side, _volume, common): (DirectSide, Closed, Arc<Common>)) {
    let model = ModelSide(Arc::clone(&common));
    let totals = Runner::new(&side, &model, settings(1, &common)).run(6_000);
    let totals = totals.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
}

#[test]
fn threads_agree_without_the_kernels_locks() {
    let (left, _left, common) = direct(policy("weighted"), directory);
    let (right, _right, _) = direct(policy("home-first"), directory);
    let runner = Runner::new(&left, &right, settings(3, &common));
    run_parallel(&runner, 4, 6_000).unwrap_or_else(|failure| panic!("{failure}"));
}
