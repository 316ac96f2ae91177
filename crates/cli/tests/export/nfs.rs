//! The mount as an NFS export: handles that clients keep lead to the same files
//! after the kernel forgot the inodes, and after a remount. The server is
//! nfs-ganesha, which opens files by their handles. Needs root, /dev/fuse and
//! ganesha.nfsd; skipped without them.

use crate::common::{Bench, RANGE, drop_caches, pattern, until};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes of one READ or WRITE.
const CHUNK: usize = 64 << 10;

/// Operations of NFS 4.0, by their numbers (RFC 7530).
mod op {
    pub(crate) const GETFH: u32 = 10;
    pub(crate) const LOOKUP: u32 = 15;
    pub(crate) const PUTFH: u32 = 22;
    pub(crate) const PUTROOTFH: u32 = 24;
    pub(crate) const READ: u32 = 25;
    pub(crate) const WRITE: u32 = 38;
}

/// A write is durable, as the file's attributes are.
const FILE_SYNC: u32 = 2;
const STALE: u32 = 70;

/// Words and byte strings as XDR has them (RFC 4506).
#[derive(Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn words(mut self, words: &[u32]) -> Self {
        words.iter().for_each(|word| self.0.extend(word.to_be_bytes()));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.words(&[u32::try_from(bytes.len()).unwrap()]);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// The state of a client that has not opened the file, and an offset.
    fn anonymous(self, offset: usize) -> Self {
        self.words(&[0; 4]).words(&[0, u32::try_from(offset).unwrap()])
    }
}

/// The rest of a reply.
struct Reply(Vec<u8>, usize);

impl Reply {
    fn word(&mut self) -> u32 {
        self.1 += 4;
        u32::from_be_bytes(self.0[self.1 - 4..self.1].try_into().unwrap())
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.word() as usize;
        let at = self.1;
        self.1 += len.next_multiple_of(4);
        self.0[at..at + len].to_vec()
    }

    /// The status of an operation, which must be `number`.
    fn status(&mut self, number: u32) -> u32 {
        assert_eq!(self.word(), number);
        self.word()
    }
}

