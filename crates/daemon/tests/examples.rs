//! Every stack file in `docs/examples/` and in the documentation is accepted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_daemon::config::StackNode;
use braid_daemon::{Config, profile, stack_file};
use braid_placement::Reserve;
use braid_placement::SettingValue;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str) -> Config {
    stack_file::load(&root().join("docs/examples").join(name)).unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn every_example_is_understood() {
    let files =
        std::fs::read_dir(root().join("docs/examples")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    let stacks: Vec<&String> =
        names.iter().filter(|name| name.ends_with(".yaml") && *name != "braid-alerts.yaml").collect();
    stacks.iter().for_each(|name| drop(load(name)));
    assert!(stacks.len() >= 4, "{names:?}");
}

#[test]
fn two_tier_says_what_it_means() {
    let config = load("two-tier.yaml");
    let volume = config.stack.volume().unwrap();
    assert_eq!(volume.home.value, "fast");
    assert_eq!(volume.policy.value.name(), "adaptive");
    assert_eq!(volume.range.as_ref().unwrap().value.get(), 2 << 20);
    let (fast, slow) = (volume.tier("fast").unwrap(), volume.tier("slow").unwrap());
    assert_eq!(fast.dir.value, Path::new("/mnt/nvme"));
    assert!(fast.weight.is_none() && fast.reserve.is_none() && slow.weight.is_none());
    assert_eq!(slow.reserve.as_ref().unwrap().value, Reserve::Percent(5.0));
    assert!(config.mount.threads.is_none());
}

#[test]
fn the_other_policies() {
    let config = load("home-first.yaml");
    assert_eq!(config.stack.volume().unwrap().policy.value.home_watermark(), Some(80.0));
    assert_eq!(
        config.stack.volume().unwrap().tiers[1].reserve.as_ref().unwrap().value,
        Reserve::Bytes(10 << 30)
    );

    let config = load("media-archive.yaml");
    let policy = &config.stack.volume().unwrap().policy.value;
    assert_eq!((policy.name(), policy.value("small")), ("size", Some(&SettingValue::Size(16 << 20))));
    assert_eq!(policy.tiers().collect::<Vec<_>>(), ["archive"]);
    assert_eq!(config.mount.threads.unwrap().value, 16);
    assert!(config.mount.allow_other.unwrap().value);
}

#[test]
fn a_module_holds_what_it_wraps() {
    let config = load("noop.yaml");
    let StackNode::Wrapper { module, child, .. } = &config.stack else { panic!("no module") };
    assert_eq!(module.name(), "noop");
    assert!(matches!(**child, StackNode::Volume(_)));
    assert_eq!(config.mount.cache.unwrap().value.name(), "direct");
    let dir = &config.stack.volume().unwrap().tiers[0].dir.value;
    assert!(dir.ends_with("examples/data/fast"), "relative to the stack file: {}", dir.display());
}

#[test]
fn stack_files_in_the_documentation_are_understood() {
    // The key that they name is read.
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&key, [7; 32]).unwrap();
    let text = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let text = text.replace("/etc/braid/key", key.path().to_str().unwrap());
    let mut count = 0;
    for block in text.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        if block.starts_with("stack:") {
            stack_file::parse(block, "configuration.md", Path::new(""))
                .unwrap_or_else(|refusal| panic!("{refusal}"));
            count += 1;
        }
    }
    assert!(count >= 2, "{count}");
}

#[test]
fn the_profile_in_the_documentation_is_understood() {
    let text = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut blocks = text.split("```yaml\n").skip(1).filter(|block| block.starts_with("version:"));
    let block = blocks.next().unwrap().split("```").next().unwrap();
    let profile = profile::parse(block, "configuration.md").unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(profile.tiers["fast"].write.degrades_at, Some(16));
}

#[test]
fn rules_say_what_they_mean() {
    let config = load("rules.yaml");
    let volume = config.stack.volume().unwrap();
    assert_eq!(volume.policy.value.name(), "adaptive");
    let rule = |at: usize| {
        let rule: &braid_daemon::config::Rule = &volume.rules[at];
        let tiers: Vec<&str> = rule.tiers.iter().map(|tier| tier.value.as_str()).collect();
        (tiers, rule.pin, rule.policy.as_ref().map(|policy| policy.value.name()))
    };
    assert_eq!(rule(0), (vec!["fast"], true, None));
    assert_eq!(rule(1), (vec!["disk", "slow"], false, None));
    let ranges = |at: usize| volume.rules[at].range.as_ref().map(|range| range.value.get());
    assert_eq!([0, 1, 2].map(ranges), [None, Some(16 << 20), None]);
    assert_eq!(rule(2), (vec![], false, Some("dynamic")));
}
