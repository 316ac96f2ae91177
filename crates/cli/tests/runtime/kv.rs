//! Keys and values of directories through the `braid` command and the Redis protocol,
//! beside the same directories as files. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, kill_and_wait, pattern, until};
use crate::users::{ALICE, BOB, as_user, python, said};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A mounted log file system, or a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Log,
    Volume,
}

const BOTH: [What; 2] = [What::Log, What::Volume];

/// Mounted at `m`, with a socket `kv.sock` and these flags beside.
fn mounted(what: What, flags: &[&str]) -> Option<Bench> {
    let bench = Bench::bare(&["a", "b", "m"])?;
    // Others are to get as far as the mount.
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    if what == What::Log {
        bench.ok(&["log", "create", "fs", "--size", "128MiB"]);
    }
    mount(&bench, what, flags);
    Some(bench)
}

fn mount(bench: &Bench, what: What, flags: &[&str]) {
    let socket = format!("unix:{}", bench.path("kv.sock").display());
    match what {
        What::Log => {
            let words = [&["log", "mount", "--log-file", "log", "--kv", &socket], flags, &["fs", "m"]];
            bench.ok(&words.concat());
        }
        What::Volume => {
            let tiers = ["--tier", "fast=a", "--tier", "slow=b", "--no-measure"];
            bench.ok(&[&["mount", "--kv", &socket], &tiers[..], flags, &["m"]].concat());
        }
    }
}

fn skips_without(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        braid_testkit::skipped(program);
    }
    missing
}

/// The answers of `redis-cli` to commands, a line each.
fn redis(bench: &Bench, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.arg("-s").arg(bench.path("kv.sock")).args(words);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output)
}

/// The command with something to read.
fn fed(bench: &Bench, words: &[&str], input: &[u8]) -> i32 {
    let mut child = bench.command(words).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait().unwrap().code().unwrap()
}

fn commands(what: What) {
    let Some(bench) = mounted(what, &[]) else { return };
    fs::create_dir(bench.path("m/d")).unwrap();
    let file = |name: &str| fs::read(bench.path("m/d").join(name));
    // Neither a name that is not there, nor a listing, nor bytes stay in the kernel.
    assert!(file("one").is_err() && fs::read_dir(bench.path("m/d")).unwrap().next().is_none());
    bench.ok(&["kv", "put", "m/d", "one", "1"]);
    assert_eq!(file("one").unwrap(), b"1");
    assert_eq!(fs::read_dir(bench.path("m/d")).unwrap().count(), 1);
    let inode = fs::metadata(bench.path("m/d/one")).unwrap();
    fs::set_permissions(bench.path("m/d/one"), Permissions::from_mode(0o640)).unwrap();
    let data = pattern(1, 1_234_567);
    assert_eq!(fed(&bench, &["kv", "put", "m/d", "one", "--sync"], &data), 0);
    assert_eq!(file("one").unwrap(), data);
    let now = fs::metadata(bench.path("m/d/one")).unwrap();
    assert_eq!((now.len(), now.mode() & 0o777, now.nlink()), (data.len() as u64, 0o640, 1));
    assert_ne!(now.ino(), inode.ino());
    // Unsynced data is read, with the file open or not.
    let open = OpenOptions::new().write(true).open(bench.path("m/d/one")).unwrap();
    open.write_all_at(b"buffered", 0).unwrap();
    open.write_all_at(b"longer", 2_000_000).unwrap();
    let output = bench.braid(&["kv", "get", "m/d", "one"]);
    assert!(output.stdout.starts_with(b"buffered") && output.stdout.ends_with(b"longer"));
    assert_eq!(output.stdout.len(), 2_000_006);
    // Later writes to a replaced file do not reach the new one.
    open.write_all_at(b"late", 0).unwrap();
    bench.ok(&["kv", "put", "m/d", "one", "new"]);
    drop(open);
    assert_eq!(
        (file("one").unwrap(), bench.ok(&["kv", "get", "m/d", "one"])),
        (b"new".to_vec(), "new".into())
    );
    fs::write(bench.path("m/d/two"), "2").unwrap();
    bench.ok(&["kv", "get", "m/d", "two", "--output", "out"]);
    bench.ok(&["kv", "put", "m/d", "three", "--input", "out"]);
    assert_eq!(file("three").unwrap(), b"2");
    // Keys are bytes.
    bench.ok(&["kv", "put", "m/d", "00ff2f", "odd", "--hex"]);
    assert_eq!(bench.ok(&["kv", "get", "m/d", "00ff2f", "--hex"]), "odd");
    let odd = Path::new(std::ffi::OsStr::new("m/d")).join({
        use std::os::unix::ffi::OsStrExt;
        std::ffi::OsStr::from_bytes(b"%00\xff%2F")
    });
    assert_eq!(fs::read(bench.path(".").join(odd)).unwrap(), b"odd");
    assert_eq!(bench.ok(&["kv", "scan", "m/d"]).lines().count(), 4);
    assert_eq!(bench.ok(&["kv", "scan", "m/d", "--prefix", "t"]), "three\ntwo\n");
    assert_eq!(bench.ok(&["kv", "scan", "m/d", "--from", "one", "--to", "two", "--limit", "1"]), "one\n");
    let line = bench.json(&["kv", "scan", "m/d", "--prefix", "tw", "--values", "--json"]);
    assert_eq!(line, serde_json::json!({ "key": "two", "key_hex": "74776f", "value_hex": "32" }));
    statuses(&bench);
    bench.ok(&["umount", "m"]);
    assert!(!bench.path("kv.sock").exists());
}

