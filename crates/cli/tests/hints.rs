//! Streams through the `braid` command: which are known, how a file gets one, and what
//! tiers are told. Needs root and /dev/fuse; skipped without them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Bench, RANGE, pattern, write_ranges};
use std::fs;
use std::process::Command;

const PROFILE: &str = "\
name: mail
about: a spool
streams:
  queue: { files: [ \"queue/**\" ], life: short }
  mail: { files: [ \"**/cur/*\" ], programs: [ \"no-such-one\" ], life: extreme }
";

fn bench(hints: &str) -> Option<Bench> {
    let bench = Bench::bare(&["a", "b", "m"])?;
    fs::write(bench.path("mail.yaml"), PROFILE).unwrap();
    bench.write_stack(&format!(
        "\
stack:
  volume:
    home: fast
    policy: weighted
    range: 64KiB
    hints: {hints}
    rules:
      - {{ when: 'path.matches(\"*.own\")', stream: own }}
      - {{ when: 'stream == \"mail/queue\" || stream == \"own\"', tier: slow }}
    tiers:
      fast: {{ dir: a, weight: 1 }}
      slow: {{ dir: b, weight: 1 }}
"
    ));
    Some(bench)
}

/// The kernel's write-life hint of a file's object on the tier `b`.
fn told(bench: &Bench, file: &str) -> u64 {
    let id = bench.json(&["explain", file, "--json"])["object"].as_str().unwrap().to_owned();
    let object = bench.path(&format!("b/.braid/data/{}/{id}", &id[..2]));
    let program = "import fcntl, struct, sys\n\
                   with open(sys.argv[1]) as file:\n    \
                   print(struct.unpack('Q', fcntl.fcntl(file, 1035, bytes(8)))[0])";
    let output = Command::new("python3").args(["-c", program]).arg(object).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn stream(bench: &Bench, file: &str) -> Option<String> {
    bench.json(&["explain", file, "--json"])["stream"]["name"].as_str().map(str::to_owned)
}

#[test]
fn a_file_gets_its_stream_from_a_rule_or_a_profile_and_the_kernel_is_told() {
    let Some(bench) = bench("{ profiles: [ mail.yaml, logs ] }") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("m/queue")).unwrap();
    let data = pattern(1, 4 * RANGE);
    for (name, expected, level) in [
        ("queue/1", Some("mail/queue"), 2),
        ("x.log", Some("logs/logs"), 4),
        ("x.own", Some("own"), 2),
        ("x", None, 0),
    ] {
        write_ranges(&bench.path("m").join(name), &data);
        let file = format!("m/{name}");
        assert_eq!(stream(&bench, &file).as_deref(), expected, "{name}");
        assert_eq!(told(&bench, &file), level, "{name}");
        let text = bench.ok(&["explain", &file]);
        match expected {
            Some("mail/queue") => {
                let said = "stream: mail/queue, by the profile mail; expected life: short";
                assert!(text.contains(said), "{text}");
                assert_eq!(bench.on(&file, "slow"), 4, "a rule sends the stream there");
            }
            Some(name) => assert!(text.contains(&format!("stream: {name}")), "{text}"),
            None => assert!(!text.contains("stream"), "{text}"),
        }
    }
    // Profiles may change while it is mounted.
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&stack.replace("{ profiles: [ mail.yaml, logs ] }", "off"));
    assert!(bench.ok(&["reload", "m"]).contains("hints: off"));
    write_ranges(&bench.path("m/y.log"), &data);
    assert_eq!((stream(&bench, "m/y.log"), told(&bench, "m/y.log")), (None, 0));
    bench.unmount_clean();
}

#[test]
fn streams_are_listed_and_explained_without_a_mount() {
    let Some(bench) = bench("{ profiles: [ mail.yaml, all ] }") else { return };
    let listed = bench.json(&["hints", "list", "s.yaml", "--json"]);
    let lines = listed["streams"].as_array().unwrap();
    let names: Vec<&str> = lines.iter().map(|line| line["stream"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["own", "mail/queue", "mail/mail"]);
    assert!(names.contains(&"rocksdb/wal") && names.contains(&"postgresql/tables"));
    assert!(bench.ok(&["hints", "list"]).contains("rocksdb/flushed"));
    let flushed = ["hints", "explain", "db/000001.sst", "--thread", "rocksdb:high", "--json"];
    assert_eq!(bench.json(&flushed)["stream"], "rocksdb/flushed");
    let compacted = bench.ok(&["hints", "explain", "db/000001.sst"]);
    assert!(compacted.contains("rocksdb/compacted, by the profile rocksdb"), "{compacted}");
    let queue = bench.ok(&["hints", "explain", "--stack", "s.yaml", "/queue/1"]);
    assert!(queue.contains("mail/queue, by the profile mail (a spool)"), "{queue}");
    let cur = ["hints", "explain", "--stack", "s.yaml", "--program", "no-such-one", "x/cur/1"];
    assert!(bench.ok(&cur).contains("mail/mail, by the profile mail"));
    let own = bench.ok(&["hints", "explain", "--stack", "s.yaml", "queue/x.own"]);
    assert!(own.contains("own, by a rule"), "{own}");
    assert!(bench.fails(&["hints", "explain", "x"]).1.contains("no stream that is known"));
}

#[test]
fn a_profile_that_makes_no_sense_is_refused_by_place() {
    let Some(bench) = bench("{ profiles: [ mail.yaml ] }") else { return };
    fs::write(bench.path("mail.yaml"), PROFILE.replace("short", "brief")).unwrap();
    for words in [&["mount", "s.yaml", "m"][..], &["hints", "list", "s.yaml"]] {
        let said = bench.refused(words);
        assert!(said.contains("mail.yaml:4: streams.queue.life: found 'brief'"), "{said}");
        assert!(said.contains("write short, medium, long or extreme"), "{said}");
    }
}
