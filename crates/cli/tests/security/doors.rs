//! Access rights at the mount, at the control socket and at the metrics port:
//! the attacks that `docs/security.md` names. Needs root, /dev/fuse, `setpriv`
//! and `python3`; skipped without root.

use crate::common::{Bench, RANGE, until};
use crate::users::{ALICE, BIG, BOB, said};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Sends the lines in the file `requests` to the socket of the mount `m`, each
/// by a connection of its own, and writes the first line of each answer.
const ASK: &str = "\
import socket, json
requests = [r.encode() for r in json.load(open('requests'))]
name = f'/run/braid/{os.stat(\"m\").st_dev:x}.sock'
for request in requests:
    s = socket.socket(socket.AF_UNIX)
    s.connect(name)
    try: s.sendall(request)
    except BrokenPipeError: pass
    try: print((s.makefile('rb').readline().decode() or '{}').strip())
    except ConnectionResetError: print('{}')
";

impl Bench {
    /// The answers that a user gets at the control socket.
    fn asks(&self, uid: u32, requests: &[String]) -> Vec<Value> {
        let requests: Vec<String> = requests.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.path("requests"), serde_json::to_vec(&requests).unwrap()).unwrap();
        let output = self.python(uid, ASK);
        assert!(output.status.success(), "{}", said(&output));
        let told = String::from_utf8(output.stdout).unwrap();
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn ask(&self, uid: u32, request: &str) -> Value {
        self.asks(uid, &[request.to_owned()]).remove(0)
    }

    /// Makes Alice use a file so much that the daemon reports it.
    fn with_a_hot_file(&self) {
        self.open_to_all();
        self.python_ok(ALICE, "os.mkdir('m/private', 0o700)");
        self.big_file(ALICE, "private/hot-name", 10);
        until("the file is hot", || {
            self.python_ok(
                ALICE,
                "fd = os.open('m/private/hot-name', os.O_RDONLY)\n\
                 os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\nos.read(fd, 1 << 20)",
            );
            self.status()["hottest"][0]["path"].as_str().is_some()
        });
    }
}

/// Number of requests.
const REQUESTS: usize = 32;