fn written_just_before(what: What) {
    let Some(bench) = mounted(what, &[]) else { return };
    let file = OpenOptions::new().write(true).create_new(true).open(bench.path("m/k")).unwrap();
    let mut stream = UnixStream::connect(bench.path("kv.sock")).unwrap();
    for round in 0..100 {
        let value = format!("{round:08}");
        // Sooner than the kernel writes it back by itself.
        file.write_all_at(value.as_bytes(), 0).unwrap();
        stream.write_all(b"GET k\r\n").unwrap();
        let mut answer = [0; 14];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("$8\r\n{value}\r\n"));
    }
    drop((file, stream));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_get_finds_what_a_program_has_just_written() {
    BOTH.into_iter().for_each(written_just_before);
}

fn statuses(bench: &Bench) {
    let missing = |words: &[&str]| assert_eq!(bench.fails(words).0, 3, "{words:?}");
    missing(&["kv", "get", "m/d", "none"]);
    missing(&["kv", "delete", "m/d", "none"]);
    missing(&["kv", "put", "m/d", "one", "x", "--if", "absent"]);
    missing(&["kv", "put", "m/d", "none", "x", "--if", "present"]);
    bench.ok(&["kv", "put", "m/d", "one", "y", "--if", "present"]);
    assert_eq!(fs::read(bench.path("m/d/one")).unwrap(), b"y");
    bench.ok(&["kv", "delete", "m/d", "one", "two", "--sync"]);
    bench.ok(&["kv", "delete", "m/d", "00ff2f", "--hex"]);
    assert!(!bench.path("m/d/one").exists());
    assert_eq!(bench.ok(&["kv", "scan", "m/d"]), "three\n");
    let said = bench.refused(&["kv", "put", "m/d", &"x".repeat(256), "x"]);
    assert!(said.contains("File name too long"), "{said}");
    let said = bench.refused(&["kv", "get", "m", "d"]);
    assert!(said.contains("Is a directory"), "{said}");
    let said = bench.refused(&["kv", "get", "a", "d"]);
    assert!(said.contains("not in a Braid file system"), "{said}");
    File::create(bench.path("long")).unwrap().set_len((16 << 20) + 1).unwrap();
    let said = bench.refused(&["kv", "put", "m/d", "k", "--input", "long"]);
    assert!(said.contains("more than 16777216 bytes"), "{said}");
    assert_eq!(bench.fails(&["kv", "get", "m/d", "0", "--hex"]).0, 2);
}

#[test]
fn a_directory_is_keys_and_values_by_commands_and_files_all_the_same() {
    BOTH.into_iter().for_each(commands);
}

