//! Measures keys and values, and one file for each value: `cargo bench -p braid-log --bench
//! values -- SIDE WHERE BYTES COUNT [DEPTH]`. Sides: `library` (a log file system in the
//! file WHERE, which is overwritten), `redis` (a UNIX socket, with DEPTH requests under
//! way), `session` (a directory of a mount with a runtime), `files` (a directory). Values are put under new keys, read in another order, and
//! put once more; prints microseconds for each, as JSON.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement fails by panicking")]

mod common;

use braid_contract::key_value::VALUE_MAX;
use braid_contract::{Caller, InodeId, KeyValue, PutOptions, SplitMix};
use braid_log::{Device, Disk, LogFs, Owner, Settings, Use, format};
use braid_runtime::{DATA_MAX, Geometry, Options, Session};
use common::Machine;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the file of a log file system.
const SIZE: u64 = 1 << 30;

/// Something that has values.
trait Side {
    fn put(&mut self, keys: &[String], value: &[u8]);
    fn get(&mut self, keys: &[String], bytes: usize);
}

struct Library(LogFs);

impl Side for Library {
    fn put(&mut self, keys: &[String], value: &[u8]) {
        let bucket = self.0.bucket(InodeId::ROOT, None).unwrap();
        for key in keys {
            bucket.put(&Caller::root(), key.as_bytes(), value, PutOptions::default()).unwrap();
        }
    }

    fn get(&mut self, keys: &[String], bytes: usize) {
        let mut value = Vec::new();
        let bucket = self.0.bucket(InodeId::ROOT, None).unwrap();
        for key in keys {
            assert!(
                bucket.read(&Caller::root(), key.as_bytes(), &mut value, VALUE_MAX).unwrap()
                    && value.len() == bytes
            );
        }
    }
}

/// A directory of a mount, by a session.
struct InSession(Arc<dyn KeyValue>);

impl InSession {
    fn begin(dir: &Path) -> Self {
        let socket = format!("/run/braid/{:x}.run", fs::metadata(dir).unwrap().dev());
        let geometry = Geometry { data: DATA_MAX, ..Geometry::default() };
        let options = Options { geometry, ..Options::default() };
        let (session, root) = Session::begin(Path::new(&socket), dir, options).unwrap();
        Self(session.values(root).unwrap())
    }
}

impl Side for InSession {
    fn put(&mut self, keys: &[String], value: &[u8]) {
        for key in keys {
            self.0.put(&Caller::root(), key.as_bytes(), value, PutOptions::default()).unwrap();
        }
    }

    fn get(&mut self, keys: &[String], bytes: usize) {
        let mut value = Vec::new();
        for key in keys {
            assert!(
                self.0.read(&Caller::root(), key.as_bytes(), &mut value, VALUE_MAX).unwrap()
                    && value.len() == bytes
            );
        }
    }
}

struct Files(PathBuf);

impl Side for Files {
    fn put(&mut self, keys: &[String], value: &[u8]) {
        keys.iter().for_each(|key| File::create(self.0.join(key)).unwrap().write_all(value).unwrap());
    }

    fn get(&mut self, keys: &[String], bytes: usize) {
        let mut value = vec![0; bytes];
        keys.iter().for_each(|key| File::open(self.0.join(key)).unwrap().read_exact(&mut value).unwrap());
    }
}

struct Redis {
    stream: BufReader<UnixStream>,
    depth: usize,
}

impl Redis {
    /// Sends requests, so many at a time, and reads answers of these lengths.
    fn exchange(&mut self, keys: &[String], request: impl Fn(&mut Vec<u8>, &str), answer: usize) {
        let mut answers = vec![0; answer * self.depth];
        for keys in keys.chunks(self.depth) {
            let mut bytes = Vec::new();
            keys.iter().for_each(|key| request(&mut bytes, key));
            self.stream.get_mut().write_all(&bytes).unwrap();
            self.stream.read_exact(&mut answers[..answer * keys.len()]).unwrap();
            assert!(answers[0] != b'-', "{}", String::from_utf8_lossy(&answers));
        }
    }
}

impl Side for Redis {
    fn put(&mut self, keys: &[String], value: &[u8]) {
        let request = |bytes: &mut Vec<u8>, key: &str| {
            let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        };
        self.exchange(keys, request, b"+OK\r\n".len());
    }

    fn get(&mut self, keys: &[String], bytes: usize) {
        let request = |to: &mut Vec<u8>, key: &str| {
            to.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes());
        };
        self.exchange(keys, request, bytes + format!("${bytes}\r\n\r\n").len());
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [side, path, bytes, count, rest @ ..] = &words[..] else {
        return println!("give SIDE WHERE BYTES COUNT [DEPTH]");
    };
    let (bytes, count): (usize, usize) = (bytes.parse().unwrap(), count.parse().unwrap());
    let path = Path::new(path);
    let mut side: Box<dyn Side> = match side.as_str() {
        "library" => {
            let _ = fs::remove_file(path);
            braid_log::make_file(path, SIZE).unwrap();
            let disk: Arc<dyn Device> = Arc::new(Disk::open(path, Use::Write).unwrap());
            format(&disk, Owner::default(), &Machine).unwrap();
            Box::new(Library(LogFs::open(disk, Settings::default(), Arc::new(Machine)).unwrap()))
        }
        "session" => Box::new(InSession::begin(path)),
        "files" => Box::new(Files(path.to_owned())),
        _ => {
            let depth = rest.first().map_or(1, |depth| depth.parse().unwrap());
            Box::new(Redis { stream: BufReader::new(UnixStream::connect(path).unwrap()), depth })
        }
    };
    let mut random = SplitMix::new(1);
    let mut keys: Vec<String> = (0..count).map(|key| format!("key-{key:012}")).collect();
    let mut shuffle = |keys: &mut Vec<String>| {
        (1..keys.len()).for_each(|at| keys.swap(at, random.below(at as u64 + 1) as usize));
    };
    let mut value = vec![0; bytes];
    SplitMix::new(2).fill(&mut value);
    let mut line = format!("{{\"bytes\": {bytes}, \"count\": {count}");
    for what in ["put", "get", "again"] {
        shuffle(&mut keys);
        let begun = Instant::now();
        if what == "get" {
            side.get(&keys, bytes)
        } else {
            side.put(&keys, &value)
        }
        _ = write!(line, ", \"{what}_us\": {:.2}", begun.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    println!("{line}}}");
}
