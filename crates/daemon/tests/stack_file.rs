//! The messages for wrong stack files: file, line, key, finding and advice,
//! word by word.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_daemon::stack_file;
use braid_placement::{PolicyConfig, SettingValue};
use std::fmt::Write as _;
use std::path::Path;

/// A correct stack file in which `from` is replaced by `to`.
fn edited(from: &str, to: &str) -> String {
    let text = "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    range: 2MiB
    tiers:
      fast: { dir: /a, weight: 400 }
      slow: { dir: /b, weight: 120, reserve: 5% }
mount:
  threads: 8
";
    assert!(text.contains(from), "{from:?}");
    text.replace(from, to)
}

fn refusal(text: &str) -> String {
    match stack_file::parse(text, "s.yaml", Path::new("")) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(refusal) => refusal.to_string(),
    }
}

#[track_caller]
fn refused(from: &str, to: &str, message: &str) {
    assert_eq!(refusal(&edited(from, to)), message);
}

#[test]
fn the_text_itself_is_right() {
    stack_file::parse(&edited("home", "home"), "s.yaml", Path::new("")).unwrap();
}

#[test]
fn unknown_keys() {
    refused(
        "weight: 120",
        "wieght: 120",
        "s.yaml:8: stack.volume.tiers.slow.wieght: unknown key\n  \
         help: did you mean 'weight'? The keys here are dir, memory, weight, reserve, readonly, require, zoned, faults",
    );
    refused(
        "    range:",
        "    stripe:",
        "s.yaml:5: stack.volume.stripe: unknown key\n  help: the keys here are home, policy, rules, epoch, profile, range, jobs, tiers, heat, monitor, movers, measure, hints, cache",
    );
    refused(
        "mount:",
        "mounts:",
        "s.yaml:9: mounts: unknown key\n  help: did you mean 'mount'? The keys here are stack, exec, mount",
    );
    refused(
        "threads: 8",
        "allow_other: true",
        "s.yaml:10: mount.allow_other: unknown key\n  \
         help: did you mean 'allow-other'? The keys here are point, options, threads, nice, allow-other, cache, dirty, inodes, xattr, transport, poll, restart, runtime, metrics, kv, modifiable-by",
    );
}

#[test]
fn wrong_units() {
    refused(
        "2MiB",
        "2X",
        "s.yaml:5: stack.volume.range: found '2X', expected a size\n  help: a size is a whole number of bytes, or one \
         with K, M, G, T or KiB, MiB, GiB, TiB (1024s) or KB, MB, GB, TB (1000s)",
    );
    refused(
        "2MiB",
        "3MiB",
        "s.yaml:5: stack.volume.range: a range of 3MiB is not a power of two from 64KiB to 64MiB\n  \
         help: write 2MiB or 4MiB",
    );
    refused(
        "2MiB",
        "4096",
        "s.yaml:5: stack.volume.range: a range of 4KiB is not a power of two from 64KiB to 64MiB\n  help: write 64KiB",
    );
    refused(
        "2MiB",
        "1GiB",
        "s.yaml:5: stack.volume.range: a range of 1GiB is not a power of two from 64KiB to 64MiB\n  help: write 64MiB",
    );
    refused(
        "5%",
        "5 percent",
        "s.yaml:8: stack.volume.tiers.slow.reserve: found '5 percent', expected a percentage or a size\n  \
         help: write a percentage such as 5%, or a size: a size is a whole number of bytes, or one with \
         K, M, G, T or KiB, MiB, GiB, TiB (1024s) or KB, MB, GB, TB (1000s)",
    );
    refused(
        "5%",
        "100%",
        "s.yaml:8: stack.volume.tiers.slow.reserve: found '100%', expected a percentage or a size\n  \
         help: a reserve of 100% leaves nothing to use; write less",
    );
}

#[test]
fn weights_are_positive_numbers() {
    for wrong in ["0", "-1", ".inf", ".nan", "inf", "fast", "400MB"] {
        refused(
            "400",
            wrong,
            &format!(
                "s.yaml:7: stack.volume.tiers.fast.weight: found '{wrong}', expected a positive number\n  \
                 help: write the tier's share against the others, such as its bandwidth in MB/s: weight: 400"
            ),
        );
    }
}