fn session(what: What) {
    let Some(bench) = mounted(what, &[]) else { return };
    let check =
        |words: &[&str], expected: &str| assert_eq!(redis(&bench, words).trim_end(), expected, "{words:?}");
    check(&["PING"], "PONG");
    check(&["SET", "k", "v"], "OK");
    assert_eq!(fs::read(bench.path("m/k")).unwrap(), b"v");
    assert_eq!(fs::metadata(bench.path("m/k")).unwrap().mode() & 0o777, 0o600);
    fs::write(bench.path("m/k"), "from a file").unwrap();
    check(&["GET", "k"], "from a file");
    check(&["SET", "k", "w", "NX"], "");
    check(&["SET", "k", "w", "XX", "GET"], "from a file");
    check(&["SET", "k", "w", "EX", "10"], "ERR values have no time after which they go");
    check(&["GETSET", "k", "x"], "w");
    check(&["SETNX", "k", "y"], "0");
    check(&["GETDEL", "k"], "x");
    check(&["GET", "k"], "");
    check(&["INCR", "n"], "1");
    check(&["INCRBY", "n", "41"], "42");
    check(&["DECR", "n"], "41");
    check(&["DECRBY", "n", "-9"], "50");
    check(&["APPEND", "n", "x"], "3");
    check(&["INCR", "n"], "ERR value is not an integer or out of range");
    check(&["SETRANGE", "n", "1", "abc"], "4");
    check(&["GETRANGE", "n", "-3", "-2"], "ab");
    check(&["STRLEN", "n"], "4");
    check(&["MSET", "a", "1", "b", "2", "c/d", "3"], "OK");
    check(&["MSETNX", "z", "1", "b", "2"], "0");
    check(&["MGET", "a", "none", "c/d"], "1\n\n3");
    check(&["EXISTS", "a", "a", "none"], "2");
    check(&["TYPE", "a"], "string");
    check(&["DBSIZE"], "4");
    check(&["KEYS", "[ab]"], "a\nb");
    check(&["--scan", "--pattern", "*"], "a\nb\nc/d\nn");
    let page = redis(&bench, &["SCAN", "0", "COUNT", "2"]);
    let (cursor, keys) = page.split_once('\n').unwrap();
    assert_eq!(keys.trim_end(), "a\nb");
    check(&["SCAN", cursor, "COUNT", "9"], "0\nc/d\nn");
    check(&["SCAN", "77"], "ERR invalid cursor: begin again with 0");
    check(&["UNLINK", "a", "b", "none"], "2");
    check(&["SAVE"], "OK");
    check(&["FLUSHALL"], "ERR unknown command 'FLUSHALL': docs/kv.md has those that there are");
    check(&["SELECT", "1"], "ERR DB index is out of range: there is one database, 0");
    check(&["CONFIG", "GET", "save"], "save");
    check(&["AUTH", "x"], "ERR AUTH called without any password configured");
    let hello = redis(&bench, &["-3", "HELLO", "3", "SETNAME", "me"]);
    assert!(hello.contains("proto 3") && hello.contains("server redis"), "{hello}");
    fs::create_dir(bench.path("m/sub")).unwrap();
    check(&["GET", "sub"], "WRONGTYPE Is a directory (os error 21)");
    let long = redis(&bench, &["SET", &"k".repeat(300), "v"]);
    assert!(long.starts_with("ERR") && long.contains("300 bytes"), "{long}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn redis_cli_works_unchanged() {
    if !skips_without("redis-cli") {
        BOTH.into_iter().for_each(session);
    }
}

#[test]
fn redis_benchmark_works_unchanged() {
    if skips_without("redis-benchmark") {
        return;
    }
    for (what, count) in [(What::Log, "20000"), (What::Volume, "300")] {
        let Some(bench) = mounted(what, &[]) else { return };
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(bench.path("kv.sock")).args(["-t", "ping,set,get,incr,mset", "-n", count]);
        let output = command.args(["-P", "8", "-r", "1000", "-d", "700", "--csv"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
        assert!(output.status.success() && !text.contains("ERR") && !text.contains("Error"), "{text}");
        assert!(text.contains("\"SET\"") && text.contains("\"MSET (10 keys)\""), "{text}");
        bench.ok(&["umount", "m"]);
    }
}

/// Sends bytes, and reads as much as comes until the other side hangs up or is silent.
fn raw(bench: &Bench, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(bench.path("kv.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // It may hang up before it has read everything.
    let _ = stream.write_all(bytes);
    let (mut answer, mut buf) = (Vec::new(), [0; 65536]);
    while let Ok(read @ 1..) = stream.read(&mut buf) {
        answer.extend(&buf[..read]);
    }
    answer
}

fn says(bench: &Bench, bytes: &[u8], expected: &str) {
    let answer = String::from_utf8_lossy(&raw(bench, bytes)).into_owned();
    assert!(
        answer.contains(expected),
        "{:?}: {answer}",
        String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
    );
}

#[test]
fn hostile_clients_get_errors_and_others_are_served() {
    let Some(bench) = mounted(What::Log, &[]) else { return };
    says(
        &bench,
        b"PING\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n",
        "+PONG\r\n+PONG\r\n$1\r\nx\r\n",
    );
    says(&bench, b"*1000000000\r\n", "Protocol error: invalid multibulk length");
    says(&bench, b"*2\r\n$3\r\nGET\r\n$99999999999\r\n", "Protocol error: invalid bulk length");
    says(&bench, b"*1\r\n!", "Protocol error: expected '$'");
    says(&bench, &vec![b'x'; 100_000], "too big inline request");
    says(&bench, &[0, 255, 10, 13, 10], "unknown command");
    says(&bench, b"GET\r\nGET a b c\r\n", "wrong number of arguments");
    says(&bench, b"QUIT\r\nPING\r\n", "+OK\r\n");
    // Many requests at once, whose answers are not read for now.
    let value = vec![b'v'; 1 << 20];
    let put = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n", &value[..], b"\r\n"].concat();
    assert_eq!(raw(&bench, &put), b"+OK\r\n");
    let mut deaf = UnixStream::connect(bench.path("kv.sock")).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = deaf.write_all(&b"GET k\r\n".repeat(5000));
    // A request that is never finished, and silent connections, up to the limit.
    let mut half = UnixStream::connect(bench.path("kv.sock")).unwrap();
    half.write_all(&put[..1000]).unwrap();
    let silent: Vec<UnixStream> =
        (0..100).map(|_| UnixStream::connect(bench.path("kv.sock")).unwrap()).collect();
    assert_eq!(raw(&bench, b"STRLEN k\r\n"), b":1048576\r\n");
    let mut more: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(bench.path("kv.sock")).unwrap()).collect();
    says(&bench, b"PING\r\n", "-ERR max number of clients reached");
    more.clear();
    drop((silent, half, deaf));
    until("it serves again", || raw(&bench, b"PING\r\n") == b"+PONG\r\n");
    // Short values and long ones, and one that is too long.
    says(&bench, b"SET s short\r\n", "+OK\r\n");
    let bulk = [b"$1048576\r\n", &value[..], b"\r\n"].concat();
    let three = [b"*3\r\n", &bulk[..], b"$5\r\nshort\r\n", &bulk].concat();
    let mut stream = UnixStream::connect(bench.path("kv.sock")).unwrap();
    for (request, expected) in [(&b"GET k\r\n"[..], bulk), (b"MGET k s k\r\n", three)] {
        let mut answer = vec![0; expected.len()];
        stream.write_all(request).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == expected, "{:?}", &answer[..40]);
    }
    File::create(bench.path("m/long")).unwrap().set_len((16 << 20) + 1).unwrap();
    says(&bench, b"GET long\r\n", "16777217 bytes, where a value may have up to 16777216");
    // One user does not get all of them.
    let many = "\
import socket
held = [socket.socket(socket.AF_UNIX) for _ in range(60)]
for s in held: s.connect('kv.sock')
def is_served(s):
    try: s.sendall(b'PING\\r\\n'); return s.recv(5) == b'+PONG'
    except (BrokenPipeError, ConnectionResetError): return False
print(sum(is_served(s) for s in held))";
    let mut command = Command::new(python());
    command.args(["-c", many]).current_dir(bench.path("."));
    let output = as_user(ALICE, &command);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "48\n", "{}", said(&output));
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["log", "check", "fs"]).starts_with("fs: sound"));
}

