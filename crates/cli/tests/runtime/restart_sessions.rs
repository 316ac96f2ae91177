//! The process that serves a mount is killed while applications have sessions with it, and
//! another one goes on with them (`braid mount --restart --runtime`). Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, kill_and_wait, pattern, until};
use crate::crashing::{pid, serves_for_a_while};
use crate::seen::{BOTH, READ, Seen, errno, me, socket};
use braid_contract::{
    Attr, DirEntry, DirSink, Errno, HandleId, InodeId, PutOptions, RenameMode, ScanRange, SetAttr,
    WriteFlags, XattrMode,
};
use braid_runtime::{Geometry, Options};
use braid_sys::{SharedWords, pass_descriptors, receive_descriptors};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn mounted() -> Option<Bench> {
    let bench = Bench::new()?;
    bench.ok(&["mount", "--restart", "--runtime=workers=3", "s.yaml", "m"]);
    Some(bench)
}

/// Kills the process that serves the mount; another one does then.
fn crash(bench: &Bench) {
    let before = pid(bench);
    kill_and_wait(before);
    assert_ne!(pid(bench), before);
}

fn sessions(bench: &Bench) -> usize {
    bench.json(&["runtime", "m", "--json"])["sessions"].as_array().unwrap().len()
}

/// Names in a directory.
struct Names(Vec<String>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push(entry.name.to_str().unwrap().to_owned());
        true
    }
}

/// A directory of a session, for operations that would go wrong if done twice, or not at all.
struct Deeds<'a> {
    seen: &'a Seen,
    dir: InodeId,
}

impl<'a> Deeds<'a> {
    fn new(seen: &'a Seen, name: &str) -> Self {
        let made = seen.fs.mkdir(&me(), seen.root, OsStr::new(name), 0o755, 0).unwrap();
        Self { seen, dir: made.attr.ino }
    }

    fn create(&self, name: &str) -> (InodeId, HandleId) {
        let name = OsStr::new(name);
        let (entry, opened) =
            self.seen.fs.create(&me(), self.dir, name, 0o644, 0, true, BOTH.into()).unwrap();
        (entry.attr.ino, opened.handle)
    }

    fn write(&self, handle: HandleId, offset: u64, data: &[u8]) {
        let written = self.seen.fs.write(&me(), handle, offset, data, WriteFlags::default()).unwrap();
        assert_eq!(written, data.len());
    }

    fn read(&self, handle: HandleId, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        let read = self.seen.fs.read(&me(), handle, 0, &mut data, false).unwrap();
        data.truncate(read);
        data
    }

    fn attr(&self, name: &str) -> Attr {
        let entry = self.seen.fs.lookup(&me(), self.dir, OsStr::new(name)).unwrap();
        self.seen.fs.forget(entry.attr.ino, 1);
        entry.attr
    }

    fn rename(&self, name: &str, new_name: &str, mode: RenameMode) {
        let (name, new_name) = (OsStr::new(name), OsStr::new(new_name));
        self.seen.fs.rename(&me(), self.dir, name, self.dir, new_name, mode).unwrap();
    }

    fn unlink(&self, name: &str) {
        self.seen.fs.unlink(&me(), self.dir, OsStr::new(name)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let handle = self.seen.fs.open_dir(&me(), self.dir).unwrap();
        let mut names = Names(Vec::new());
        self.seen.fs.read_dir(&me(), handle, 0, false, &mut names).unwrap();
        self.seen.fs.release_dir(handle).unwrap();
        names.0.retain(|name| !name.starts_with('.'));
        names.0.sort();
        names.0
    }

    /// Rounds until `stop`; each adds a line to the log.
    fn run(&self, stop: &AtomicBool, done: &AtomicU64) {
        let fs = &self.seen.fs;
        let (log, log_handle) = self.create("log");
        let (one, one_handle) = self.create("one");
        let (other, other_handle) = self.create("other");
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            self.write(log_handle, fs.getattr(&me(), log, None).unwrap().size, &line(round));
            self.rename("one", "other", RenameMode::Exchange);
            round += 1;
            assert_eq!(self.attr("one").ino, if round % 2 == 1 { other } else { one }, "exchanged twice");
            fs.link(&me(), log, self.dir, OsStr::new("link")).unwrap();
            assert_eq!(self.attr("log").nlink, 2);
            fs.forget(log, 1);
            self.rename("link", "renamed", RenameMode::NoReplace);
            self.unlink("renamed");
            let made = fs.symlink(&me(), self.dir, OsStr::new("symlink"), OsStr::new("log")).unwrap();
            fs.forget(made.attr.ino, 1);
            self.unlink("symlink");
            let made = fs.mkdir(&me(), self.dir, OsStr::new("sub"), 0o755, 0).unwrap();
            assert_eq!(self.names(), ["log", "one", "other", "sub"]);
            fs.rmdir(&me(), self.dir, OsStr::new("sub")).unwrap();
            fs.forget(made.attr.ino, 1);
            let attribute = OsStr::new("user.round");
            fs.setxattr(&me(), one, attribute, b"x", XattrMode::Create).unwrap();
            fs.removexattr(&me(), one, attribute).unwrap();
            self.removed(round);
            self.unnamed(round);
            done.fetch_add(1, Ordering::Relaxed);
        }
        let lines: Vec<u8> = (0..round).flat_map(line).collect();
        assert!(self.read(log_handle, lines.len() + 1) == lines, "lost or twice");
        for (ino, handle) in [(log, log_handle), (one, one_handle), (other, other_handle)] {
            fs.release(handle).unwrap();
            fs.forget(ino, 1);
        }
        assert_eq!(self.names(), ["log", "one", "other"]);
    }

