//! Modules in libraries whose owner is not trusted: kept apart from all else, and from the
//! rest of the volume when they fail.

use crate::common::{Bench, kill_and_wait, until};
use crate::in_libraries::{ALICE, attribute, bench, odd, refused, stack, untrusted};
use rustix::mount::{MountFlags, mount_remount};
use std::fs;
use std::os::unix::fs::{chown, symlink};

/// A mounted stack with a module that belongs to another user.
fn with_untrusted(flags: &[&str]) -> Option<Bench> {
    let bench = bench("odd:")?;
    // It would succeed if it were trusted.
    untrusted(&bench, &[&["-DODD_EARLY"], flags].concat());
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

/// The processes that a process has started for modules.
fn hosts(parent: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_host = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        field(*pid, "PPid:") == Some(parent.to_string())
            && words.split(|byte| *byte == 0).any(|word| word == b"module-host")
    };
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_host).collect()
}

/// A field of `/proc/PID/status`.
fn field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn host(bench: &Bench) -> i32 {
    let daemon = bench.status()["pid"].as_u64().unwrap() as u32;
    hosts(daemon)[0]
}

/// The line of the module in `braid module list`.
fn listed(bench: &Bench) -> String {
    let listed = bench.json(&["module", "list", "--json"]);
    let odd = listed["modules"].as_array().unwrap().iter().find(|module| module["module"] == "odd").unwrap();
    odd["isolated"].as_str().or(odd["error"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn an_untrusted_module_can_do_nothing_but_compute() {
    let Some(bench) = with_untrusted(&[]) else { return };
    let listed = bench.ok(&["module", "list"]);
    assert!(
        listed.contains(&format!("in a process of its own, since it belongs to user {ALICE}")),
        "{listed}"
    );
    assert_eq!(attribute(&bench, "user.try.compute"), Ok("0".into()));
    fs::write("/tmp/braid-odd", "").unwrap();
    chown("/tmp/braid-odd", Some(ALICE), Some(ALICE)).unwrap();
    const ATTEMPTS: [&str; 14] = [
        "read", "write", "path", "net", "socket", "memory", "trace", "kill", "fork", "thread", "exec",
        "root", "dump", "outlive",
    ];
    for what in ATTEMPTS.into_iter().chain(["library", "remove", "stat"]) {
        assert_eq!(attribute(&bench, &format!("user.try.{what}")).unwrap(), "1", "{what}");
    }
    // Nor can code that runs while the library is loaded.
    for what in ATTEMPTS {
        let errno = attribute(&bench, &format!("user.try.early-{what}")).unwrap();
        // Files are there, but are not opened.
        let expected = if ["read", "write"].contains(&what) { "13" } else { "1" };
        assert_eq!(errno, expected, "{what}");
    }
    fs::remove_file("/tmp/braid-odd").unwrap();
    // It works as a module.
    fs::write(bench.path("m/file"), vec![7; 300_000]).unwrap();
    fs::create_dir(bench.path("m/dir")).unwrap();
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), vec![7; 300_000]);
    let mut names: Vec<_> =
        fs::read_dir(bench.path("m")).unwrap().map(|name| name.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir", "file"]);
    bench.unmount_clean();
}

#[test]
fn an_untrusted_module_that_crashes_or_hangs_is_started_again() {
    let Some(bench) = with_untrusted(&[]) else { return };
    fs::write(bench.path("m/file"), "data").unwrap();
    for what in ["crash", "hang", "chat"] {
        assert_eq!(attribute(&bench, &format!("user.try.{what}")), Err(5));
        assert_eq!(attribute(&bench, "user.try.compute"), Ok("0".into()), "after {what}");
        assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"data");
    }
    // Not for ever.
    until("it is left dead", || {
        let crashed = attribute(&bench, "user.try.crash");
        assert_eq!(crashed, Err(5));
        attribute(&bench, "user.try.compute").is_err()
    });
    assert!(fs::read(bench.path("m/file")).is_err());
    // Another one goes on.
    odd(&bench, &[], "next.so");
    bench.ok(&["module", "upgrade", "odd", "--to", "next.so", "m"]);
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"data");
    bench.write_stack(&stack("noop:"));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"data");
    bench.unmount_clean();
}