fn rights(what: What) {
    let Some(bench) = mounted(what, &[]) else { return };
    fs::create_dir(bench.path("m/shared")).unwrap();
    fs::set_permissions(bench.path("m/shared"), Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(bench.path("m/closed")).unwrap();
    fs::create_dir(bench.path("m/closed/open")).unwrap();
    fs::set_permissions(bench.path("m/closed"), Permissions::from_mode(0o700)).unwrap();
    fs::write(bench.path("m/closed/open/k"), "secret").unwrap();
    let by = |uid: u32, words: &[&str]| as_user(uid, &bench.command(words));
    let denied = |uid: u32, words: &[&str]| {
        let output = by(uid, words);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{words:?}");
        assert!(said(&output).contains("ermission denied"), "{words:?}: {}", said(&output));
    };
    assert!(by(ALICE, &["kv", "put", "m/shared", "hers", "secret"]).status.success());
    let made = fs::metadata(bench.path("m/shared/hers")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (ALICE, ALICE, 0o644));
    assert_eq!(by(BOB, &["kv", "get", "m/shared", "hers"]).stdout, b"secret");
    denied(BOB, &["kv", "put", "m/shared", "hers", "his"]);
    denied(BOB, &["kv", "delete", "m/shared", "hers"]);
    fs::set_permissions(bench.path("m/shared/hers"), Permissions::from_mode(0o600)).unwrap();
    denied(BOB, &["kv", "get", "m/shared", "hers"]);
    denied(BOB, &["kv", "scan", "m/shared", "--values", "--json"]);
    assert_eq!(by(BOB, &["kv", "scan", "m/shared"]).stdout, b"hers\n");
    assert_eq!(by(ALICE, &["kv", "get", "m/shared", "hers"]).stdout, b"secret");
    denied(BOB, &["kv", "put", "m", "new", "x"]);
    let acl = Command::new("setfacl")
        .args(["-m", &format!("u:{BOB}:rw")])
        .arg(bench.path("m/shared/hers"))
        .output();
    if what == What::Volume && acl.is_ok_and(|acl| acl.status.success()) {
        assert_eq!(by(BOB, &["kv", "get", "m/shared", "hers"]).stdout, b"secret");
        let mask = Command::new("setfacl").args(["-m", "m::w"]).arg(bench.path("m/shared/hers")).status();
        assert!(mask.unwrap().success());
        denied(BOB, &["kv", "get", "m/shared", "hers"]);
        assert_eq!(by(ALICE, &["kv", "get", "m/shared", "hers"]).stdout, b"secret");
        assert!(by(ALICE, &["kv", "put", "m/shared", "hers", "secret"]).status.success());
        let kept = Command::new("getfacl").arg(bench.path("m/shared/hers")).output().unwrap();
        assert!(String::from_utf8_lossy(&kept.stdout).contains(&format!("user:{BOB}:rw")));
        let above =
            || Command::new("setfacl").args(["-m", &format!("u:{BOB}:-")]).arg(bench.path(".")).status();
        assert!(by(BOB, &["kv", "scan", "m/shared"]).status.success() && above().unwrap().success());
        denied(BOB, &["kv", "scan", "m/shared"]);
        let removed = Command::new("setfacl").arg("-b").arg(bench.path(".")).status();
        assert!(removed.unwrap().success());
    }
    // Not by asking the daemon for a directory that is out of reach.
    let (socket, request) =
        (socket_of(&bench), r#"{"verb":"kv","directory":"closed/open","operation":{"get":{"key":[107]}}}"#);
    let line = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{socket}')\ns.sendall(b'{request}\\n')\nprint(s.recv(9999).decode())"
    );
    let answer = bench.python(BOB, &line);
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned() + &said(&answer);
    assert!(answer.contains("ermission denied") && !answer.contains("secret"), "{answer}");
    // Nor where the mount point is.
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o700)).unwrap();
    let answer = bench.python(BOB, &line.replace("closed/open", "shared"));
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.contains("out of reach"), "{answer}");
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    // At the socket, the kernel reports the caller.
    let line = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{}')\ns.sendall(b'SET x y\\r\\nGET x\\r\\n')\nprint(s.recv(9999).decode())",
        bench.path("kv.sock").display()
    );
    let answer = bench.python(BOB, &line);
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned() + &said(&answer);
    assert!(answer.starts_with("-NOPERM") && !bench.path("m/x").exists(), "{answer}");
    bench.ok(&["umount", "m"]);
}

