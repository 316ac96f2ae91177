//! Streams through the `braid` command: the known ones, how a file gets one, and the hints to
//! tiers. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, write_back, write_ranges};
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

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
fn a_file_in_use_gets_the_stream_that_changed_settings_say() {
    let Some(bench) = bench("{ profiles: [ mail.yaml ] }") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("m/queue")).unwrap();
    let open = |name: &str| File::create(bench.path("m").join(name)).unwrap();
    let (ruled, profiled) = (open("x.own"), open("queue/1"));
    let write = |file: &File, at: u64| write_back(file, &pattern(1, 2 * RANGE), at);
    let streams = || (stream(&bench, "m/x.own"), stream(&bench, "m/queue/1"));
    write(&ruled, 0);
    write(&profiled, 0);
    assert_eq!(streams(), (Some("own".to_owned()), Some("mail/queue".to_owned())));
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&stack.replace("stream: own", "stream: other"));
    let profile = fs::read_to_string(bench.path("mail.yaml")).unwrap();
    fs::write(bench.path("mail.yaml"), profile.replace("queue:", "spool:")).unwrap();
    bench.ok(&["reload", "m"]);
    write(&ruled, 2 * RANGE as u64);
    write(&profiled, 2 * RANGE as u64);
    assert_eq!(streams(), (Some("other".to_owned()), Some("mail/spool".to_owned())));
    drop((ruled, profiled));
    bench.unmount_clean();
}

/// Opens a file in a thread that ends before anything is written, writes in its name,
/// and then in that of a thread that is there.
const BY_A_THREAD_THAT_ENDED: &str = "\
import os, sys, threading
opened = []
def open_file():
    opened.append(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))
thread = threading.Thread(target=open_file)
thread.start()
thread.join()
data = bytes(1 << 18)
os.pwrite(opened[0], data, 0)
os.fsync(opened[0])
again = os.open(sys.argv[1], os.O_WRONLY)
os.pwrite(again, data, len(data))
os.fsync(again)
print(flush=True)
sys.stdin.readline()
";

#[test]
fn a_writer_that_is_gone_is_not_the_last_that_is_asked() {
    let Some(bench) = bench("{ profiles: [ mail.yaml ] }") else { return };
    fs::write(bench.path("mail.yaml"), PROFILE.replace("no-such-one", "python*")).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("m/cur")).unwrap();
    let mut writer = Command::new("python3")
        .args(["-c", BY_A_THREAD_THAT_ENDED])
        .arg(bench.path("m/cur/1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0];
    writer.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let found = stream(&bench, "m/cur/1");
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    assert_eq!(found.as_deref(), Some("mail/mail"));
    bench.unmount_clean();
}

#[test]
fn a_dump_of_the_stack_serves_anywhere() {
    let Some(bench) = bench("{ profiles: [ mail.yaml, ./mail2.yaml, logs ] }") else { return };
    fs::write(bench.path("mail2.yaml"), PROFILE.replace("mail", "mail2")).unwrap();
    let figures = "{ bandwidth: 100000000, latency_ns: 1000, threads: 1 }";
    let speeds = format!("version: 1\ntiers:\n  fast:\n    read: {figures}\n    write: {figures}\n");
    fs::write(bench.path("speeds.yaml"), speeds).unwrap();
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&stack.replace("range:", "profile: speeds.yaml\n    range:"));
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("elsewhere")).unwrap();
    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains(&format!("profile: {}", bench.path("speeds.yaml").display())), "{dump}");
    fs::write(bench.path("elsewhere/s.yaml"), dump).unwrap();
    let listed = bench.ok(&["hints", "list", "elsewhere/s.yaml"]);
    assert!(
        ["mail/queue", "mail2/queue", "logs/logs"].iter().all(|stream| listed.contains(stream)),
        "{listed}"
    );
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

