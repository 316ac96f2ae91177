//! Modules that come in libraries: found, checked and exchanged in use.

use crate::common::Bench;
use crate::in_libraries::{SDK, attribute, bench, keep, odd, refused, stack};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const KEEP: &str = "keep:\n    suffix: .keep";

#[test]
fn a_module_in_c_is_found_checked_and_exchanged() {
    let Some(bench) = bench(KEEP) else { return };
    assert!(refused(&bench, &["stack", "check", "s.yaml"]).contains("there is no module 'keep'"));
    keep(&bench, "1.0.0", "repo/keep.so");
    assert_eq!(bench.ok(&["stack", "check", "s.yaml"]), "s.yaml: keep over volume of 2 tiers; no problems\n");
    let listed = bench.json(&["module", "list", "--json"]);
    let known =
        listed["modules"].as_array().unwrap().iter().find(|module| module["module"] == "keep").unwrap();
    assert_eq!((known["version"].as_str(), known.get("isolated")), (Some("1.0.0"), None), "{known}");
    assert!(bench.ok(&["stack", "schema"]).contains("#/definitions/keep"));
    bench.write_stack(&stack("keep:\n    sufix: .keep"));
    let said = refused(&bench, &["mount", "s.yaml", "m"]);
    assert!(said.contains("s.yaml:2: stack.keep: write suffix: TEXT"), "{said}");
    bench.write_stack(&stack(KEEP));

    bench.ok(&["mount", "s.yaml", "m"]);
    let (kept, other) = (bench.path("m/a.keep"), bench.path("m/b"));
    fs::write(&kept, "kept").unwrap();
    fs::write(&other, "other").unwrap();
    assert_eq!(fs::remove_file(&kept).unwrap_err().raw_os_error(), Some(1));
    fs::remove_file(&other).unwrap();
    assert_eq!(attribute(&bench, "user.keep"), Ok("1".into()));

    // The file of the one that is in use may go.
    fs::write(bench.path("repo/keep.so"), "no library").unwrap();
    assert!(refused(&bench, &["module", "upgrade", "keep", "m"]).contains("repo/keep.so: "));
    keep(&bench, "2.0.0", "next.so");
    let now = bench.json(&["module", "upgrade", "keep", "--to", "next.so", "--json", "m"]);
    assert_eq!((now["from"].as_str(), now["to"].as_str()), (Some("1.0.0"), Some("2.0.0")));
    assert!(now["paused_ns"].as_u64().unwrap() > 0);
    assert_eq!(fs::remove_file(&kept).unwrap_err().raw_os_error(), Some(1));
    assert_eq!(attribute(&bench, "user.keep"), Ok("2".into()), "what was counted before too");
    keep(&bench, "3.0.0", "repo/keep.so");
    assert!(
        bench
            .ok(&["module", "upgrade", "keep", "m"])
            .starts_with("module keep is version 3.0.0 now, before 2.0.0;")
    );

    // Other settings, another process, the same count.
    bench.write_stack(&stack("keep:\n    suffix: .b"));
    bench.ok(&["reload", "m"]);
    fs::remove_file(&kept).unwrap();
    bench.ok(&["upgrade", "m"]);
    assert_eq!(attribute(&bench, "user.keep"), Ok("2".into()));
    assert!(bench.ok(&["stack", "list"]).contains("keep, volume"));
    bench.unmount_clean();
}