/// The control socket of the mount.
fn socket_of(bench: &Bench) -> String {
    format!("/run/braid/{:x}.sock", fs::metadata(bench.path("m")).unwrap().dev())
}

#[test]
fn nobody_gets_more_rights_than_by_files() {
    BOTH.into_iter().for_each(rights);
}

#[test]
fn who_may_connect_is_decided_before_anything_is_mounted() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    let secret = bench.path("secret").display().to_string();
    let socket = format!("unix:{}", bench.path("kv.sock").display());
    let refused = |words: &[&str], says: &str| {
        let said = bench.refused(words);
        assert!(said.contains(says) && said.contains("help:"), "{words:?}: {said}");
        assert!(fs::read_dir(bench.path("m")).unwrap().next().is_none());
    };
    refused(&["log", "mount", "--kv", "127.0.0.1:26379", "fs", "m"], "every user of this machine");
    refused(
        &["log", "mount", "--kv", "0.0.0.0:26379", "--kv-user", "root", "fs", "m"],
        "anyone on the network",
    );
    let with_secret = [
        "log",
        "mount",
        "--kv",
        "127.0.0.1:26379",
        "--kv-password-file",
        &secret,
        "--log-file",
        "log",
        "fs",
        "m",
    ];
    refused(&with_secret, "No such file");
    fs::write(&secret, "pass word\n").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    refused(&with_secret, "others could know the password");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    refused(
        &["log", "mount", "--kv", &socket, "--kv-directory", "none", "--log-file", "log", "fs", "m"],
        "No such file",
    );
    refused(&["log", "mount", "--kv", &socket, "--kv-directory", "../a", "fs", "m"], "from its root on");
    let beside =
        ["--kv-directory", "x", "--kv-password-file", "secret", "--kv-user", "nobody", "--tier", "a=a", "m"];
    refused(&[&["mount", "--kv", &socket], &beside[..]].concat(), "name the file from the root on");
    refused(
        &[
            "mount",
            "--kv",
            "x",
            "--kv-directory",
            "x",
            "--kv-password-file",
            "x",
            "--kv-user",
            "0",
            "--tier",
            "a=a",
            "m",
        ],
        "write unix:",
    );
    let flags = ["--kv", &socket, "--kv-user", "nobody"];
    bench.ok(&[&with_secret[..8], &flags[..], &["fs", "m"]].concat());
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    says(&bench, b"GET a\r\nAUTH wrong\r\nAUTH default wrong\r\nPING\r\n", "-NOAUTH");
    let answer = raw(&bench, b"HELLO 3\r\nHELLO 3 AUTH default wrong\r\n");
    assert!(
        answer.starts_with(b"-NOAUTH") && answer.ends_with(b"-WRONGPASS invalid username-password pair\r\n")
    );
    says(&bench, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9999999\r\n", "Protocol error: invalid bulk length");
    says(&bench, b"*2\r\n$4\r\nAUTH\r\n$9\r\npass word\r\nSET mine 1\r\n", "+OK\r\n+OK\r\n");
    let mut port = std::net::TcpStream::connect("127.0.0.1:26379").unwrap();
    port.write_all(b"*2\r\n$4\r\nAUTH\r\n$9\r\npass word\r\nSET theirs 1\r\n").unwrap();
    let mut answer = [0; 10];
    port.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n+OK\r\n");
    let owner = |name: &str| fs::metadata(bench.path("m").join(name)).unwrap().uid();
    assert_eq!(owner("mine"), 0);
    assert_ne!(owner("theirs"), 0);
    bench.ok(&["umount", "m"]);
}