/// A trace of a store: segments that are gone soon, and tables that stay.
fn trace() -> String {
    let mut text = String::from(
        "{\"braid-trace\":1,\"braid\":\"0.1.0\",\"volume\":\"v\",\"range\":2097152,\"policy\":\"weighted\",\"began\":1}\n",
    );
    let minute = 60_000_000_000_u64;
    for number in 0..60_u64 {
        let at = number * minute;
        for (file, path, long) in [
            (2 * number + 1, format!("db/{number:06}.seg"), false),
            (2 * number + 2, format!("db/t{number}.tab"), true),
        ] {
            text += &format!("{{\"op\":\"file\",\"file\":{file},\"path\":\"{path}\",\"at\":{at}}}\n");
            text += &format!("{{\"op\":\"create\",\"file\":{file},\"at\":{at}}}\n");
            for part in 0..4 {
                let offset = part * 65536;
                text += &format!(
                    "{{\"op\":\"write\",\"file\":{file},\"at\":{at},\"offset\":{offset},\"length\":65536,\"size\":{offset}}}\n"
                );
            }
            if !long {
                text += &format!("{{\"op\":\"remove\",\"file\":{file},\"at\":{}}}\n", at + minute / 10);
            }
        }
    }
    text
}

#[test]
fn a_profile_is_learned_from_a_trace() {
    let Some(bench) = bench("{ learned: off, profiles: [ mail.yaml, store.yaml ] }") else { return };
    fs::write(bench.path("t.trace"), trace()).unwrap();
    let told = bench.ok(&["hints", "learn", "--trace", "t.trace", "--out", "store.yaml"]);
    assert!(told.contains("2 streams, which 120 of 120 files that were written fall into"), "{told}");
    let listed = bench.json(&["hints", "list", "s.yaml", "--json"]);
    let life = |file: &str| {
        let is_of =
            |line: &&serde_json::Value| line["files"].as_array().unwrap().iter().any(|found| found == file);
        let found = listed["streams"].as_array().unwrap().iter().find(is_of).unwrap();
        assert_eq!(found["profile"], "store");
        found["life"].as_str().unwrap().to_owned()
    };
    assert_eq!(life("db/[0-9]*.seg"), "short");
    assert_ne!(life("db/t[0-9]*.tab"), "short");
    assert!(
        bench.ok(&["hints", "explain", "--stack", "s.yaml", "db/77.seg"]).contains("by the profile store")
    );
    assert!(bench.ok(&["hints", "learn", "--trace", "t.trace"]).starts_with("name: learned\n"));
    let refused = |text: &str, out: &str| {
        fs::write(bench.path("u.trace"), text).unwrap();
        bench.fails(&["hints", "learn", "--trace", "u.trace", "--out", out]).1
    };
    assert!(refused(&trace(), "store.yaml").contains("store.yaml can't be written"));
    assert!(refused(&trace(), "my store.yaml").contains("my store.yaml: 'my store' is no name"));
    let broken = trace().replacen("\"op\":\"create\"", "\"op\":\"creates\"", 1);
    let said = refused(&broken, "x.yaml");
    assert!(said.contains("u.trace:3: not a line of a trace"), "{said}");
    let unwritten = trace().lines().take(3).collect::<Vec<_>>().join("\n") + "\n";
    let said = refused(&unwritten, "x.yaml");
    assert!(said.contains("u.trace: no file is written in it"), "{said}");
}