#[test]
fn a_module_in_rust_is_built_from_the_template() {
    let Some(bench) = bench("opens:\n    only: writing") else { return };
    bench.make_dir("rust");
    let copied =
        Command::new("cp").arg("-r").arg(format!("{SDK}/templates/rust/.")).arg(bench.path("rust")).status();
    assert!(copied.unwrap().success());
    let manifest = fs::read_to_string(bench.path("rust/Cargo.toml")).unwrap();
    let sdk = fs::canonicalize(SDK).unwrap();
    fs::write(bench.path("rust/Cargo.toml"), manifest.replace("\"../..\"", &format!("{sdk:?}"))).unwrap();
    // The versions that are there.
    fs::copy(sdk.join("../../Cargo.lock"), bench.path("rust/Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline"])
        .current_dir(bench.path("rust"))
        .env("CARGO_TARGET_DIR", &target)
        .status();
    assert!(built.unwrap().success());
    fs::copy(target.join("debug/libopens.so"), bench.path("repo/opens.so")).unwrap();

    bench.ok(&["mount", "s.yaml", "m"]);
    for number in 0..3 {
        fs::write(bench.path("m/file"), number.to_string()).unwrap();
        fs::read(bench.path("m/file")).unwrap();
    }
    assert_eq!(attribute(&bench, "user.opens"), Ok("3".into()));
    bench.ok(&["module", "upgrade", "opens", "m"]);
    assert_eq!(attribute(&bench, "user.opens"), Ok("3".into()));
    bench.unmount_clean();
    bench.write_stack(&stack("opens:\n    only: thinking"));
    let said = refused(&bench, &["stack", "check", "s.yaml"]);
    assert!(
        said.contains("stack.opens: unknown variant `thinking`, expected `reading` or `writing`"),
        "{said}"
    );
}

#[test]
fn what_can_not_go_on_is_refused_and_the_module_before_goes_on() {
    let Some(bench) = bench("odd:") else { return };
    odd(&bench, &[], "repo/odd.so");
    bench.write_stack(
        "stack: { throttle: { by: uid, operations: 100/s, odd: { volume: { home: fast, tiers: \
         { fast: { dir: a }, slow: { dir: b } } } } } }\nmount: { cache: direct }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::write(bench.path("m/file"), "data").unwrap();
    for (flags, says) in [
        (&["-DODD_ABI=2"][..], "made for version 2 of the interface, and this braid has version 1"),
        (&["-DODD_NAME=\"other\""], "next.so is module other"),
        (&["-DODD_NAME=\"deny\""], "its name, 'deny', is that of a module that is built in"),
        (&["-DODD_NAME=\"Odd\""], "its name is not one of a module"),
        (&["-DODD_CREATE"], "not today"),
        (&["-DODD_STATE=2"], "nothing is changed: module odd: an unknown state"),
        (
            &["-DODD_SLOW"],
            "nothing is changed: module odd: taking over the state of module odd takes more than",
        ),
        (&["-Dbraid_module=nothing"], "it has no function 'braid_module'"),
    ] {
        odd(&bench, flags, "next.so");
        let said = refused(&bench, &["module", "upgrade", "odd", "--to", "next.so", "m"]);
        assert!(said.contains(says), "{said}");
        assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"data");
    }
    let said = refused(&bench, &["module", "upgrade", "odd", "--to", "s.yaml", "m"]);
    assert!(said.contains("s.yaml: "), "{said}");
    // The others went on with the limits that they had.
    let waits = || {
        let status = bench.json(&["status", "--json", "m"]);
        let mut modules = status["modules"].as_array().unwrap().iter();
        let throttle = modules.find(|module| module["module"] == "throttle").unwrap();
        let waits = throttle["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == "waits");
        waits.unwrap()["counter"].as_f64().unwrap()
    };
    let before = waits();
    for _ in 0..200 {
        assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"data");
    }
    assert!(waits() > before, "still limited");
    let said = refused(&bench, &["module", "upgrade", "noop", "m"]);
    assert!(said.contains("module noop is built in"), "{said}");
    let said = refused(&bench, &["module", "upgrade", "keep", "m"]);
    assert!(said.contains("the stack has no module keep"), "{said}");
    bench.unmount_clean();
}

/// The trace of a program that writes, reads, truncates and removes a file.
const TRACE: &str = r#"{"braid-trace":1,"braid":"0.1.0","volume":"00000000000000000000000000000001","range":2097152,"policy":"adaptive","began":1767225600}
{"op":"file","file":7,"path":"file","at":1}
{"op":"create","file":7,"at":1,"took":1}
{"op":"write","file":7,"at":2,"took":1,"length":3000000}
{"op":"sync","file":7,"at":3,"took":1,"size":3000000}
{"op":"read","file":7,"at":4,"took":1,"offset":1000,"length":100000,"size":3000000}
{"op":"truncate","file":7,"at":5,"took":1,"size":5000}
{"op":"read","file":7,"at":6,"took":1,"length":100000,"size":5000}
{"op":"remove","file":7,"at":7}
{"op":"end","at":8,"ops":7,"why":"interrupted"}
"#;

