//! The module `throttle`: shares of two users, one of whom has many requests at a time,
//! counted and not timed. Needs root, /dev/fuse, `setpriv` and Python; skipped without root.

use crate::common::Bench;
use crate::users::{ALICE, BOB, python};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// Runs threads that do something, each over and over, and counts. It begins on request, and ends
/// after so many times (0: on request).
const WORKER: &str = "
import mmap, os, sys, threading
name, threads, times, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.umask(0)
over, counts = threading.Event(), [0] * threads
def work(at):
    fd = os.open('m/%s.%d' % (name, at), os.O_CREAT | os.O_RDWR | (os.O_DIRECT if kind == 'direct' else 0))
    data = mmap.mmap(-1, 32768)
    os.pwritev(fd, [data], 0)
    ready.wait(); go.wait()
    while not over.is_set() and (not times or counts[at] < times):
        if kind == 'names': os.close(os.open('m/%s.%d' % (name, at), os.O_RDONLY))
        elif kind == 'sync': os.pwritev(fd, [data], 0); os.fsync(fd)
        elif counts[at] % 2: os.preadv(fd, [data], 0)
        else: os.pwritev(fd, [data], 0)
        counts[at] += 1
ready, go = threading.Barrier(threads + 1), threading.Event()
all = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
for thread in all: thread.start()
ready.wait(); print('ready', flush=True)
sys.stdin.readline(); go.set()
if times: [thread.join() for thread in all]
else: sys.stdin.readline(); print(sum(counts), flush=True); over.set(); [thread.join() for thread in all]
";

/// Workers of one user.
struct Worker {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(bench: &Bench, uid: u32, threads: u32, times: u64, kind: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]);
        command.arg(python()).args(["-c", WORKER, &uid.to_string()]);
        command.args([threads.to_string(), times.to_string(), kind.to_owned()]).current_dir(bench.path("."));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        Self { child, said }
    }

    fn tell(&mut self) {
        use std::io::Write;
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Ends it; answers how often all its threads did it.
    fn end(mut self) -> u64 {
        self.tell();
        let mut count = String::new();
        self.said.read_line(&mut count).unwrap();
        assert!(self.child.wait().unwrap().success());
        count.trim().parse().unwrap()
    }
}

fn throttled(bench: &Bench, settings: &str, mount: &str) {
    bench.write_stack(&format!(
        "stack:\n  throttle:\n    {settings}\n    volume:\n      home: fast\n      range: 64KiB\n      tiers:\n        \
         fast: {{ dir: a }}\n        slow: {{ dir: b }}\nmount: {{ {mount} }}\n"
    ));
}

/// How often Alice's 16 threads do something while Bob's one does it so many times.
fn beside(bench: &Bench, times: u64, kind: &str) -> u64 {
    let mut greedy = Worker::start(bench, ALICE, 16, 0, kind);
    let mut modest = Worker::start(bench, BOB, 1, times, kind);
    greedy.tell();
    modest.tell();
    assert!(modest.child.wait().unwrap().success());
    greedy.end()
}

/// Alice gets about this share. Bob has no request waiting while his thread does not run, so
/// that other load on the machine may take some of his: then it is tried again.
#[track_caller]
fn is_share(bench: &Bench, times: u64, kind: &str, expected: u64) {
    let mut found = Vec::new();
    for _ in 0..5 {
        found.push(beside(bench, times, kind));
        if (expected * 7 / 10..=expected * 13 / 10 + 32).contains(found.last().unwrap()) {
            return;
        }
    }
    panic!("{found:?}, expected {expected}");
}

#[test]
fn users_get_their_shares_however_much_each_asks_for() {
    let Some(bench) = Bench::shared() else { return };
    throttled(&bench, "by: uid\n    bandwidth: 8MiB/s", "");
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    // The writers are known, unless the stack file asks for write-back.
    assert_eq!(bench.status()["cache"], "writethrough");
    is_share(&bench, 200, "direct", 200);
    is_share(&bench, 100, "sync", 100);
    throttled(&bench, "by: uid\n    bandwidth: 8MiB/s\n    weights: { 4802: 3 }", "");
    assert_eq!(bench.ok(&["reload", "m"]), "module throttle: other settings\n");
    is_share(&bench, 300, "direct", 100);
    throttled(&bench, "by: uid\n    operations: 600/s", "");
    assert_eq!(bench.ok(&["reload", "m"]), "module throttle: other settings\n");
    is_share(&bench, 200, "names", 200);
    // Each of 17 threads of one process by one share, each of two processes.
    throttled(&bench, "by: process\n    operations: 600/s", "");
    assert_eq!(bench.ok(&["reload", "m"]), "module throttle: other settings\n");
    is_share(&bench, 200, "names", 200);
    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains("operations: 600/s"), "{dump}");
    bench.unmount_clean();
}

#[test]
fn what_the_kernel_writes_back_is_limited_and_whole() {
    let Some(bench) = Bench::shared() else { return };
    throttled(&bench, "by: uid\n    bandwidth: 8MiB/s\n    each: 6MiB/s", "cache: writeback");
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    assert_eq!(bench.status()["cache"], "writeback");
    // Synced data counts for the user who has the file open.
    is_share(&bench, 100, "sync", 100);
    let data = crate::common::pattern(1, 5 << 20);
    fs::write(bench.path("m/file"), &data).unwrap();
    fs::copy(bench.path("m/file"), bench.path("m/copy")).unwrap();
    // Other limits let waiting operations go on.
    throttled(&bench, "by: gid\n    bandwidth: 10GiB/s", "cache: writeback");
    assert_eq!(bench.ok(&["reload", "m"]), "module throttle: other settings\n");
    assert!(
        crate::common::read_anew(&bench.path("m/file")) == data
            && crate::common::read_anew(&bench.path("m/copy")) == data
    );
    throttled(&bench, "by: gid\n    bandwidth: 10KiB/s", "cache: writeback");
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("s.yaml:2: stack.throttle: bandwidth: '10KiB/s' is less than 64KiB/s"), "{said}");
    throttled(&bench, "by: gid\n    bandwidth: 10GiB/s", "cache: writeback");
    bench.unmount_clean();
}