#[test]
fn streams_that_nobody_knows_are_learned_where_that_is_on() {
    let Some(bench) = bench("{ learned: on }") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("m/store")).unwrap();
    let data = pattern(1, 4 * RANGE);
    let write = |name: &str, number: u64| {
        let path = bench.path(&format!("m/store/{name}-{number}.dat"));
        write_ranges(&path, &data);
        path
    };
    write("long", 0);
    for number in 1..8 {
        write("long", number);
        fs::remove_file(write("short", number)).unwrap();
    }
    let of = |name: &str| stream(&bench, &write(name, 100).to_string_lossy()).unwrap();
    let (long, short) = (of("long"), of("short"));
    assert!(long.starts_with("learned-") && short.starts_with("learned-") && long != short, "{long} {short}");
    let listed = bench.json(&["hints", "list", "--mount", "m", "--json"]);
    let streams = listed["streams"].as_array().unwrap();
    let files = |name: &str| streams.iter().find(|stream| stream["name"] == name).unwrap()["files"].clone();
    assert_eq!(files(&long)[0], "store/long-[0-9]*.dat");
    assert_eq!(files(&short)[0], "store/short-[0-9]*.dat");
    assert!(bench.ok(&["hints", "list", "--mount", "m"]).contains("store/long-[0-9]*.dat"));
    let said = bench.ok(&["hints", "explain", "--mount", "m", "store/short-9.dat"]);
    assert!(said.contains(&format!("{short}, learned from")), "{said}");
    let said = bench.ok(&["explain", "m/store/long-1.dat"]);
    assert!(said.contains("stream: learned-"), "{said}");
    // A stream that profiles know is not learned, and none is where learning is off.
    write_ranges(&bench.path("m/store/x.log"), &data);
    assert_eq!(stream(&bench, "m/store/x.log").as_deref(), Some("logs/logs"));
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&stack.replace("learned: on", "learned: off"));
    assert!(bench.ok(&["reload", "m"]).contains("hints: learned differently"));
    assert_eq!(stream(&bench, &write("short", 200).to_string_lossy()), None);
    bench.unmount_clean();
}

#[test]
fn what_was_learned_is_known_after_a_mount_and_damage_is_learned_again() {
    let Some(bench) = bench("{ learned: on }") else { return };
    let mount = ["mount", "s.yaml", "m"];
    bench.ok(&mount);
    fs::create_dir(bench.path("m/store")).unwrap();
    let write = |name: &str, number: u64| {
        let path = bench.path(&format!("m/store/{name}-{number}.dat"));
        write_ranges(&path, &pattern(number, 4 * RANGE));
        path
    };
    let of = |name: &str, number: u64| stream(&bench, &write(name, number).to_string_lossy()).unwrap();
    let learn = || {
        for number in 1..8 {
            write("long", number);
            fs::remove_file(write("short", number)).unwrap();
        }
    };
    let listed = || bench.json(&["hints", "list", "--mount", "m", "--json"])["streams"].clone();
    let names = |listed: &serde_json::Value| -> Vec<(String, String)> {
        let streams = listed.as_array().unwrap().iter();
        let learned = streams.filter(|stream| stream["name"].as_str().unwrap().starts_with("learned-"));
        learned.map(|stream| (stream["name"].to_string(), stream["files"].to_string())).collect()
    };
    learn();
    let before = (names(&listed()), of("short", 100), of("long", 100));
    assert_eq!(before.0.len(), 2, "{before:?}");
    bench.unmount_clean();
    let saved = bench.path("a/.braid/streams");
    assert!(fs::metadata(&saved).unwrap().len() < 1 << 20);
    bench.ok(&mount);
    // The second kind comes first: its stream is not due to the order.
    let after = (names(&listed()), of("long", 101), of("short", 101));
    assert_eq!((&after.0, &after.2, &after.1), (&before.0, &before.1, &before.2));
    bench.unmount_clean();
    for damaged in ["not what it was".as_bytes().to_vec(), [&fs::read(&saved).unwrap()[..], b"x"].concat()] {
        fs::write(&saved, &damaged).unwrap();
        bench.ok(&mount);
        assert!(names(&listed()).is_empty());
        let said = fs::read_to_string(bench.path("log")).unwrap();
        assert!(said.contains("what was learned of streams is of no use"), "{said}");
        fs::remove_file(bench.path("log")).unwrap();
        learn();
        assert_eq!(names(&listed()).len(), 2);
        bench.unmount_clean();
        bench.ok(&mount);
        assert_eq!(names(&listed()).len(), 2, "it was written anew");
        bench.unmount_clean();
    }
}