#[test]
fn names_of_tiers() {
    refused(
        "home: fast",
        "home: fsat",
        "s.yaml:3: stack.volume.home: there is no tier 'fsat'\n  help: did you mean 'fast'? The tiers are fast, slow",
    );
    refused(
        "{ weighted: { } }",
        "{ size: { large: archive } }",
        "s.yaml:4: stack.volume.policy.size.large: there is no tier 'archive'\n  help: the tiers are fast, slow",
    );
    refused(
        "slow:",
        "Slow Disk:",
        "s.yaml:8: stack.volume.tiers.Slow Disk: 'Slow Disk' can't be the name of a tier\n  \
         help: use 1 to 48 of the characters a-z, 0-9, - and _",
    );
    let long = "x".repeat(49);
    assert!(refusal(&edited("slow:", &format!("{long}:"))).contains("can't be the name of a tier"));
    refused(
        "slow:",
        "fast:",
        "s.yaml:8: the key 'fast' appears twice in the same place\n  help: keep one of the two",
    );
}

#[test]
fn the_number_of_tiers() {
    let mut text = String::from("stack:\n  volume:\n    home: t0\n    policy: { weighted: }\n    tiers:\n");
    for number in 0..63 {
        writeln!(text, "      t{number}: {{ dir: /t{number} }}").unwrap();
    }
    stack_file::parse(&text, "s.yaml", Path::new("")).unwrap();
    text.push_str("      t63: { dir: /t63 }\n");
    assert_eq!(
        refusal(&text),
        "s.yaml:69: stack.volume.tiers.t63: a volume has at most 63 tiers; found 64\n  \
         help: join directories beneath with another file system, or make two volumes"
    );
    let none = "stack:\n  volume:\n    home: a\n    policy: { weighted: }\n    tiers:\n";
    assert_eq!(
        refusal(none),
        "s.yaml:5: stack.volume.tiers: there are no tiers\n  help: add at least one: NAME: { dir: DIRECTORY }"
    );
}

#[test]
fn missing_keys() {
    refused(
        "    home: fast\n",
        "",
        "s.yaml:2: stack.volume: the key 'home' is missing\n  \
         help: add home: fast, or another tier that is to hold the names",
    );
    refused(
        "dir: /a, ",
        "",
        "s.yaml:7: stack.volume.tiers.fast: the key 'dir' is missing\n  help: add dir: DIRECTORY",
    );
    assert_eq!(
        refusal("mount: {}\n"),
        "s.yaml:1: the key 'stack' is missing\n  help: add stack: { volume: { … } }"
    );
}

#[test]
fn policies() {
    let place = "s.yaml:4: stack.volume.policy";
    for (policy, message) in [
        (
            "wieghted",
            format!(
                "{place}: there is no policy 'wieghted'\n  \
                 help: did you mean 'weighted'? The policies are adaptive, weighted, static, dynamic, home-first, size"
            ),
        ),
        (
            "{ wieghted: { } }",
            format!(
                "{place}.wieghted: there is no policy 'wieghted'\n  \
                 help: did you mean 'weighted'? The policies are adaptive, weighted, static, dynamic, home-first, size"
            ),
        ),
        (
            "{ raid5: { } }",
            format!(
                "{place}.raid5: there is no policy 'raid5'\n  help: a policy is adaptive, weighted, static, dynamic, home-first or size"
            ),
        ),
        (
            "{ weighted: { }, size: { } }",
            format!(
                "{place}.size: found 'weighted' and 'size' where one key belongs\n  \
                 help: keep one of them; it may be adaptive, weighted, static, dynamic, home-first or size"
            ),
        ),
        (
            "{ }",
            format!(
                "{place}: found nothing below this key\n  help: put one of these there: adaptive, weighted, static, dynamic, home-first or size"
            ),
        ),
        (
            "{ weighted: 3 }",
            format!("{place}.weighted: this policy has no settings\n  help: write weighted: {{ }}"),
        ),
        (
            "{ home-first: { watermark: 0.9 } }",
            format!(
                "{place}.home-first.watermark: found '0.9', expected a percentage\n  \
                 help: a percentage is a number and %, such as 5% or 0.5%"
            ),
        ),
        (
            "{ home-first: { watermark: 0% } }",
            format!(
                "{place}.home-first.watermark: at 0% nothing would ever go home\n  \
                 help: write a percentage from 1% to 100%"
            ),
        ),
        (
            "{ size: { smal: 1MiB } }",
            format!(
                "{place}.size.smal: unknown key\n  help: did you mean 'small'? The keys here are small, sync, large"
            ),
        ),
    ] {
        refused("{ weighted: { } }", policy, &message);
    }
}

