//! Adding and removing tiers on a mounted volume under load, through the
//! `braid` command; the stack file follows. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, is_empty, is_well, pattern, stack, until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

const RANGE: u64 = crate::common::RANGE as u64;

/// Keeps writing files, reading them back and comparing.
struct Load {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(dir: PathBuf) -> Self {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, turn) = (Arc::clone(&stop), Arc::clone(&turns));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let number = turn.load(Ordering::SeqCst);
                write_and_compare(&dir.join(format!("load{}", number % 5)), number);
                turn.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { stop, turns, thread }
    }

    /// Waits until the load has continued for a while.
    fn goes_on(&self) {
        let from = self.turns.load(Ordering::SeqCst);
        until("the load goes on", || {
            assert!(!self.thread.is_finished(), "the load ended");
            self.turns.load(Ordering::SeqCst) >= from + 8
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// Every third time the file is created again, otherwise overwritten.
fn write_and_compare(path: &Path, number: u64) {
    if number.is_multiple_of(3) {
        let _ = fs::remove_file(path);
    }
    let data = pattern(number, 12 * RANGE as usize + 77);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    for (at, part) in data.chunks(RANGE as usize / 2).enumerate() {
        crate::common::write_back(&file, part, at as u64 * RANGE / 2);
    }
    if number.is_multiple_of(2) {
        file.sync_all().unwrap();
    }
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data, "{}: other bytes than were written", path.display());
}

#[test]
fn tiers_are_added_set_and_removed_under_load_and_the_stack_file_follows() {
    let Some(bench) = Bench::new() else { return };
    let dir = bench.path("c");
    fs::create_dir(&dir).unwrap();
    let first = stack(&bench).replace("stack:\n", "# By hand.\nstack:\n");
    fs::write(bench.path("s.yaml"), &first).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    crate::common::write_ranges(&bench.path("m/kept"), &pattern(1, 30 * RANGE as usize));
    let load = Load::start(bench.path("m"));
    load.goes_on();

    let said = bench.ok(&["tier", "add", "new=c,weight=9", "m"]);
    assert!(said.contains("takes new data") && said.contains("s.yaml says so"), "{said}");
    let line = format!("        new: {{ dir: {}, weight: 9 }}\n", dir.canonicalize().unwrap().display());
    assert_eq!(stack(&bench), format!("{first}{line}"));
    load.goes_on();
    assert!(bench.tier("new")["ranges"].as_u64().unwrap() > 0);
    assert_eq!(bench.tier("new")["weight"], 9.0);

    bench.ok(&["tier", "set", "new", "weight=2", "reserve=1MiB", "./m"]);
    let set = line.replace("weight: 9", "weight: 2, reserve: 1MiB");
    assert_eq!(stack(&bench), format!("{first}{set}"));
    assert_eq!((&bench.tier("new")["weight"], &bench.tier("new")["reserve"]), (&2.0.into(), &1048576.into()));
    load.goes_on();

    let (status, said) = bench.fails(&["tier", "remove", "new", "--no-evacuate", "m"]);
    assert!(status == 1 && said.contains("ranges") && said.contains("braid tier evacuate new"), "{said}");
    // Writes empty it: nothing new goes there.
    bench.ok(&["tier", "set", "new", "readonly", "weight=auto", "reserve=default", "./m"]);
    assert_eq!(stack(&bench), format!("{first}{}", line.replace("weight: 9", "readonly: true")));
    assert_eq!(
        (&bench.tier("new")["state"], &bench.tier("new")["readonly"]),
        (&"read-only".into(), &true.into())
    );
    load.goes_on();
    load.goes_on();
    assert_eq!(fs::read(bench.path("m/kept")).unwrap(), pattern(1, 30 * RANGE as usize));
    let said = bench.ok(&["tier", "remove", "new", "--no-evacuate", "m"]);
    assert!(said.contains("can be used anew") && said.contains("s.yaml says so"), "{said}");
    assert_eq!(stack(&bench), first);
    assert!(is_empty(&dir));
    load.goes_on();
    // Once more, with its old name and directory; its data is moved away before
    // it is removed.
    bench.ok(&["tier", "add", "new=c,weight=9", "m"]);
    load.goes_on();
    let said = bench.ok(&["tier", "remove", "new", "m"]);
    assert!(said.contains("not part of the volume any more"), "{said}");
    assert_eq!(stack(&bench), first);
    assert!(is_empty(&dir));
    load.goes_on();
    // Also across a kill.
    bench.ok(&["tier", "add", "new=c", "m"]);
    load.goes_on();
    load.end();
    let files: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(bench.path("m"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    assert_eq!(files.len(), 6);
    bench.kill();
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.tier("new")["state"], "online");
    files.iter().for_each(|(path, data)| assert!(fs::read(path).unwrap() == *data, "{}", path.display()));
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn what_is_refused_says_why_and_changes_nothing() {
    let Some(bench) = Bench::new() else { return };
    for name in ["c", "d"] {
        fs::create_dir(bench.path(name)).unwrap();
    }
    bench.ok(&["mount", "--tier", "x=c", "--tier", "y=d", "m"]);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    write_and_compare(&bench.path("m/f"), 1);
    for name in ["e", "b/in"] {
        bench.make_dir(name);
    }
    let before = stack(&bench);
    for (words, expected) in [
        (&["tier", "add", "slow=e", "m"][..], "there is a tier 'slow' already"),
        (&["tier", "add", "Bad!=e", "m"], "can't be the name of a tier"),
        (&["tier", "add", "new=nowhere", "m"], "No such file"),
        (&["tier", "add", "new=b", "m"], "tier 'slow' is at"),
        (&["tier", "add", "new=m", "m"], "in a mounted Braid file system"),
        (&["tier", "add", "new=d", "m"], "is a tier of another volume"),
        (&["tier", "add", "new=b/in", "m"], "tier 'slow' is at"),
        (&["tier", "add", "new=.", "m"], "one would be inside the other"),
        (&["tier", "add", "new=s.yaml", "m"], "is not a directory"),
        (&["tier", "add", "new=e,wieght=3", "m"], "did you mean 'weight'?"),
        (&["tier", "add", "new=e,weight=-3", "m"], "expected a positive number"),
        (&["tier", "set", "slwo", "weight=3", "./m"], "did you mean 'slow'?"),
        (&["tier", "set", "slow", "weigth=3", "./m"], "did you mean 'weight'?"),
        (&["tier", "set", "slow", "weight=much", "./m"], "expected a positive number"),
        (&["tier", "set", "slow", "weight=0", "./m"], "found '0', expected a positive number"),
        (&["tier", "set", "slow", "weight=inf", "./m"], "found 'inf', expected a positive number"),
        (&["tier", "set", "slow", "reserve=5", "weight=-1", "./m"], "found '-1', expected a positive number"),
        (&["tier", "set", "slow", "reserve=lots", "./m"], "expected a percentage or a size"),
        (&["tier", "set", "slow", "reserve=-1%", "./m"], "found '-1%', expected a percentage or a size"),
        (&["tier", "set", "slow", "reserve=100%", "./m"], "leaves nothing to use"),
        (&["tier", "set", "slow", "readonly=maybe", "./m"], "expected yes or no"),
        (&["tier", "set", "fast", "readonly", "./m"], "can't be read only"),
        (&["tier", "remove", "slow", "--no-evacuate", "m"], "is not empty: "),
        (&["tier", "remove", "slow", "--no-evacuate", "m"], "without --no-evacuate"),
        (&["tier", "remove", "fast", "m"], "the home tier"),
        (&["tier", "remove", "fats", "m"], "did you mean 'fast'?"),
        (&["tier", "replace", "slow", "e", "m"], "only a tier that is failing"),
        (&["tier", "list", "e"], "is not in a Braid file system"),
    ] {
        let (status, said) = bench.fails(words);
        assert!(status == 1 && said.contains(expected), "{words:?}: {said}");
        assert!(!said.contains("os error") || expected == "No such file", "{words:?}: {said}");
    }
    for words in [
        &["tier", "add", "e", "m"][..],
        &["tier", "set", "slow", "./m"],
        &["tier", "set", "slow", "weight", "./m"],
        &["tier", "set", "slow", "weight=1", "weight=2", "./m"],
        &["tier", "set", "slow"],
        &["tier", "fly"],
        &["stack"],
    ] {
        assert_eq!(bench.fails(words).0, 2, "{words:?}");
    }
    // In use by another volume.
    for name in ["m2", "m3"] {
        bench.make_dir(name);
    }
    bench.ok(&["mount", "--tier", "x=c", "--tier", "y=d", "m2"]);
    let said = [
        bench.fails(&["tier", "add", "new=c", "m"]),
        bench.fails(&["tier", "add", "new=d", "m"]),
        bench.fails(&["mount", "--tier", "z=e", "--tier", "slow=b", "m3"]),
    ];
    bench.ok(&["umount", "m2"]);
    for (status, said) in said {
        let expected = "the directory is a tier of a volume that is mounted ";
        assert!(status == 1 && said.contains(expected) && said.contains("\n  help: "), "{said}");
    }
    assert_eq!(stack(&bench), before);
    assert!(is_empty(&bench.path("e")));
    assert_eq!(bench.json(&["tier", "list", "m", "--json"])["tiers"].as_array().unwrap().len(), 2);
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn a_stack_file_that_somebody_changed_is_not_written_over() {
    let Some(bench) = Bench::new() else { return };
    fs::create_dir(bench.path("c")).unwrap();
    let first = stack(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    // Not the tiers: their writes stay.
    let noted = format!("# a note\n{first}mount: {{ threads: 9 }}\n");
    fs::write(bench.path("s.yaml"), &noted).unwrap();
    let set = bench.json(&["tier", "set", "slow", "weight=7", "./m", "--json"]);
    assert_eq!((&set["tier"], &set["saved"]["written"]), (&"slow".into(), &true.into()));
    assert_eq!(stack(&bench), noted.replace("dir: b, weight: 1", "dir: b, weight: 7"));
    // The change of tiers: the message says what to do, and the change stays in
    // force.
    let mine = noted.replace("dir: a", "dir: ./a");
    fs::write(bench.path("s.yaml"), &mine).unwrap();
    let said = bench.ok(&["tier", "add", "new=c", "m"]);
    assert!(said.contains("was not changed: its tiers were changed since the mount"), "{said}");
    assert!(said.contains("  add  new: { dir: "), "{said}");
    assert_eq!(stack(&bench), mine);
    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains("new:") && dump.contains("weight: 7"), "{dump}");
    // At the next mount, the volume's own table is authoritative.
    bench.ok(&["umount", "m"]);
    let (_, said) = bench.fails(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains("has a tier `new` that was not given") && said.contains("new: { dir: DIRECTORY }"),
        "{said}"
    );
    fs::write(bench.path("dump.yaml"), &dump).unwrap();
    bench.ok(&["mount", "dump.yaml", "m"]);
    assert_eq!(bench.ok(&["stack", "dump", "m"]), dump);
    // The reverse: a removed tier that is still configured.
    bench.ok(&["tier", "remove", "new", "m"]);
    bench.ok(&["umount", "m"]);
    fs::write(bench.path("dump.yaml"), &dump).unwrap();
    bench.ok(&["mount", "dump.yaml", "m"]);
    let said = bench.ok(&["status", "m"]);
    assert!(said.contains("new: left out of the mount: it was removed from the volume"), "{said}");
    assert_eq!(bench.tier("new"), serde_json::Value::Null);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_dump_of_what_is_mounted_makes_the_same_mount() {
    let Some(bench) = Bench::new() else { return };
    fs::create_dir(bench.path("c")).unwrap();
    for words in [
        &["mount", "s.yaml", "m", "--threads", "7", "--cache", "direct"][..],
        &[
            "mount",
            "--tier",
            "fast=a,weight=3",
            "--tier",
            "slow=b",
            "--policy",
            "size:small=1MiB,large=spread",
            "--range",
            "64KiB",
            "m",
        ],
    ] {
        bench.ok(words);
        let said = bench.ok(&["tier", "add", "new=c,reserve=2%", "m"]);
        let by_flags = words[1] == "--tier";
        assert_eq!(
            said.contains("was mounted by flags") && said.contains("add  new: { dir: "),
            by_flags,
            "{said}"
        );
        bench.ok(&["tier", "set", "slow", "weight=5", "./m"]);
        bench.ok(&["drill", "new", "probe:EIO,once", "./m"]);
        let dump = bench.ok(&["stack", "dump", "m"]);
        for part in ["weight: 5", "reserve: 2%", "probe:EIO", "range: 64KiB", "cache: "] {
            assert!(dump.contains(part), "{part}: {dump}");
        }
        bench.ok(&["umount", "m"]);
        fs::write(bench.path("dump.yaml"), &dump).unwrap();
        bench.ok(&["mount", "dump.yaml", "m"]);
        assert_eq!(bench.ok(&["stack", "dump", "m"]), dump);
        bench.ok(&["tier", "remove", "new", "m"]);
        bench.ok(&["umount", "m"]);
    }
}

#[test]
fn a_daemon_that_is_killed_while_tiers_come_and_go_leaves_a_whole_volume() {
    let Some(bench) = Bench::new() else { return };
    fs::create_dir(bench.path("c")).unwrap();
    let data = pattern(3, 20 * RANGE as usize);
    for turn in 0..6 {
        bench.ok(&["mount", "s.yaml", "m"]);
        fs::write(bench.path("m/f"), &data).unwrap();
        File::open(bench.path("m/f")).unwrap().sync_all().unwrap();
        let known = !bench.tier("new").is_null();
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"))
            .current_dir(bench.path("."))
            .args(if known {
                ["tier", "set", "new", "readonly", "./m"]
            } else {
                ["tier", "add", "new=c", "m", "--json"]
            })
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut command = command.unwrap();
        // Sometimes before the end, sometimes after.
        if turn % 2 == 0 {
            command.wait().unwrap();
        }
        bench.kill();
        let _ = command.wait();
        // The table is authoritative. If the file could not follow, the message
        // says what to do.
        let mounted = bench.braid(&["mount", "s.yaml", "m"]);
        if !mounted.status.success() {
            let said = String::from_utf8(mounted.stderr).unwrap();
            assert!(said.contains("has a tier `new` that was not given"), "{said}");
            let added = stack(&bench) + "        new: { dir: c }\n";
            fs::write(bench.path("s.yaml"), added).unwrap();
            bench.ok(&["mount", "s.yaml", "m"]);
        }
        assert!(fs::read(bench.path("m/f")).unwrap() == data);
        bench.ok(&["umount", "m"]);
        assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let Some(mut bench) = Bench::bare(&["a", "b", "m"]) else { return };
    bench.make_tmpfs("small", c"size=1m");
    bench.write_stack(
        "stack: { volume: { home: fast, range: 64KiB, policy: { size: { small: 64KiB, large: slow } },\n  \
         rules: [ { when: 'path == \"ruled\"', tier: small } ], tiers: {\n    \
         fast: { dir: a, reserve: 1000TiB },\n    slow: { dir: b },\n    small: { dir: small, reserve: 512KiB } } } }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let data = pattern(9, 30 * RANGE as usize);
    crate::common::write_ranges(&bench.path("m/f"), &data);
    let before = (stack(&bench), bench.json(&["explain", "m/f", "--json"]));
    for (words, says) in [
        (
            &["tier", "evacuate", "slow", "m"][..],
            "braid: tier slow holds 1.9 MiB, and the other tiers have room for ROOM bytes (fast 0 bytes, small ROOM bytes): make room, or add a tier",
        ),
        (
            &["tier", "remove", "slow", "m"],
            "braid: the policy names tier slow\n  help: change the policy in the stack file",
        ),
        (&["tier", "remove", "small", "m"], "braid: a rule of the policy names tier small\n  help: change"),
        (
            &["move", "m/f", "--to", "small"],
            "braid: tier small has room for ROOM bytes, and f has 1.9 MiB that are not on it",
        ),
    ] {
        let said = bench.refused(words);
        // Half of a megabyte is kept free.
        let room = said.split_once("room for ").map_or("", |(_, rest)| rest.split(' ').next().unwrap());
        let is_room = room.is_empty() || (1..512 << 10).contains(&room.parse::<u64>().unwrap());
        assert!(is_room && said.contains(&says.replace("ROOM", room)), "{words:?}: {said}");
    }
    assert_eq!((stack(&bench), bench.json(&["explain", "m/f", "--json"])), before);
    bench.unmount_clean();

    // Without a policy that names it, only a lack of room keeps it from
    // leaving.
    let text = stack(&bench).replace("{ size: { small: 64KiB, large: slow } }", "{ weighted: { } }");
    bench.write_stack(&text);
    bench.ok(&["mount", "s.yaml", "m"]);
    let said = bench.refused(&["tier", "remove", "slow", "m"]);
    assert!(said.contains("tier slow holds 1.9 MiB, and the other tiers have room for "), "{said}");
    assert_eq!(stack(&bench), text);
    assert!(bench.json(&["job", "list", "--json"])["jobs"].as_array().unwrap().is_empty());
    // Nor has home, since a new one needs room for all of it.
    fs::write(bench.path("m/plain"), "x").unwrap();
    let home: u64 = 3 << 20;
    fs::write(bench.path("a/beside"), pattern(2, home as usize)).unwrap();
    bench.make_tmpfs("tiny", c"size=1m");
    let (status, said) = bench.fails(&["tier", "replace", "fast", "tiny", "m"]);
    let numbers = "the new one room for ";
    assert!(status == 1 && said.contains("the home tier has 3") && said.contains(numbers), "{said}");
    assert!(
        said.contains("help: name a directory on a file system with more room; nothing was changed"),
        "{said}"
    );
    assert!(is_empty(&bench.path("tiny")) && fs::read(bench.path("m/f")).unwrap() == data);
    assert_eq!(stack(&bench), text);
    bench.unmount_clean();
}

#[test]
fn a_tier_that_fails_is_told_of_left_out_and_replaced() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--nonempty"]);
    let data = pattern(6, 8 * RANGE as usize);
    crate::common::write_ranges(&bench.path("m/f"), &data);
    assert!(bench.on("m/f", "slow") > 0);
    bench.ok(&["umount", "m"]);
    // Lost: the message says how to mount without it, and that works.
    fs::rename(bench.path("b"), bench.path("away")).unwrap();
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("there is no directory") && said.contains("--without slow"), "{said}");
    bench.ok(&["mount", "s.yaml", "m", "--without", "slow"]);
    assert_eq!(bench.tier("slow")["state"], "absent");
    let affected = bench.json(&["status", "m", "--affected", "--json"]);
    assert_eq!(affected["path"], "f");
    assert!(fs::read(bench.path("m/f")).is_err());
    for words in [&["tier", "evacuate", "slow", "m"][..], &["move", "m/f", "--to", "slow"]] {
        let said = bench.refused(words);
        assert!(said.contains("tier slow is absent"), "{words:?}: {said}");
    }
    // Only its own data is lost.
    bench.make_dir("new");
    let said = bench.ok(&["tier", "replace", "slow", "new", "m"]);
    assert!(said.contains("tier slow is at") && said.contains("s.yaml says so"), "{said}");
    assert!(stack(&bench).contains("/new, weight: 1"), "{}", stack(&bench));
    let listed = bench.ok(&["tier", "list", "m"]);
    assert!(listed.contains("fast*") && listed.contains("/new") && listed.contains("online"), "{listed}");
    crate::common::write_ranges(&bench.path("m/g"), &data);
    assert!(bench.on("m/g", "slow") > 0 && fs::read(bench.path("m/g")).unwrap() == data);
    fs::remove_file(bench.path("m/f")).unwrap();
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/g")).unwrap() == data);
    bench.ok(&["umount", "m"]);
    let files = bench.ok(&["fsck", "--tier", "slow=new", "--tier", "fast=a", "--home", "fast", "--verbose"]);
    assert!(files.ends_with("no problems\n"), "{files}");
    assert!(bench.ok(&["version"]).starts_with("braid "));
    bench.ok(&["mount", "--tier", "slow=new", "--tier", "fast=a", "--home", "fast", "m"]);
    assert_eq!(bench.tier("fast")["home"], true);
    bench.ok(&["umount", "m"]);
}