/// All requests, and whether only root and the user who mounted may make them.
/// New ones have to be added here.
const VERBS: [(&str, bool, &str); REQUESTS + 3] = [
    ("hello", false, ""),
    ("status", false, ""),
    ("explain", false, r#","ino":1"#),
    ("sync", false, ""),
    ("wait", false, ""),
    ("kv", false, r#","directory":"","operation":{"get":{"key":[97,108,105,99,101]}}"#),
    ("set-options", true, r#","options":["noatime"]"#),
    ("affected", true, ""),
    ("drill", true, r#","tier":"slow","rules":["fail=EIO"]"#),
    ("replace-tier", true, r#","tier":"slow","dir":"/tmp""#),
    ("add-tier", true, r#","tier":"more","dir":"/tmp""#),
    ("set-tier", true, r#","tier":"slow","settings":{"weight":"5"}"#),
    ("remove-tier", true, r#","tier":"slow","evacuate":true"#),
    ("survey-import", true, r#","tier":"slow""#),
    ("dump-stack", true, ""),
    ("learned-streams", true, ""),
    ("runtime", true, ""),
    ("reload", true, ""),
    ("upgrade", true, r#","program":"/bin/true""#),
    ("modify-stack", true, r#","name":"n.yaml","text":"stack: { }""#),
    ("upgrade-module", true, r#","module":"noop""#),
    ("replace-tier-by", true, r#","tier":"slow","by":"new","dir":"/tmp""#),
    ("replace-home", true, r#","dir":"/tmp""#),
    ("fsck", true, r#","repair":true,"verbose":true,"paths":[]"#),
    ("start-job", true, r#","what":{"kind":"rebalance"}"#),
    ("jobs", true, ""),
    ("job", true, r#","id":1"#),
    ("change-job", true, r#","id":1,"change":"cancel""#),
    ("undo-evacuation", true, r#","tier":"slow""#),
    ("pin", true, r#","path":"alice","pin":true,"recursive":false"#),
    ("record-trace", true, ""),
    ("stop-trace", true, r#","id":1"#),
    // No valid requests.
    ("", true, ""),
    ("Status", true, ""),
    ("shutdown", true, ""),
];

#[test]
fn every_request_of_the_socket_is_for_those_whom_the_document_names() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    let unknown = bench.ask(BOB, r#"{"verb":"no-such"}"#)["error"]["message"].as_str().unwrap().to_owned();
    let known: BTreeSet<&str> =
        unknown.split_once("one of").unwrap().1.split('`').skip(1).step_by(2).collect();
    let decided: BTreeSet<&str> = VERBS[..REQUESTS].iter().map(|(verb, ..)| *verb).collect();
    assert_eq!(known, decided, "{unknown}");

    let now = || {
        let tiers = ["fast", "slow", "more", "new"].map(|name| bench.tier(name));
        let keys = ["state", "weight", "ranges", "location"];
        (tiers.map(|tier| keys.map(|key| tier[key].clone())), bench.ok(&["job", "list"]))
    };
    let before = now();
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let asked: Vec<_> = VERBS.iter().filter(|(verb, ..)| *verb != "wait").collect();
    let lines: Vec<String> =
        asked.iter().map(|(verb, _, rest)| format!(r#"{{"verb":"{verb}"{rest}}}"#)).collect();
    for ((verb, owners, _), answer) in asked.iter().zip(bench.asks(BOB, &lines)) {
        let refused = "only root and the user who mounted may ask for this";
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        match (decided.contains(verb), owners) {
            (true, true) => assert_eq!((message, &answer["error"]["errno"]), (refused, &1.into()), "{verb}"),
            (true, false) => assert_ne!(message, refused, "{verb}"),
            (false, _) => assert!(message.contains("not understood"), "{verb}: {answer}"),
        }
    }
    assert_eq!(before, now());
    assert_eq!(stack, fs::read_to_string(bench.path("s.yaml")).unwrap());
    bench.unmount_clean();
}

#[test]
fn what_others_are_told_at_the_socket_has_no_names_and_no_threads() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.with_a_hot_file();
    let own = bench.ask(0, r#"{"verb":"status"}"#).to_string();
    assert!(own.contains("hot-name"), "{own}");
    let told = bench.ask(BOB, r#"{"verb":"status"}"#);
    assert!(told["status"]["tiers"][1]["ranges"].as_u64().unwrap() > 0, "{told}");
    for tier in told["status"]["tiers"].as_array().unwrap() {
        assert!(tier["busiest_threads"].as_array().is_none_or(Vec::is_empty), "{tier}");
    }
    let ino = fs::metadata(bench.path("m/private/hot-name")).unwrap().ino();
    let others = bench.ask(BOB, &format!(r#"{{"verb":"explain","ino":{ino}}}"#));
    assert_eq!(others["error"]["errno"], 1, "{others}");
    let hello = bench.ask(BOB, r#"{"verb":"hello"}"#);
    for told in [told, others, hello].map(|told| told.to_string()) {
        assert!(!told.contains("hot-name") && !told.contains("private"), "{told}");
    }
    let own = bench.ask(ALICE, &format!(r#"{{"verb":"explain","ino":{ino}}}"#));
    assert!(own["explanation"]["runs"].is_array() && own["explanation"]["object"].is_null(), "{own}");
    bench.unmount_clean();
}

#[test]
fn who_sends_what_is_no_request_stops_nothing_at_the_socket() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    let deep = format!(r#"{{"verb":"drill","rules":{}"#, "[".repeat(100_000));
    let strange = ["null", "[]", "{", r#"{"verb":7}"#, r#"{"verb":"explain","ino":-1}"#, &deep];
    let mut requests = strange.map(str::to_owned).to_vec();
    requests.push(format!(r#"{{"verb":"{}"}}"#, "x".repeat(2 << 20)));
    requests.push(r#"{"verb":"hello","protocol":4000000000}"#.into());
    requests.push(format!(r#"{{"verb":"explain","ino":{}}}"#, u64::MAX));
    requests.push("\u{0}".repeat(100));
    for (answer, request) in bench.asks(BOB, &requests).iter().zip(&requests) {
        let hung_up = answer.as_object().is_some_and(serde_json::Map::is_empty);
        assert!(answer["error"].is_object() || hung_up, "{}: {answer}", &request[..request.len().min(60)]);
    }
    // A user has a limited share of the connections, and does not keep others
    // out.
    let line = "import socket\nname = f'/run/braid/{os.stat(\"m\").st_dev:x}.sock'\nheld = []\n\
                for n in range(300):\n s = socket.socket(socket.AF_UNIX)\n s.connect(name)\n held.append(s)\n\
                print('held', flush=True)\nsys.stdin.read()";
    let mut holder = Command::new("setpriv")
        .args([&format!("--reuid={BOB}"), &format!("--regid={BOB}"), "--clear-groups"])
        .arg(crate::users::python())
        .args(["-c", &format!("import os, sys\n{line}")])
        .current_dir(bench.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
    assert!(bench.ask(ALICE, r#"{"verb":"hello"}"#)["hello"].is_object());
    let turned_away = bench.ask(BOB, r#"{"verb":"hello"}"#);
    assert!(turned_away["error"]["message"].as_str().unwrap().contains("too many"), "{turned_away}");
    bench.status();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    bench.unmount_clean();
    assert!(!fs::read_to_string(bench.path("log")).unwrap().contains("panicked"));
}

/// The answer to these bytes.
fn get(mut stream: impl Read + Write, request: &[u8]) -> String {
    // The server may close the connection before all is sent or read.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn the_metrics_port_has_one_request_and_no_names_of_files() {
    let Some(bench) = Bench::shared() else { return };
    // Bound and released, so that it most likely is free.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.ok(&["mount", "s.yaml", "m", "--metrics", &port.to_string()]);
    bench.with_a_hot_file();
    let ask = |request: &[u8]| get(TcpStream::connect(port).unwrap(), request);
    let told = ask(b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 OK") && told.contains("braid_tier_home{"), "{told}");
    assert!(!told.contains("hot-name") && !told.contains("private") && !told.contains("python"), "{told}");

    let huge = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 1 << 20], b"\r\n\r\n".to_vec()].concat();
    let many = [b"GET /metrics HTTP/1.1\r\n".to_vec(), b"X: 1\r\n".repeat(500), b"\r\n".to_vec()].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"GET /private/hot-name HTTP/1.1\r\n\r\n", "404"),
        (b"GET http://127.0.0.1/metrics HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", "405"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n", "405"),
        (b"{\"verb\":\"status\"}\n\n", "400"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\xff\xff", "400"),
        (&huge, "431"),
        (&many, "431"),
    ] {
        let answer = ask(request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        // A client that sends too much may find the connection reset before it
        // reads the answer.
        let cut = answer.is_empty() && request.len() > 8192;
        assert!(cut || answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
        assert!(!answer.contains("braid_"), "{shown}: {answer}");
    }
    // An incomplete request is not answered.
    let stream = TcpStream::connect(port).unwrap();
    (&stream).write_all(b"GET /metrics HT").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(get(&stream, b""), "");
    // Incomplete requests, again and again, keep no other client out.
    let held: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(port).unwrap()).collect();
    held.iter().for_each(|mut stream| drop(stream.write_all(b"GET /metrics HTTP/1.1\r\n")));
    assert!(ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
    drop(held);
    bench.unmount_clean();
    assert!(!fs::read_to_string(bench.path("log")).unwrap().contains("panicked"));
}

#[test]
fn there_is_no_metrics_port_by_default_and_roots_socket_is_for_all() {
    let Some(bench) = Bench::shared() else { return };
    let socket = bench.path("metrics.sock");
    bench.mount();
    let pid = bench.status()["pid"].to_string();
    let listening = |kind: &str| {
        let sockets = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let inodes: Vec<String> = sockets
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let table = fs::read_to_string(format!("/proc/{pid}/net/{kind}")).unwrap();
        table.lines().filter(|line| inodes.iter().any(|ino| line.split(' ').any(|word| word == ino))).count()
    };
    assert_eq!((listening("tcp"), listening("tcp6")), (0, 0));
    bench.ok(&["umount", "m"]);

    bench.ok(&["mount", "s.yaml", "m", "--metrics", &format!("unix:{}", socket.display())]);
    assert_eq!(fs::symlink_metadata(&socket).unwrap().permissions().mode() & 0o7777, 0o666);
    let control = format!("/run/braid/{:x}.sock", fs::metadata(bench.path("m")).unwrap().dev());
    assert_eq!(fs::symlink_metadata(control).unwrap().permissions().mode() & 0o7777, 0o666);
    assert_eq!(fs::symlink_metadata("/run/braid").unwrap().permissions().mode() & 0o7777, 0o755);
    let line = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('metrics.sock')\n\
                s.sendall(b'GET /metrics HTTP/1.1\\r\\n\\r\\n')\nsys.exit(b' 200 OK' not in s.recv(100))";
    bench.python_ok(BOB, line);
    assert!(
        get(UnixStream::connect(&socket).unwrap(), b"PUT / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405")
    );
    bench.unmount_clean();
    assert!(!socket.exists());
}

/// Ways in which users of the mount try to reach `.braid`; each has to fail.
const AT_BRAID: [&str; 22] = [
    "os.stat('m/.braid')",
    "os.listdir('m/.braid')",
    "open('m/.braid/label', 'rb')",
    "os.stat('m/own/../.braid/volume')",
    "os.stat('m/./.braid')",
    "os.stat('m/link')",
    "os.stat('m/deep')",
    "os.chdir('m'); os.chdir('.braid')",
    "os.mkdir('m/.braid')",
    "os.rmdir('m/.braid')",
    "os.unlink('m/.braid')",
    "os.mknod('m/.braid', 0o100600)",
    "os.symlink('x', 'm/.braid')",
    "os.open('m/.braid', os.O_CREAT | os.O_WRONLY, 0o600)",
    "os.link('m/mine', 'm/.braid')",
    "os.rename('m/mine', 'm/.braid')",
    "os.rename('m/own', 'm/.braid')",
    "os.rename('m/.braid', 'm/loot')",
    "os.rename('m/.braid/label', 'm/loot')",
    "os.chmod('m/.braid', 0o777)",
    "os.chown('m/.braid', 4801, 4801)",
    "os.setxattr('m/.braid', 'user.x', b'1')",
];

#[test]
fn users_of_the_mount_do_not_come_at_braid() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "mine", 10);
    bench.python_ok(
        ALICE,
        "os.mkdir('m/own'); os.symlink('.braid', 'm/link'); os.symlink('../.braid/label', 'm/own/deep')\n\
         os.symlink('own/deep', 'm/deep')",
    );
    let label = fs::read(bench.path("a/.braid/label")).unwrap();
    for uid in [ALICE, 0] {
        for line in AT_BRAID {
            let output = bench.python(uid, line);
            assert!(!output.status.success() && said(&output).contains("[Errno"), "{uid}: {line}");
        }
        bench.python_ok(uid, "sys.exit('.braid' in os.listdir('m'))");
    }
    assert_eq!(fs::read(bench.path("a/.braid/label")).unwrap(), label);
    assert_eq!(fs::metadata(bench.path("a/.braid")).unwrap().permissions().mode() & 0o7777, 0o700);
    bench.unmount_clean();
}

/// Tries all operations on attributes, with every name that Braid has or might
/// have; writes those that succeeded.
const AT_ATTRIBUTES: &str = "\
import errno
def tried(what, wanted, call):
    try: call()
    except OSError as error:
        if error.errno not in wanted: print(what, error)
    else: print(what, 'succeeded')
for path in paths:
    for space in ['trusted', 'user']:
        for key in ['id', 'pin', 'probe', 'x', '', 'id\\n']:
            name = f'{space}.braid.{key}'
            for follow in [True, False]:
                if not follow and os.path.islink(path): continue
                kinds = dict(follow_symlinks=follow)
                tried(('get', path, name), [errno.ENODATA], lambda: os.getxattr(path, name, **kinds))
                refused = [errno.EPERM]
                for flags in [0, os.XATTR_CREATE, os.XATTR_REPLACE]:
                    tried(('set', path, name, flags), refused, lambda: os.setxattr(path, name, b'1', flags, **kinds))
                tried(('remove', path, name), [errno.ENODATA, errno.EPERM], lambda: os.removexattr(path, name, **kinds))
    shown = [name for name in os.listxattr(path) if 'braid' in name]
    if shown: print(path, shown)
";

#[test]
fn users_of_the_mount_neither_see_nor_set_braids_attributes() {
    for user_attributes in [false, true] {
        let Some(bench) = Bench::shared() else { return };
        if user_attributes {
            bench.made_by_a_user();
        }
        bench.mount();
        bench.open_to_all();
        bench.big_file(ALICE, "mine", 10);
        bench.python_ok(
            ALICE,
            "os.mkdir('m/own'); os.link('m/mine', 'm/own/linked'); os.symlink('mine', 'm/link')\n\
             open('m/plain', 'w').write('x'); os.setxattr('m/mine', 'user.mine', b'1')",
        );
        bench.ok(&["pin", "m/mine"]);
        let attribute = bench.attribute("mine");
        for paths in [
            "['m/mine', 'm/own/linked', 'm/link', 'm/plain', 'm/own', 'm']",
            "['m/own/renamed', 'm/own/linked']",
        ] {
            for uid in [ALICE, 0] {
                let output = bench.python(uid, &format!("paths = {paths}\n{AT_ATTRIBUTES}"));
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                // The kernel keeps `trusted.` from users, and the root from Alice.
                let odd: Vec<&str> = told
                    .lines()
                    .filter(|line| {
                        !(uid == ALICE && line.contains("'set', 'm',") && line.contains("[Errno 13]"))
                    })
                    .collect();
                assert!(output.status.success() && odd.is_empty(), "{uid}: {odd:?}{}", said(&output));
            }
            let _ = bench.python(ALICE, "os.rename('m/mine', 'm/own/renamed')");
        }
        bench.python_ok(ALICE, "sys.exit(os.listxattr('m/own/renamed') != ['user.mine'])");
        assert_eq!(bench.attribute("own/renamed"), attribute);
        bench.python_ok(ALICE, &format!("sys.exit(open('m/own/renamed', 'rb').read() != b'\\x0a' * {BIG})"));
        assert!(bench.json(&["explain", "m/own/renamed", "--json"])["pin"].is_object());
        bench.ok(&["umount", "m"]);
    }
}

#[test]
fn users_of_the_mount_do_with_others_files_what_their_mode_lets_them() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    bench.python_ok(ALICE, "os.mkdir('m/shut', 0o700); open('m/shut/in', 'w').write('x')");
    for line in [
        "open('m/alice', 'rb')",
        "open('m/alice', 'r+b')",
        "os.truncate('m/alice', 0)",
        "os.chmod('m/alice', 0o666)",
        "os.chown('m/alice', 4802, 4802)",
        "os.utime('m/alice', (1, 1))",
        "os.setxattr('m/alice', 'user.x', b'1')",
        "os.getxattr('m/alice', 'user.x')",
        "os.unlink('m/alice')",
        "os.rename('m/alice', 'm/loot')",
        "open('m/mine', 'w'); os.replace('m/mine', 'm/alice')",
        "os.listdir('m/shut')",
        "os.stat('m/shut/in')",
    ] {
        let output = bench.python(BOB, line);
        let refused = ["[Errno 1]", "[Errno 13]"].iter().any(|errno| said(&output).contains(errno));
        assert!(!output.status.success() && refused, "{line}: {}", said(&output));
    }
    bench.python_ok(ALICE, &format!("sys.exit(open('m/alice', 'rb').read() != b'\\x0a' * {BIG})"));
    // An access control list lets him in, as far as it grants.
    bench.python_ok(
        ALICE,
        "import struct\nacl = struct.pack('<I', 2)\n\
         for tag, perm, who in [(1, 6, -1), (2, 4, 4802), (4, 0, -1), (16, 4, -1), (32, 0, -1)]:\n \
         acl += struct.pack('<HHi', tag, perm, who)\nos.setxattr('m/alice', 'system.posix_acl_access', acl)",
    );
    bench.python_ok(BOB, &format!("sys.exit(len(open('m/alice', 'rb').read({RANGE})) != {RANGE})"));
    assert!(said(&bench.python(BOB, "open('m/alice', 'r+b')")).contains("[Errno 13]"));
    bench.unmount_clean();
}