fn synced_is_kept(what: What) {
    let Some(bench) = mounted(what, &[]) else { return };
    let daemon = pid(&bench);
    for round in 0..50 {
        bench_put(&bench, &format!("k{round}"), &pattern(round, 100 * round as usize));
    }
    assert_eq!(raw(&bench, b"SAVE\r\n"), b"+OK\r\n");
    kill_and_wait(daemon);
    bench.ok(&["umount", "m"]);
    mount(&bench, what, &[]);
    for round in 0..50 {
        let output = bench.braid(&["kv", "get", "m", &format!("k{round}")]);
        assert_eq!(output.stdout, pattern(round, 100 * round as usize), "{round}");
    }
    bench.ok(&["umount", "m"]);
}

fn bench_put(bench: &Bench, key: &str, value: &[u8]) {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
    let mut stream = UnixStream::connect(bench.path("kv.sock")).unwrap();
    stream.write_all(&[head.as_bytes(), value, b"\r\n"].concat()).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

/// The daemon of the mount.
fn pid(bench: &Bench) -> i32 {
    let stream = UnixStream::connect(socket_of(bench)).unwrap();
    rustix::net::sockopt::socket_peercred(&stream).unwrap().pid.as_raw_nonzero().get()
}

#[test]
fn what_was_synced_survives_a_killed_daemon() {
    BOTH.into_iter().for_each(synced_is_kept);
}

#[test]
fn an_upgrade_and_a_crash_of_the_daemon_hang_up_and_the_next_one_serves() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("secret"), "pw\n").unwrap();
    fs::set_permissions(bench.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let (socket, secret) = (bench.path("kv.sock"), bench.path("secret"));
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let mount = format!(
        "mount:\n  restart: true\n  kv: {{ listen: [ 'unix:{}' ], directory: ., password-file: {}, user: root, connections: 9 }}\n",
        socket.display(),
        secret.display()
    );
    bench.write_stack(&(stack + &mount));
    bench.ok(&["mount", "s.yaml", "m"]);
    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains("connections: 9") && dump.contains("password-file:"), "{dump}");
    let put = |value: &str| {
        let request = format!("AUTH pw\r\nSET k {value}\r\nGET k\r\n");
        let expected = format!("+OK\r\n+OK\r\n${}\r\n{value}\r\n", value.len());
        until("it serves", || {
            UnixStream::connect(&socket).is_ok() && raw(&bench, request.as_bytes()) == expected.as_bytes()
        });
    };
    put("first");
    let mut kept = UnixStream::connect(&socket).unwrap();
    bench.ok(&["upgrade", "m"]);
    assert_eq!(kept.read(&mut [0; 9]).unwrap(), 0, "it is hung up on");
    put("second");
    let before = pid(&bench);
    kill_and_wait(before);
    assert_ne!(bench.status()["pid"], before);
    put("third");
    assert_eq!(fs::read(bench.path("m/k")).unwrap(), b"third");
    bench.unmount_clean();
}