#[test]
fn modules() {
    let stack = |text: &str| refusal(&format!("stack:{text}\n"));
    assert_eq!(
        stack(" { nop: { volume: { } } }"),
        "s.yaml:1: stack.nop: there is no module 'nop'\n  \
         help: did you mean 'noop'? The modules are volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance, model"
    );
    assert_eq!(
        stack(" { mirror: { } }"),
        "s.yaml:1: stack.mirror: there is no module 'mirror'\n  help: a module is volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance or model"
    );
    assert_eq!(
        stack("\n  noop:"),
        "s.yaml:2: stack.noop: found nothing below this key\n  \
         help: put one of these there: volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance or model"
    );
    assert_eq!(
        stack("\n  noop: { }\n  volume: { }"),
        "s.yaml:3: stack.volume: found 'noop' and 'volume' where one key belongs\n  \
         help: keep one of them; it may be volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance or model"
    );
    assert_eq!(
        stack("\n  volume: [1]"),
        "s.yaml:2: stack.volume: found a list, expected keys below this one\n  help: remove the leading '-'"
    );
    let deny = |text: &str| stack(&format!("\n  deny:\n    {text}\n    volume: {{ }}"));
    assert_eq!(
        deny("path: [ a ]"),
        "s.yaml:3: stack.deny.path: unknown key\n  help: did you mean 'paths'? The keys here are paths"
    );
    assert_eq!(
        deny("paths:\n    - ok\n    - '[a'"),
        "s.yaml:5: stack.deny.paths: '[a' is not a pattern of paths: a '[' is not closed\n  \
         help: docs/configuration.md has the settings of each module"
    );
    assert_eq!(
        deny("paths: a"),
        "s.yaml:3: stack.deny.paths: found 'a', expected a list\n  help: write paths: [ … ]"
    );
    assert_eq!(
        stack("\n  deny: { volume: { } }"),
        "s.yaml:2: stack.deny: the key 'paths' is missing\n  \
         help: docs/configuration.md has the settings of each module"
    );
    assert_eq!(
        stack("\n  deny: { paths: [ a ] }"),
        "s.yaml:2: stack.deny: found nothing below this key\n  \
         help: put one of these there: volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance or model"
    );
    let rules = |rules: &str| stack(&format!("\n  permissions:\n    rules:\n{rules}\n    volume: {{ }}"));
    assert_eq!(
        rules("    - { deny: [ read ], uid: [ 5 ] }\n    - { deny: [ read ], uid: [ alice ] }"),
        "s.yaml:5: stack.permissions.rules.uid: found 'alice', expected a number\n  \
         help: write a number, within its bounds"
    );
    assert_eq!(
        rules("    - { deny: [ read ], allow: [ read ] }"),
        "s.yaml:4: stack.permissions.rules: the rule allows and denies 'read'\n  \
         help: docs/configuration.md has the settings of each module"
    );
    assert_eq!(
        rules("    - deny: [ read ]\n    - { allow: [ read ], uid: [ 5 ] }"),
        "s.yaml:2: stack.permissions: rules: rule 2 never counts, as those before it decide all of that: put \
         it before them, or take it out\n  help: docs/configuration.md has the settings of each module"
    );
    let throttle = |keys: &str| stack(&format!("\n  throttle:\n    {keys}\n    volume: {{ }}"));
    for (keys, says) in [
        ("by: uid", "s.yaml:2: stack.throttle: nothing is limited: write 'bandwidth'"),
        (
            "by: user\n    each: 1MiB/s",
            "s.yaml:3: stack.throttle.by: found 'user', expected uid, gid, cgroup or process",
        ),
        ("by: uid\n    bandwidth: 9\n", "s.yaml:2: stack.throttle: bandwidth: '9' is less than 64KiB/s"),
        (
            "by: uid\n    bandwidth: 9GiB/s\n    weights: { eve: 3 }",
            "s.yaml:2: stack.throttle: weights: 'eve' is no id",
        ),
        (
            "by: uid\n    bandwidth: 9GiB/s\n    weights: { 5: much }",
            "s.yaml:5: stack.throttle.weights.5: found 'much', expected a number",
        ),
    ] {
        let said = throttle(keys);
        assert!(said.starts_with(says), "{said}");
    }
    assert_eq!(
        stack("\n  noop:\n    mirror: { }"),
        "s.yaml:3: stack.noop.mirror: there is no module 'mirror'\n  \
         help: a module is volume, log, view, noop, deny, consistency, permissions, throttle, compress, encrypt, checksum, metrics, provenance or model"
    );
    let deep = format!(" {}volume: {}", "{ noop: ".repeat(70), "}".repeat(70));
    assert!(stack(&deep).starts_with("s.yaml:1: "));
    let deep =
        |count: usize| format!(" {{ {}volume: {{ }}{}", "noop: { ".repeat(count), " }".repeat(count + 1));
    let said = stack(&deep(33));
    assert!(said.ends_with("more than 32 modules on top of each other\n  help: take some out"), "{said}");
    assert!(stack(&deep(32)).contains("volume: the key 'tiers' is missing"));
}

