//! A volume keeps the promises of the trait, whatever its policy and tiers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::Store;
use braid_placement::{PolicyConfig, SettingValue};
use braid_stores::memory::MemoryStore;
use braid_testkit::conformance::file_system::{Fresh, Part, run};
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

/// Runs the suite on a volume with this policy, whose other tier is as given or
/// a directory.
fn conforms(name: &str, policy: &PolicyConfig, other: impl Fn() -> Option<Arc<dyn Store>>) {
    let fresh = || {
        let bed = Bed::new();
        let mut config = bed.config();
        config.policy = policy.clone();
        if let Some(store) = other() {
            config.tiers[0].store = Some(store);
        }
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
    conforms("weighted", &policy("weighted"), || None);
}

#[test]
fn adaptive() {
    conforms("adaptive", &policy("adaptive"), || None);
}

#[test]
fn home_first() {
    conforms("home-first", &policy("home-first"), || None);
}

#[test]
fn by_thread() {
    conforms("static", &policy("static").with([("threads", SettingValue::Threads(1))]).unwrap(), || None);
}

#[test]
fn large_files_elsewhere() {
    conforms("size", &large_to_slow(), || None);
}

#[test]
fn over_memory() {
    let memory = || Some(Arc::new(MemoryStore::new(64 << 20)) as Arc<dyn Store>);
    conforms("size, over memory", &large_to_slow(), memory);
}

/// A volume with this policy, and the properties that its home shares with the
/// model.
fn direct(policy: PolicyConfig) -> (DirectSide, Closed, Arc<Common>) {
    let bed = Bed::new();
    let common = Arc::new(Common::model().with(&[&bed.path("home"), &bed.path("slow")]).unwrap());
    let mut config = bed.config();
    config.policy = policy;
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
        let (side, _volume, common) = direct(policy);
        let model = ModelSide(Arc::clone(&common));
        let totals = Runner::new(&side, &model, settings(1, &common)).run(6_000);
        let totals = totals.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
    }
}

#[test]
fn threads_agree_without_the_kernels_locks() {
    let (left, _left, common) = direct(policy("weighted"));
    let (right, _right, _) = direct(policy("home-first"));
    let runner = Runner::new(&left, &right, settings(3, &common));
    run_parallel(&runner, 4, 6_000).unwrap_or_else(|failure| panic!("{failure}"));
}