#[test]
fn a_read_only_mount_takes_no_values() {
    let Some(bench) = mounted(What::Volume, &[]) else { return };
    bench.ok(&["kv", "put", "m", "k", "v"]);
    bench.ok(&["umount", "m"]);
    mount(&bench, What::Volume, &["-o", "ro"]);
    assert_eq!(bench.ok(&["kv", "get", "m", "k"]), "v");
    let said = bench.refused(&["kv", "put", "m", "k", "w"]);
    assert!(said.contains("Read-only file system"), "{said}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn rules_of_the_module_permissions_hold_for_keys_too() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    bench.write_stack(&format!(
        "stack:\n  permissions:\n    rules:\n      - {{ paths: [ 'island/**' ], uid: [ {BOB} ], deny: [ read, write, list ] }}\n    \
         volume: {{ home: a, tiers: {{ a: {{ dir: a }} }} }}\n"
    ));
    bench.ok(&["mount", "s.yaml", "m", "--no-measure"]);
    fs::create_dir(bench.path("m/island")).unwrap();
    fs::set_permissions(bench.path("m/island"), Permissions::from_mode(0o777)).unwrap();
    fs::write(bench.path("m/island/k"), "v").unwrap();
    fs::set_permissions(bench.path("m/island/k"), Permissions::from_mode(0o666)).unwrap();
    let by = |uid: u32, words: &[&str]| as_user(uid, &bench.command(words));
    for words in [
        &["kv", "get", "m/island", "k"][..],
        &["kv", "put", "m/island", "k", "w"],
        &["kv", "put", "m/island", "new", "w"],
        &["kv", "delete", "m/island", "k"],
        &["kv", "scan", "m/island"],
    ] {
        let output = by(BOB, words);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{words:?}: {}", said(&output));
    }
    assert_eq!(by(ALICE, &["kv", "scan", "m/island"]).stdout, b"k\n");
    assert_eq!(by(ALICE, &["kv", "get", "m/island", "k"]).stdout, b"v");
    assert!(by(ALICE, &["kv", "put", "m/island", "k", "w"]).status.success());
    assert_eq!(fs::read(bench.path("m/island/k")).unwrap(), b"w");
    bench.unmount_clean();
}