#[test]
fn the_mount_section() {
    refused(
        "threads: 8",
        "threads: 0",
        "s.yaml:10: mount.threads: found '0', expected a number\n  help: write a whole number from 1 to 512",
    );
    refused(
        "threads: 8",
        "cache: warm",
        "s.yaml:10: mount.cache: found 'warm', expected a cache mode\n  help: write auto, writeback, passthrough or direct",
    );
    refused(
        "threads: 8",
        "threads: [8]",
        "s.yaml:10: mount.threads: found a list, expected a number\n  help: write one value after 'threads:'",
    );
}

#[test]
fn files_that_are_something_else() {
    let begins = "help: a stack file begins with 'stack:'; see docs/configuration.md";
    for text in ["", "\n\n", "# nothing\n", "---\n", "null"] {
        assert_eq!(refusal(text), format!("s.yaml: the file is empty\n  {begins}"), "{text:?}");
    }
    assert_eq!(refusal("- a\n- b\n"), format!("s.yaml:1: found a list, expected keys\n  {begins}"));
    assert_eq!(refusal("hello"), format!("s.yaml:1: found a single value, expected keys\n  {begins}"));
    let quotes = "help: correct the syntax; values with special characters need quotes";
    assert_eq!(refusal("stack: [\n"), format!("s.yaml:1: not valid YAML: unclosed bracket '['\n  {quotes}"));
    assert_eq!(
        refusal("stack:\n  volume: a: b\n"),
        format!("s.yaml:2: not valid YAML: mapping values are not allowed in this context\n  {quotes}")
    );
    assert!(refusal("stack:\n\tvolume: x\n").starts_with("s.yaml:2: not valid YAML: "));
    assert!(refusal("\u{0}\u{1}ELF").starts_with("s.yaml:1: not valid YAML: "));
    assert_eq!(
        refusal("stack: {}\n---\nstack: {}\n"),
        "s.yaml:3: a second document begins here ('---')\n  help: a stack file holds one stack; use a file for each"
    );
}