#[test]
fn a_module_alone_carries_out_a_trace() {
    let Some(bench) = bench("odd:") else { return };
    fs::write(bench.path("trace"), TRACE).unwrap();
    keep(&bench, "1", "repo/keep.so");
    let played =
        bench.json(&["module", "debug", "keep", "--trace", "trace", "--settings", "suffix: .keep", "--json"]);
    let operations = played["operations"].as_array().unwrap();
    let count = |name| operations.iter().find(|found| found["operation"] == name).unwrap()["count"].as_u64();
    assert_eq!((count("write"), count("read"), count("unlink")), (Some(3), Some(2), Some(1)), "{played}");
    assert!(operations.iter().all(|found| found["failed"] == 0 && found["with_ns"].as_u64() > Some(0)));

    odd(&bench, &["-DODD_CORRUPT"], "repo/odd.so");
    let said = refused(&bench, &["module", "debug", "odd", "--trace", "trace"]);
    assert!(said.contains("file: the byte at 1000 is not what was written"), "{said}");
    let said =
        refused(&bench, &["module", "debug", "deny", "--trace", "trace", "--settings", "paths: ['*']"]);
    assert!(said.contains("create: the module 'deny' keeps this path as it is"), "{said}");
    let said = refused(&bench, &["module", "debug", "keep", "--trace", "trace", "--settings", "[ a ]"]);
    assert!(said.contains("--settings: they are not keys with values"), "{said}");
}

#[test]
fn repositories_are_added_and_removed() {
    let Some(bench) = Bench::bare(&["one", "two"]) else { return };
    assert!(refused(&bench, &["module", "repo", "add", "three"]).contains("three: "));
    bench.ok(&["module", "repo", "add", "one"]);
    assert!(refused(&bench, &["module", "repo", "add", "one"]).contains("already"));
    fs::write(bench.path("two/broken.so"), "").unwrap();
    bench.ok(&["module", "repo", "add", "two"]);
    let listed = bench.json(&["module", "repo", "list", "--json"]);
    let own = |name| bench.path(name).canonicalize().unwrap().to_string_lossy().into_owned();
    let repositories: Vec<&str> =
        listed["repositories"].as_array().unwrap().iter().map(|dir| dir.as_str().unwrap()).collect();
    assert_eq!(repositories[..2], [own("one"), own("two")]);
    let modules = bench.ok(&["module", "list"]);
    assert!(modules.contains("broken") && modules.contains("checksum"), "{modules}");
    bench.ok(&["module", "repo", "remove", "one"]);
    assert!(!bench.ok(&["module", "repo", "list"]).contains(&own("one")));
    assert!(refused(&bench, &["module", "repo", "remove", "one"]).contains("not looked for there"));
}

#[test]
fn modules_are_exchanged_under_applications() {
    // Those of frames stay.
    for above in ["", "provenance: { checksum: { ", "provenance: { "] {
        let below = if above == "provenance: { " { "checksum: { " } else { "" };
        let Some(bench) = bench(KEEP) else { return };
        let ends = " }".repeat(above.matches('{').count() + below.matches('{').count());
        bench.write_stack(&format!(
            "stack: {{ {above}keep: {{ suffix: .keep, {below}volume: {{ home: fast, range: 64KiB, tiers: \
             {{ fast: {{ dir: a }}, slow: {{ dir: b }} }} }} }}{ends} }}\n"
        ));
        exchanged_under_applications(&bench);
    }
}