#[test]
fn an_untrusted_module_has_no_rights_and_little_room() {
    let Some(bench) = with_untrusted(&[]) else { return };
    let pid = host(&bench);
    let (alice, nogroup) = (format!("{ALICE} ").repeat(4), "65534 ".repeat(4));
    let is = |name| field(pid, name).unwrap();
    assert_eq!(
        (is("Uid:"), is("Gid:"), is("Groups:")),
        (alice.trim().into(), nogroup.trim().into(), "".into())
    );
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(is(set), "0000000000000000", "{set}");
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let limit = |name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((limit("Max open files"), limit("Max locked memory")), ("64".into(), "0".into()));
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "1000");
    bench.unmount_clean();
}

#[test]
fn an_untrusted_module_does_not_outlive_who_started_it() {
    let Some(bench) = bench("odd:") else { return };
    // Its first thread hangs where it can't notice that the other process ends.
    untrusted(&bench, &["-DODD_EARLY", "-DODD_STUCK"]);
    let mut command = bench.start(&["stack", "check", "s.yaml"]);
    let mut started = Vec::new();
    until("it is started", || {
        started = hosts(command.id());
        !started.is_empty()
    });
    // Until its code runs.
    until("it computes", || field(started[0], "Seccomp:") == Some("2".into()));
    kill_and_wait(command.id() as i32);
    command.wait().unwrap();
    until("it is gone", || field(started[0], "State:").is_none_or(|state| state.starts_with('Z')));
}

#[test]
fn an_untrusted_module_that_waits_for_its_own_volume_holds_up_nothing_for_good() {
    let Some(bench) = bench("odd:") else { return };
    let path = format!("-DODD_STAT={:?}", bench.path("m/missing"));
    untrusted(&bench, &["-DODD_EARLY", &path]);
    // Nothing is there yet.
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(attribute(&bench, "user.try.crash"), Err(5));
    // While it is loaded again, it waits for an operation that waits for it.
    assert_eq!(attribute(&bench, "user.try.compute"), Err(5));
    odd(&bench, &[], "next.so");
    until("it is taken out", || {
        bench.braid(&["module", "upgrade", "odd", "--to", "next.so", "m"]).status.success()
    });
    assert_eq!(attribute(&bench, "user.try.compute"), Ok("0".into()));
    bench.unmount_clean();
}

#[test]
fn a_library_that_others_may_exchange_or_made_up_is_not_trusted() {
    let Some(mut bench) = bench("odd:") else { return };
    odd(&bench, &[], "odd.so");
    // The link is another's, all else is root's.
    symlink(bench.path("odd.so"), bench.path("repo/odd.so")).unwrap();
    assert_eq!(listed(&bench), "");
    chown(bench.path("repo"), Some(ALICE), Some(ALICE)).unwrap();
    assert!(listed(&bench).contains(&format!("repo belongs to user {ALICE}")), "{}", listed(&bench));
    bench.ok(&["module", "repo", "remove", "repo"]);

    // The owner of a file is decided by the user who controls the file system.
    bench.make_tmpfs("mounted", c"mode=755");
    bench.ok(&["module", "repo", "add", "mounted"]);
    fs::copy(bench.path("odd.so"), bench.path("mounted/odd.so")).unwrap();
    assert_eq!(listed(&bench), "");
    let again = |flags| {
        mount_remount(bench.path("mounted"), flags, "").unwrap();
        listed(&bench)
    };
    assert!(again(MountFlags::NOSUID).contains("is mounted 'nosuid'"));
    assert!(again(MountFlags::NOEXEC).contains("is mounted 'noexec'"));
    assert_eq!(again(MountFlags::empty()), "");
    bench.ok(&["module", "repo", "remove", "mounted"]);
    bench.write_stack(&stack("noop:"));
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::copy(bench.path("odd.so"), bench.path("m/odd.so")).unwrap();
    bench.ok(&["module", "repo", "add", "m"]);
    assert!(listed(&bench).contains("is FUSE"), "{}", listed(&bench));
    bench.unmount_clean();
}

#[test]
fn an_untrusted_state_that_is_too_long_is_refused_and_the_module_goes_on() {
    let Some(bench) = with_untrusted(&["-DODD_STATE_LEN=17000000"]) else { return };
    let pid = host(&bench);
    odd(&bench, &[], "next.so");
    let said = refused(&bench, &["module", "upgrade", "odd", "--to", "next.so", "m"]);
    assert!(said.contains("nothing is changed") && said.contains("more than 16 MiB"), "{said}");
    assert_eq!((attribute(&bench, "user.try.compute"), host(&bench)), (Ok("0".into()), pid));
    // That does not keep it in the stack.
    bench.write_stack(&stack("noop:"));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    bench.unmount_clean();
}