#[test]
fn faults_of_a_drill() {
    let slow = "slow: { dir: /b, weight: 120, reserve: 5%";
    let text = edited(slow, &format!("{slow}, faults: [ \"read:EIO,after=10\", \"sync:EIO,once\" ]"));
    let config = stack_file::parse(&text, "s.yaml", Path::new("")).unwrap();
    let faults = &config.stack.volume().unwrap().tier("slow").unwrap().faults;
    let faults: Vec<String> = faults.iter().map(|fault| fault.value.to_string()).collect();
    assert_eq!(faults, ["read:EIO,after=10", "sync:EIO,once"]);

    let advice = "help: a fault is OPERATION:ERROR, OPERATION:short or OPERATION:hang, then ,after=N ,every=N and \
                  ,count=N or ,once as wanted: read:EIO,after=10";
    refused(
        slow,
        &format!("{slow}, faults:\n          [ \"read:EIO\",\n            \"read:EIEIO\" ]"),
        &format!(
            "s.yaml:10: stack.volume.tiers.slow.faults: not a fault: `EIEIO` is no fault; \
             it is an error such as EIO, `short` or `hang`\n  {advice}"
        ),
    );
    let list = "help: write faults: [ \"read:EIO,after=10\", \"sync:EIO,once\" ]";
    refused(
        slow,
        &format!("{slow}, faults: \"read:EIO\""),
        &format!("s.yaml:8: stack.volume.tiers.slow.faults: found 'read:EIO', expected a list\n  {list}"),
    );
    refused(
        "weight: 400",
        "weight: 400, faults: [ \"read:EIO\" ]",
        "s.yaml:7: stack.volume.tiers.fast.faults: the home tier is not drilled\n  \
         help: arm faults on the other tiers; without home there is no volume",
    );
}

#[test]
fn tiers_that_are_left_out() {
    let parse = || stack_file::parse(&edited("home", "home"), "s.yaml", Path::new("")).unwrap();
    let mut config = parse();
    config.without(&["slow".into()]).unwrap();
    assert!(config.stack.volume().unwrap().tier("slow").unwrap().absent.is_some());
    assert!(config.stack.volume().unwrap().tier("fast").unwrap().absent.is_none());
    assert_eq!(
        parse().without(&["slwo".into()]).unwrap_err().to_string(),
        "--without slwo: there is no tier 'slwo'\n  help: did you mean 'slow'? The tiers are fast, slow"
    );
    assert_eq!(
        parse().without(&["fast".into()]).unwrap_err().to_string(),
        "--without fast: 'fast' is the home tier\n  \
         help: the home tier holds the names of all files: there is no volume without it"
    );
}

#[test]
fn files_that_can_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.yaml");
    let refused = || stack_file::load(&path).map(|_| ()).unwrap_err().found;
    assert_eq!(refused(), "there is no such file");
    std::fs::write(&path, [0xff, 0xfe, 0xfd]).unwrap();
    assert_eq!(refused(), "not a text file");
    std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
    assert_eq!(refused(), "longer than 1 MiB");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(refused(), "this is a directory");
}

#[test]
fn anchors_and_quotes_work_and_keep_their_lines() {
    let text = "\
stack:
  volume:
    home: '2024'
    policy: { weighted: { } }
    tiers:
      2024: &common { dir: 007, weight: 1_0 }
";
    assert_eq!(
        refusal(text),
        "s.yaml:6: stack.volume.tiers.2024.weight: found '1_0', expected a positive number\n  \
         help: write the tier's share against the others, such as its bandwidth in MB/s: weight: 400"
    );
    let config = stack_file::parse(&text.replace("1_0", "10"), "s.yaml", Path::new("/base")).unwrap();
    assert_eq!(
        config.stack.volume().unwrap().tiers[0].dir.value,
        Path::new("/base/007"),
        "characters stay as they are"
    );
}

/// The volume with one more key.
fn with(line: &str) -> String {
    edited("    range: 2MiB", &format!("    {line}"))
}