    /// A file that is removed while it is open.
    fn removed(&self, round: u64) {
        let fs = &self.seen.fs;
        let data = pattern(round, 9000);
        let (ino, handle) = self.create("removed");
        let changes = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        fs.setattr(&me(), ino, Some(handle), &changes).unwrap();
        self.unlink("removed");
        self.write(handle, 0, &data);
        fs.setattr(&me(), ino, Some(handle), &SetAttr { size: Some(8000), ..SetAttr::default() }).unwrap();
        fs.fsync(&me(), handle, true).unwrap();
        assert!(self.read(handle, 9000) == data[..8000]);
        let attr = fs.getattr(&me(), ino, Some(handle)).unwrap();
        assert_eq!((attr.mode & 0o777, attr.nlink), (0o640, 0));
        fs.release(handle).unwrap();
        fs.forget(ino, 1);
    }

    /// A file that gets its name later.
    fn unnamed(&self, round: u64) {
        let fs = &self.seen.fs;
        let (entry, opened) = fs.tmpfile(&me(), self.dir, 0o600, 0, BOTH.into()).unwrap();
        let data = pattern(round, 100);
        self.write(opened.handle, 0, &data);
        fs.link(&me(), entry.attr.ino, self.dir, OsStr::new("named")).unwrap();
        fs.release(opened.handle).unwrap();
        fs.forget(entry.attr.ino, 2);
        let ino = self.attr("named").ino;
        let entry = fs.lookup(&me(), self.dir, OsStr::new("named")).unwrap();
        let handle = fs.open(&me(), ino, READ.into()).unwrap().handle;
        assert!(self.read(handle, 101) == data);
        fs.release(handle).unwrap();
        fs.forget(entry.attr.ino, 1);
        self.unlink("named");
    }
}

fn line(number: u64) -> Vec<u8> {
    format!("{number:08}\n").into_bytes()
}

fn applications_see_only_a_pause(options: Options) {
    let Some(bench) = mounted() else { return };
    applications_outlive_crashes(&bench, options);
    bench.ok(&["fsck", "m"]);
    bench.unmount_clean();
}

pub(crate) fn applications_outlive_crashes(bench: &Bench, options: Options) {
    let (seen, idle) = (Seen::with(bench, "m", options).unwrap(), Seen::of(bench, "m"));
    let data = pattern(1, 3 * RANGE);
    idle.write("gone", &data).unwrap();
    let gone = idle.look("gone").unwrap();
    let handle = idle.fs.open(&me(), gone, BOTH.into()).unwrap().handle;
    idle.fs.unlink(&me(), idle.root, OsStr::new("gone")).unwrap();
    let deeds = ["a", "b", "c"].map(|name| Deeds::new(&seen, name));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let works = deeds.each_ref().map(|deeds| scope.spawn(|| deeds.run(&stop, &done)));
        let crashes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for turn in 0..8 {
                serves_for_a_while(bench);
                if turn == 4 {
                    bench.ok(&["upgrade", "m"]);
                }
                crash(bench);
                if turn == 2 {
                    // Right after the other.
                    crash(bench);
                }
                let before = done.load(Ordering::Relaxed);
                until("applications go on", || done.load(Ordering::Relaxed) > before + 5);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        works.into_iter().for_each(|work| work.join().unwrap());
        crashes.unwrap();
    });
    assert_eq!(sessions(bench), 2);
    let mut found = vec![0; data.len()];
    assert_eq!(idle.fs.read(&me(), handle, 0, &mut found, false).unwrap(), data.len());
    assert!(found == data);
    // One begins anew at the same socket, and all ends with its session.
    let other = Seen::of(bench, "m");
    assert!(other.look("a").is_ok());
    drop((other, idle, seen));
    until("the sessions have ended", || sessions(bench) == 0);
    until("the files are closed", || bench.status()["open_files"] == 0);
}