fn exchanged_under_applications(bench: &Bench) {
    keep(bench, "1", "repo/keep.so");
    keep(bench, "2", "two.so");
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::write(bench.path("m/a.keep"), "").unwrap();
    let over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker: u8| {
                let over = &over;
                scope.spawn(move || {
                    let mut rounds = 0_u64;
                    while !over.load(Ordering::Relaxed) {
                        let path = bench.path(&format!("m/{worker}-{}", rounds % 5));
                        let data = vec![worker ^ rounds as u8; 200_000];
                        let file =
                            File::options().read(true).write(true).create(true).truncate(true).open(&path);
                        let file = file.unwrap();
                        file.write_all_at(&data, 7).unwrap();
                        file.sync_data().unwrap();
                        let mut read = vec![0; data.len()];
                        file.read_exact_at(&mut read, 7).unwrap();
                        assert!(read == data);
                        assert!(fs::read_dir(bench.path("m")).unwrap().count() > 1);
                        fs::rename(&path, path.with_extension("moved")).unwrap();
                        fs::remove_file(path.with_extension("moved")).unwrap();
                        assert!(fs::remove_file(bench.path("m/a.keep")).is_err());
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        for turn in 0..40 {
            let to = if turn % 2 == 0 { "two.so" } else { "repo/keep.so" };
            bench.ok(&["module", "upgrade", "keep", "--to", to, "m"]);
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>()
    });
    assert!(rounds > 0);
    assert_eq!(attribute(bench, "user.keep"), Ok(rounds.to_string()), "none was lost, none counted twice");
    bench.unmount_clean();
}

#[test]
fn a_library_is_in_force_as_long_as_a_stack_has_it() {
    let Some(bench) = bench("noop:") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.write_stack(&stack("odd:"));
    let replaced = |version: &str, flags: &[&str]| {
        odd(&bench, &[&[version], flags].concat(), "next.so");
        fs::rename(bench.path("next.so"), bench.path("repo/odd.so")).unwrap();
    };
    let in_force = || {
        let now = bench.json(&["module", "upgrade", "odd", "--json", "m"]);
        now["from"].as_str().unwrap().to_owned()
    };
    // A library that was only looked at, or could not be used, is not kept.
    replaced("-DODD_VERSION=\"1\"", &[]);
    bench.ok(&["stack", "modify", "--dry-run", "m", "s.yaml"]);
    replaced("-DODD_VERSION=\"2\"", &["-DODD_CREATE"]);
    assert!(refused(&bench, &["stack", "modify", "m", "s.yaml"]).contains("not today"));
    replaced("-DODD_VERSION=\"3\"", &[]);
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    replaced("-DODD_VERSION=\"4\"", &[]);
    assert_eq!(in_force(), "3");
    assert_eq!(in_force(), "4");
    // Nor is one that no stack has any more, even if it came by an upgrade.
    bench.write_stack(&stack("noop:"));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    replaced("-DODD_VERSION=\"5\"", &[]);
    bench.write_stack(&stack("odd:"));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    assert_eq!(in_force(), "5");
    bench.unmount_clean();
}

#[test]
fn a_module_may_end_without_its_state() {
    let Some(bench) = bench("odd:") else { return };
    odd(&bench, &["-DODD_NO_STATE"], "repo/odd.so");
    bench.ok(&["mount", "s.yaml", "m"]);
    odd(&bench, &[], "next.so");
    let said = refused(&bench, &["module", "upgrade", "odd", "--to", "next.so", "m"]);
    assert!(said.contains("nothing is changed"), "{said}");
    bench.write_stack(&stack("noop:"));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    bench.unmount_clean();
}

#[test]
fn a_request_that_crashes_the_daemon_fails_and_the_mount_stays() {
    let Some(bench) = bench("odd:") else { return };
    odd(&bench, &[], "repo/odd.so");
    bench.ok(&["mount", "--restart", "s.yaml", "m"]);
    let file = File::create(bench.path("m/file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let before = bench.status()["pid"].clone();
    // It is in the daemon itself, as its owner is trusted.
    assert_eq!(attribute(&bench, "user.try.crash"), Err(5));
    let status = bench.status();
    assert_ne!(status["pid"], before);
    // The first one may have served for a while.
    assert!(matches!(status["restarts"]["count"].as_u64(), Some(3 | 4)), "{status}");
    assert_eq!(status["restarts"]["how"], "signal 11");
    file.write_all_at(b"after ", 0).unwrap();
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"after ");
    drop(file);
    bench.unmount_clean();
}