#[test]
fn movers_heat_and_monitor() {
    for line in [
        "movers: { }",
        "movers: { promote: false, demote: true, bandwidth: 50MiB/s, job_floor: 8MiB/s, latency_factor: 1.5 }",
        "movers: { watermark_high: 70%, watermark_low: 69.5%, heat_threshold: 0% }",
        "heat: { budget: 16MiB }",
        "heat: { budget: 0 }",
        "monitor: false",
    ] {
        stack_file::parse(&with(line), "s.yaml", Path::new("")).unwrap();
    }
    let movers = "s.yaml:5: stack.volume.movers";
    for (line, message) in [
        (
            "movers: { demot: true }",
            format!(
                "{movers}.demot: unknown key\n  help: did you mean 'demote'? The keys here are promote, demote, \
                 balance, bandwidth, job_floor, watermark_high, watermark_low, heat_threshold, latency_factor"
            ),
        ),
        (
            "movers: { bandwidth: fast }",
            format!(
                "{movers}.bandwidth: found 'fast', expected a rate\n  \
                 help: a rate is a size a second, such as 50MiB/s; a size is a whole number of bytes, or one with \
                 K, M, G, T or KiB, MiB, GiB, TiB (1024s) or KB, MB, GB, TB (1000s)"
            ),
        ),
        (
            "movers: { bandwidth: 5KiB/s }",
            format!(
                "{movers}.bandwidth: 5KiB/s is too slow for anything to be moved\n  \
                 help: write 1MiB/s or more; promote, demote and balance: false move nothing"
            ),
        ),
        (
            "movers: { job_floor: 5KiB/s }",
            format!(
                "{movers}.job_floor: 5KiB/s is too slow for anything to be moved\n  \
                 help: write 1MiB/s or more: jobs that were started must end"
            ),
        ),
        (
            "movers: { watermark_low: 95% }",
            format!(
                "{movers}.watermark_low: a tier is relieved from 90% used down to 95%\n  \
                 help: the low watermark must be below the high one: 90% and 80%"
            ),
        ),
        (
            "movers: { latency_factor: 1 }",
            format!(
                "{movers}.latency_factor: found '1', expected a number above 1\n  \
                 help: write how many times longer operations may take, such as 2"
            ),
        ),
        (
            "heat: { budget: 5KiB }",
            "s.yaml:5: stack.volume.heat.budget: 5KiB is too little to remember anything\n  \
             help: write 64KiB or more, or 0 to keep no heat"
                .to_owned(),
        ),
        (
            "heat: 5MiB",
            "s.yaml:5: stack.volume.heat: found '5MiB', expected keys below this one\n  \
             help: write it as heat: { … }"
                .to_owned(),
        ),
        (
            "monitor: onn",
            "s.yaml:5: stack.volume.monitor: found 'onn', expected yes or no\n  help: write yes or no (or true or false, on or off)"
                .to_owned(),
        ),
    ] {
        assert_eq!(refusal(&with(line)), message);
    }
    let both = with("heat: { budget: 0 }\n    movers: { promote: true }");
    assert_eq!(
        refusal(&both),
        "s.yaml:6: stack.volume.movers.promote: nothing is known to be in use while heat has a budget of 0\n  \
         help: give heat a budget, or write promote: false"
    );
}

#[test]
fn a_policy_is_written_in_three_ways_and_a_truth_value_in_six() {
    let text = |policy: &str, yes: &str| {
        format!(
            "stack: {{ volume: {{ home: a, policy: {policy}, monitor: {yes}, tiers: {{ a: {{ dir: /a }} }} }} }}\n"
        )
    };
    let weighted = PolicyConfig::named("weighted").unwrap();
    let home_first = PolicyConfig::named("home-first").unwrap();
    let home_first = home_first.with([("watermark", SettingValue::Percent(80.0))]).unwrap();
    for (policy, expected) in [
        ("weighted", &weighted),
        ("{ weighted: }", &weighted),
        ("{ weighted: { } }", &weighted),
        ("\"home-first:watermark=80%\"", &home_first),
        ("{ home-first: { watermark: 80 % } }", &home_first),
    ] {
        for yes in ["yes", "true", "on", "YES"] {
            let config = stack_file::parse(&text(policy, yes), "s.yaml", Path::new("")).unwrap();
            let volume = config.stack.volume().unwrap();
            assert_eq!(volume.policy.value, *expected, "{policy}");
            assert!(volume.monitor.as_ref().unwrap().value, "{yes}");
        }
    }
    let refused = stack_file::parse(&text("weighted", "maybe"), "s.yaml", Path::new("")).unwrap_err();
    assert!(
        refused.to_string().contains("found 'maybe', expected yes or no\n  help: write yes or no (or"),
        "{refused}"
    );
}
