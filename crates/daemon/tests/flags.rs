//! A stack from flags, and the messages for wrong flags.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_daemon::config::{Config, VolumeSettings};
use braid_daemon::flags::{StackFlags, parse, policy_help};
use braid_placement::PolicyConfig;
use braid_placement::Reserve;
use braid_placement::SettingValue::{self, Percent, Size, Threads};
use std::path::Path;

fn flags(tiers: &[&str]) -> StackFlags {
    StackFlags { tiers: tiers.iter().map(|tier| (*tier).to_owned()).collect(), ..StackFlags::default() }
}

fn with_policy(policy: &str) -> StackFlags {
    StackFlags { policy: Some(policy.into()), ..flags(&["a=/a", "b=/b"]) }
}

fn refusal(flags: &StackFlags) -> String {
    parse(flags).map(|_| ()).unwrap_err().to_string()
}

fn volume(config: &Config) -> &VolumeSettings {
    config.stack.volume().unwrap()
}

#[test]
fn tiers_with_and_without_settings() {
    let config =
        parse(&flags(&["fast=/mnt/a,b=c", "fast2=/x,y,weight=2.5,reserve=10GiB", "s=rel/d=e"])).map(|_| ());
    assert!(config.unwrap_err().to_string().contains("b: unknown key"), "a comma and '=' begin a setting");

    let config = parse(&flags(&["fast=/mnt/nvme", "slow=/x,y,weight=2.5,reserve=5%", "s=rel/d=e"])).unwrap();
    let volume = volume(&config);
    assert_eq!(volume.home.value, "fast", "the first tier");
    assert_eq!(volume.policy.value.name(), "adaptive");
    assert_eq!(volume.tiers[1].dir.value, Path::new("/x,y"));
    assert_eq!(volume.tiers[1].weight.as_ref().unwrap().value, 2.5);
    assert_eq!(volume.tiers[1].reserve.as_ref().unwrap().value, Reserve::Percent(5.0));
    assert_eq!(volume.tiers[2].dir.value, Path::new("rel/d=e"));
}

#[test]
fn policies() {
    let named = |name| PolicyConfig::named(name).unwrap();
    let watermark = named("home-first").with([("watermark", Percent(75.0))]).unwrap();
    let thresholds =
        [("threads", Threads(2)), ("threshold", Percent(30.0)), ("global-threshold", Percent(20.0))];
    for (text, policy) in [
        ("weighted", named("weighted")),
        ("{ weighted: { } }", named("weighted")),
        ("{ home-first: { watermark: 75% } }", watermark.clone()),
        ("home-first", named("home-first").with([("watermark", Percent(90.0))]).unwrap()),
        ("home-first:watermark=75%", watermark),
        ("adaptive", named("adaptive")),
        ("static:threads=3", named("static").with([("threads", Threads(3))]).unwrap()),
        ("dynamic", named("dynamic")),
        ("dynamic:threads=2,threshold=30%,global-threshold=20%", named("dynamic").with(thresholds).unwrap()),
        ("size", named("size").with([("small", Size(4 << 20)), ("sync", Size(64 << 10))]).unwrap()),
        ("size:small=1MiB,large=spread", named("size").with([("small", Size(1 << 20))]).unwrap()),
        ("size:large=b", named("size").with([("large", SettingValue::tier("b"))]).unwrap()),
    ] {
        assert_eq!(volume(&parse(&with_policy(text)).unwrap()).policy.value, policy, "{text}");
    }
}

#[test]
fn every_refusal_names_the_flag() {
    let range = |text: &str| StackFlags { range: Some(text.into()), ..flags(&["a=/a"]) };
    let home = StackFlags { home: Some("c".into()), ..flags(&["a=/a", "b=/b"]) };
    for (flags, message) in [
        (flags(&[]), "--tier: there are no tiers\n  help: give a stack file, or --tier NAME=DIR"),
        (flags(&["/a"]), "--tier /a: expected NAME=DIR\n  help: write --tier fast=/mnt/nvme"),
        (
            flags(&["A=/a"]),
            "--tier A=/a: 'A' can't be the name of a tier\n  help: use 1 to 48 of the characters a-z, 0-9, - and _",
        ),
        (
            flags(&["a="]),
            "--tier a=: dir: found nothing, expected a directory\n  help: write one value after 'dir:'",
        ),
        (
            flags(&["a=/a,wieght=3"]),
            "--tier a=/a,wieght=3: wieght: unknown key\n  \
             help: did you mean 'weight'? The keys here are dir, weight, reserve, readonly, require",
        ),
        (
            flags(&["a=/a,weight=1,weight=2"]),
            "--tier a=/a,weight=1,weight=2: weight: given twice\n  help: keep one of the two",
        ),
        (
            flags(&["a=/a,weight=0"]),
            "--tier a=/a,weight=0: weight: found '0', expected a positive number\n  \
             help: write the tier's share against the others, such as its bandwidth in MB/s: weight: 400",
        ),
        (
            flags(&["a=/a", "a=/b"]),
            "--tier a=/b: there is a tier 'a' already\n  help: give each tier a name of its own",
        ),
        (home, "--home c: there is no tier 'c'\n  help: the tiers are a, b"),
        (
            with_policy("raid"),
            "--policy raid: there is no policy 'raid'\n  help: a policy is adaptive, weighted, static, dynamic, home-first or size",
        ),
        (
            with_policy("size:small"),
            "--policy size:small: found 'small', expected a setting of the policy\n  \
             help: write settings as NAME:key=value,key=value",
        ),
        (
            with_policy("size:large=z9"),
            "--policy size:large=z9: large: there is no tier 'z9'\n  help: the tiers are a, b",
        ),
        (with_policy("weighted:x=1"), "--policy weighted:x=1: x: unknown key\n  help: this takes no keys"),
        (
            range("1MB"),
            "--range 1MB: a range of 1000000 is not a power of two from 64KiB to 64MiB\n  help: write 512KiB or 1MiB",
        ),
    ] {
        assert_eq!(refusal(&flags), message);
    }
}

#[test]
fn help_names_each_policy_with_its_settings() {
    assert_eq!(
        policy_help(),
        "adaptive, weighted, static[:threads=8], dynamic[:threads=8,threshold=50%,global-threshold=50%], \
         home-first[:watermark=90%] or size[:small=4MiB,sync=64KiB,large=spread|TIER] [default: adaptive]"
    );
}