/// A server over one mount, until it is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(bench: &Bench) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mount = bench.path("m");
        let config = format!(
            "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Enable_UDP = false; Bind_addr = 127.0.0.1;
                Enable_NLM = false; Enable_RQUOTA = false; }}
            NFSv4 {{ Graceless = true; }}
            EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /v; Access_Type = RW; Squash = No_Root_Squash;
                SecType = sys; FSAL {{ Name = VFS; }} }}\n",
            mount.display()
        );
        fs::write(bench.path("ganesha.conf"), config).unwrap();
        fs::create_dir_all("/var/run/ganesha").unwrap();
        let process = Command::new("ganesha.nfsd")
            .arg("-F")
            .args(["-f", "ganesha.conf", "-L", "ganesha.log", "-p", "ganesha.pid"])
            .current_dir(bench.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port };
        until("the server takes connections", || server.connect().is_ok());
        server
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Sends operations as one compound; answers the status and results.
    fn compound(&self, count: u32, operations: &Xdr) -> (u32, Reply) {
        let credentials = Xdr::default().words(&[0]).bytes(b"test").words(&[0, 0, 0]);
        let mut call = Xdr::default().words(&[1, 0, 2, 100_003, 4, 1, 1]).bytes(&credentials.0);
        call = call.words(&[0, 0]).bytes(b"").words(&[0, count]);
        call.0.extend(&operations.0);
        let mut stream = self.connect().unwrap();
        let last = 1 << 31;
        let len = u32::try_from(call.0.len()).unwrap();
        stream.write_all(&(len | last).to_be_bytes()).unwrap();
        stream.write_all(&call.0).unwrap();
        let mut body = Vec::new();
        let mut head = 0;
        while head & last == 0 {
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            head = u32::from_be_bytes(word);
            let at = body.len();
            body.resize(at + (head & !last) as usize, 0);
            stream.read_exact(&mut body[at..]).unwrap();
        }
        let mut reply = Reply(body, 0);
        // The call's number, a reply, accepted, no verifier, success.
        assert_eq!([(); 6].map(|()| reply.word()), [1, 1, 0, 0, 0, 0]);
        let status = reply.word();
        reply.bytes();
        reply.word();
        (status, reply)
    }

    /// The handle of a file of the export.
    fn handle(&self, path: &[&str]) -> Vec<u8> {
        let mut operations = Xdr::default().words(&[op::PUTROOTFH, op::LOOKUP]).bytes(b"v");
        for name in path {
            operations = operations.words(&[op::LOOKUP]).bytes(name.as_bytes());
        }
        let names = u32::try_from(path.len()).unwrap() + 1;
        let (status, mut reply) = self.compound(names + 2, &operations.words(&[op::GETFH]));
        assert_eq!((status, reply.status(op::PUTROOTFH)), (0, 0));
        (0..names).for_each(|_| assert_eq!(reply.status(op::LOOKUP), 0));
        assert_eq!(reply.status(op::GETFH), 0);
        reply.bytes()
    }

    /// Writes and syncs chunk by chunk, so that each is placed by itself.
    fn write(&self, handle: &[u8], data: &[u8]) {
        for (at, chunk) in data.chunks(CHUNK).enumerate() {
            let to = Xdr::default().words(&[op::PUTFH]).bytes(handle).words(&[op::WRITE]);
            let (status, _) = self.compound(2, &to.anonymous(at * CHUNK).words(&[FILE_SYNC]).bytes(chunk));
            assert_eq!(status, 0);
        }
    }

    /// The contents of a file, or the status of the request that failed.
    fn read(&self, handle: &[u8]) -> Result<Vec<u8>, u32> {
        let mut data = Vec::new();
        loop {
            let from = Xdr::default().words(&[op::PUTFH]).bytes(handle).words(&[op::READ]);
            let size = u32::try_from(CHUNK).unwrap();
            let (status, mut reply) = self.compound(2, &from.anonymous(data.len()).words(&[size]));
            if status != 0 {
                return Err(status);
            }
            assert_eq!((reply.status(op::PUTFH), reply.status(op::READ)), (0, 0));
            let is_end = reply.word() == 1;
            data.extend(reply.bytes());
            if is_end {
                return Ok(data);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It closes its files then.
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.process.wait().unwrap();
    }
}

/// Mounts the volume again, with the device number that it has: the server's handles name that.
fn mount_again(bench: &Bench) {
    let device_of = |path: &Path| fs::metadata(path).unwrap().dev();
    let device = || device_of(&bench.path("m"));
    let wanted = device();
    let mut lower = Vec::new();
    // The lowest number that is free is taken, and other programs mount and unmount.
    until("the number is free", || {
        bench.unmount_clean();
        bench.ok(&["mount", "s.yaml", "m"]);
        if device() < wanted {
            bench.unmount_clean();
            let taken = bench.path(&format!("taken-{}", lower.len()));
            fs::create_dir_all(&taken).unwrap();
            mount("tmpfs", &taken, "tmpfs", MountFlags::empty(), None).unwrap();
            match device_of(&taken) < wanted {
                true => lower.push(taken),
                false => unmount(&taken, UnmountFlags::empty()).unwrap(),
            }
            bench.ok(&["mount", "s.yaml", "m"]);
        }
        device() == wanted
    });
    lower.iter().for_each(|taken| unmount(taken, UnmountFlags::empty()).unwrap());
}

#[test]
fn a_handle_of_a_client_outlives_caches_servers_and_mounts() {
    let Some(bench) = Bench::new() else { return };
    if Command::new("ganesha.nfsd").arg("-v").stdout(Stdio::null()).status().is_err() {
        return braid_testkit::skipped("ganesha.nfsd (package nfs-ganesha-vfs)");
    }
    let data = pattern(1, 30 * RANGE + 11);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.make_dir("m/dir");
    fs::write(bench.path("m/dir/file"), "").unwrap();
    let server = Server::start(&bench);
    let handle = server.handle(&["dir", "file"]);
    server.write(&handle, &data);
    assert!(server.read(&handle).unwrap() == data);
    drop_caches();
    assert!(server.read(&handle).unwrap() == data);
    drop(server);
    assert!(fs::read(bench.path("m/dir/file")).unwrap() == data);
    let runs = bench.runs("m/dir/file");
    assert!(runs.iter().any(|run| run["tier"]["name"] == "slow"), "{runs:?}");

    mount_again(&bench);
    let server = Server::start(&bench);
    assert!(server.read(&handle).unwrap() == data);
    let changed = pattern(2, 3 * RANGE);
    server.write(&handle, &changed);
    drop(server);
    let file = fs::read(bench.path("m/dir/file")).unwrap();
    assert!(file[..3 * RANGE] == changed && file[3 * RANGE..] == data[3 * RANGE..]);

    fs::remove_file(bench.path("m/dir/file")).unwrap();
    drop_caches();
    let server = Server::start(&bench);
    assert_eq!(server.read(&handle), Err(STALE));
    drop(server);
    bench.unmount_clean();
}