#[test]
fn applications_see_only_a_pause_where_requests_overtake() {
    applications_see_only_a_pause(Options::default());
}

#[test]
fn applications_see_only_a_pause_where_requests_keep_their_order() {
    let geometry = Geometry { queues: 2, depth: 2, data: 4096 };
    applications_see_only_a_pause(Options { geometry, ordered: true, ..Options::default() });
}

#[test]
fn who_ends_and_begins_while_nobody_serves_does_so() {
    let Some(bench) = mounted() else { return };
    let (seen, other) = (Seen::of(&bench, "m"), Seen::of(&bench, "m"));
    seen.write("file", b"there").unwrap();
    let ino = seen.look("file").unwrap();
    seen.fs.open(&me(), ino, BOTH.into()).unwrap();
    seen.fs.unlink(&me(), seen.root, OsStr::new("file")).unwrap();
    serves_for_a_while(&bench);
    kill_process(Pid::from_raw(pid(&bench)).unwrap(), Signal::KILL).unwrap();
    drop(seen);
    let new = Seen::of(&bench, "m");
    assert_eq!(new.look("file"), Err(Errno::ENOENT.0));
    until("the session has ended", || sessions(&bench) == 2);
    until("its file is closed", || bench.status()["open_files"] == 0);
    other.write("file", b"new").unwrap();
    assert_eq!(new.read("file").unwrap(), b"new");
    drop((new, other));
    bench.unmount_clean();
}

/// A session with raw access to its memory.
fn raw_session(bench: &Bench) -> (UnixStream, SharedWords) {
    let mut stream = UnixStream::connect(socket(bench)).unwrap();
    let hello = "{\"begin\":{\"version\":2,\"geometry\":{\"queues\":2,\"depth\":8,\"data\":4096},\
        \"class\":\"auto\",\"ordered\":false}}\n{\"show\":{}}\n";
    stream.write_all(hello.as_bytes()).unwrap();
    pass_descriptors(&stream, &[File::open(bench.path("m")).unwrap().as_fd()]).unwrap();
    let mut byte = [0];
    while byte[0] != b'\n' {
        stream.read_exact(&mut byte).unwrap();
    }
    let memory = receive_descriptors(&stream, 1).unwrap().pop().unwrap();
    (stream, SharedWords::open(memory).unwrap())
}

#[test]
fn a_hostile_application_gains_nothing_by_a_crash() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    seen.write("file", b"fine").unwrap();
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for turn in 0..6 {
        let (stream, memory) = raw_session(&bench);
        serves_for_a_while(&bench);
        kill_process(Pid::from_raw(pid(&bench)).unwrap(), Signal::KILL).unwrap();
        for word in memory.words() {
            // Small numbers are believed more easily.
            let value = if turn % 2 == 0 { random() } else { random() % 9 };
            word.store(value, Ordering::Relaxed);
        }
        assert_eq!(seen.read("file").unwrap(), b"fine");
        assert!(sessions(&bench) <= 2);
        drop(stream);
        until("its session has ended", || sessions(&bench) == 1);
    }
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"fine");
    assert_eq!(bench.status()["restarts"]["count"], 6);
    drop(seen);
    bench.unmount_clean();
}

#[test]
fn a_session_has_only_its_own_files_closed_and_only_by_memory() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    seen.write("file", b"fine").unwrap();
    let handle = seen.fs.open(&me(), seen.look("file").unwrap(), BOTH.into()).unwrap().handle;
    let answer = |count: u64, descriptor: BorrowedFd<'_>| {
        let (mut stream, _memory) = raw_session(&bench);
        stream.write_all(format!("{{\"keep\":{{\"count\":{count},\"token\":7}}}}\n").as_bytes()).unwrap();
        pass_descriptors(&stream, &[descriptor]).unwrap();
        // The first line is that of the directory.
        BufReader::new(stream).lines().map_while(Result::ok).nth(1).unwrap_or_default()
    };
    let memory = SharedWords::create("test", 8).unwrap();
    assert_eq!(answer(0, memory.as_fd()), "{\"kept\":{\"token\":7}}");
    assert_eq!(answer(8, memory.as_fd()), "{\"kept\":{\"token\":7}}");
    for count in [9, 1 << 17, u64::MAX] {
        assert_eq!(answer(count, memory.as_fd()), "", "the session has ended");
    }
    let file = File::open(bench.path("m/file")).unwrap();
    assert_eq!(answer(0, file.as_fd()), "");
    assert_eq!(answer(0, UnixStream::pair().unwrap().0.as_fd()), "");
    let mut found = [0; 4];
    assert_eq!(seen.fs.read(&me(), handle, 0, &mut found, false).unwrap(), 4);
    drop((file, seen));
    until("the sessions have ended", || sessions(&bench) == 0);
    bench.unmount_clean();
}

#[test]
fn sessions_end_with_a_mount_that_ends() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    seen.write("file", b"x").unwrap();
    let ino = seen.look("file").unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid(&bench))).unwrap();
    // Without its guard, no process goes on.
    kill_and_wait(stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap());
    assert!(errno(seen.fs.getattr(&me(), ino, None)).is_ok());
    kill_and_wait(pid(&bench));
    assert_eq!(errno(seen.fs.getattr(&me(), ino, None)).err(), Some(Errno::ENOTCONN.0));
    bench.ok(&["umount", "m"]);
}

/// A put that was under way may have been carried out or not, and fails with an error that reports
/// this; no other operation fails.
#[test]
fn values_are_the_old_or_the_new_ones() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    let values = seen.session.values(seen.root).unwrap();
    let (over, unsure) = (AtomicBool::new(false), AtomicU64::new(0));
    let put = |key: &str, number: u64| {
        values.put(&me(), key.as_bytes(), &pattern(number, 9000), PutOptions::default())
    };
    let get = |key: &str| values.get(&me(), key.as_bytes()).unwrap().unwrap();
    put("kept", 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (over, unsure) = (&over, &unsure);
            scope.spawn(move || {
                let key = format!("key{thread}");
                put(&key, 0).unwrap();
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    match put(&key, number + 1) {
                        Ok(done) => {
                            assert!(done);
                            number += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), Errno::EIO, "{error}");
                            assert!(
                                error.to_string().contains("whether this was done is not known"),
                                "{error}"
                            );
                            unsure.fetch_add(1, Ordering::Relaxed);
                            number += u64::from(get(&key) == pattern(number + 1, 9000));
                        }
                    }
                    assert!(get(&key) == pattern(number, 9000) && get("kept") == pattern(0, 9000));
                }
            });
        }
        for _ in 0..5 {
            serves_for_a_while(&bench);
            crash(&bench);
        }
        over.store(true, Ordering::Relaxed);
    });
    let page = values.scan(&me(), &ScanRange::default(), 10, false).unwrap();
    let keys: Vec<&[u8]> = page.entries.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"kept"[..], b"key0", b"key1"]);
    assert!(fs::read(bench.path("m/kept")).unwrap() == pattern(0, 9000));
    drop((values, seen));
    bench.unmount_clean();
}

/// The removed files that the guard keeps for the next process.
fn kept_for_the_next(bench: &Bench) -> Vec<std::path::PathBuf> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned()
    };
    let descriptors = fs::read_dir(format!("/proc/{}/fd", parent(pid(bench)))).unwrap();
    let target = |entry: std::io::Result<fs::DirEntry>| fs::read_link(entry.unwrap().path()).ok();
    let targets = descriptors.filter_map(target);
    // Shared memory is shown as removed, too.
    targets
        .filter(|path| path.starts_with(bench.path("")) && path.to_string_lossy().ends_with(" (deleted)"))
        .collect()
}

#[test]
fn removed_files_of_a_crash_are_gone_when_they_are_closed() {
    let Some(bench) = mounted() else { return };
    let words = ["bench", "runtime", "m", "--load", "deeds", "--clients", "4", "--seconds", "3"];
    let mut load = bench.command(&words).stdout(std::process::Stdio::null()).spawn().unwrap();
    // Of programs on the mount, too.
    let (stop, names) = (AtomicBool::new(false), ["x", "y"]);
    std::thread::scope(|scope| {
        for name in names {
            let (path, stop) = (bench.path("m").join(name), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let file = File::create(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                    (&file).write_all(b"still there").unwrap();
                }
            });
        }
        for _ in 0..4 {
            serves_for_a_while(&bench);
            crash(&bench);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(load.wait().unwrap().success());
    until("all removed files are gone", || kept_for_the_next(&bench).is_empty());
    // Nothing but the root is known.
    until("all are forgotten", || bench.status()["known_inodes"] == 1);
    bench.unmount_clean();
}
