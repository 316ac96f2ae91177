//! The simulated file system answers like the kernel's: the same calls on both,
//! by hand where the answer matters and at random for the rest.

use super::*;
use braid_contract::SplitMix;
use braid_contract::{FallocateMode, RenameMode, SetTime, Timestamp, XattrMode};
use std::collections::BTreeMap;

/// A call, with everything that it is given.
#[derive(Debug)]
enum Call {
    Create(String),
    Mkdir(String, u32),
    Mknod(String, u32),
    Symlink(String, String),
    Link(String, String),
    Remove(String, bool),
    Rename(String, String, RenameMode),
    Open(String, Access),
    Write(String, u64, usize),
    Truncate(String, u64),
    Allocate(String, FallocateMode, u64, u64),
    Copy(String, u64, String, u64, u64),
    SetXattr(String, &'static str, usize, XattrMode),
    RemoveXattr(String, &'static str),
    SetMode(String, u32),
    SetOwner(String, Option<u32>, Option<u32>),
    SetTimes(String, Option<i64>, Option<i64>),
    ReadLink(String),
    Sync(String, bool),
}

impl Call {
    /// Carries the call out: a number that it answers, or why not.
    fn apply(&self, root: &Fd, tag: u8) -> Result<u64> {
        let path = |path: &String| root.open_at(os(path), Access::Path);
        let file = |path: &String| root.open_at(os(path), Access::ReadWrite);
        let time = |secs: Option<i64>| secs.map(|secs| SetTime::At(Timestamp { secs, nanos: 5 }));
        let done = |result: Result<()>| result.map(|()| 0);
        match self {
            Self::Create(name) => root.create_at(os(name), 0o640).map(|_| 0),
            Self::Mkdir(name, mode) => done(root.make_dir_at(os(name), *mode)),
            Self::Mknod(name, mode) => done(root.make_node_at(os(name), *mode, 0x105)),
            Self::Symlink(name, target) => done(root.make_symlink_at(os(name), os(target))),
            Self::Link(name, new) => done(path(name)?.link_to(&**root, os(new))),
            Self::Remove(name, dir) => done(root.remove_at(os(name), *dir)),
            Self::Rename(name, new, mode) => done(root.rename_at(os(name), &**root, os(new), *mode)),
            Self::Open(name, access) => root.open_at(os(name), *access).map(|_| 0),
            Self::Write(name, offset, len) => {
                let bytes = vec![tag; *len];
                let (left, right) = bytes.split_at(len / 3);
                let bufs = [IoSlice::new(left), IoSlice::new(right)];
                Ok(file(name)?.write_at(*offset, &bufs, false)? as u64)
            }
            Self::Truncate(name, size) => done(file(name)?.truncate(*size)),
            Self::Allocate(name, mode, offset, len) => done(file(name)?.allocate(*mode, *offset, *len)),
            Self::Copy(from, offset, to, to_offset, len) => {
                file(from)?.copy_range(*offset, &*file(to)?, *to_offset, *len)
            }
            Self::SetXattr(name, key, len, mode) => {
                done(path(name)?.set_xattr(os(key), &vec![tag; *len], *mode))
            }
            Self::RemoveXattr(name, key) => done(path(name)?.remove_xattr(os(key))),
            Self::SetMode(name, mode) => done(path(name)?.set_mode(*mode)),
            Self::SetOwner(name, uid, gid) => done(path(name)?.set_owner(*uid, *gid)),
            Self::SetTimes(name, atime, mtime) => done(path(name)?.set_times(time(*atime), time(*mtime))),
            Self::ReadLink(name) => path(name)?.read_link().map(|target| target.len() as u64),
            Self::Sync(name, data_only) => done(file(name)?.sync(*data_only)),
        }
    }
}

/// Draws calls.
struct Draw(SplitMix);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A path that never leads out of the directory that it begins in: each
    /// `..` follows the name of a directory.
    fn path(&mut self) -> String {
        let dir = self.one_of(&["", "", "d0/", "d1/", "d0/d1/", "f0/", "d0/../"]);
        let name = self.one_of(&["f0", "f0", "f1", "f2", "d0", "d1", "s0", ".", "d0/..", "p0"]);
        format!("{dir}{name}")
    }

    fn file(&mut self) -> String {
        let dir = self.one_of(&["", "", "d0/"]);
        let name = self.one_of(&["f0", "f0", "f1", "f2", "d0"]);
        format!("{dir}{name}")
    }

    fn offset(&mut self) -> u64 {
        match self.below(3) {
            0 => self.below(6) * 4096,
            _ => self.below(24_000),
        }
    }

    fn name_call(&mut self) -> Call {
        let (path, other) = (self.path(), self.path());
        match self.below(12) {
            0..3 => Call::Create(path),
            3 => Call::Mkdir(path, self.one_of(&[0o755, 0o2750, 0o1700])),
            4 => Call::Symlink(
                self.one_of(&["s0", "d0/s0", "f1"]).to_owned(),
                self.one_of(&["f0", "d0", "nowhere", ""]).to_owned(),
            ),
            5 => Call::Mknod(path, self.one_of(&[0o140_600, 0o100_600, 0o040_755])),
            6 => Call::Link(path, other),
            7 | 8 => Call::Remove(path, self.below(2) == 0),
            9 => {
                let accesses =
                    [Access::Path, Access::Read, Access::Write, Access::ReadWrite, Access::Directory];
                Call::Open(path, self.one_of(&accesses))
            }
            _ => {
                let modes =
                    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::Whiteout];
                Call::Rename(path, other, self.one_of(&modes))
            }
        }
    }

    fn file_call(&mut self) -> Call {
        let (file, offset, len) = (self.file(), self.offset(), self.offset());
        match self.below(9) {
            0..3 => Call::Write(file, offset, len as usize / 2),
            3 => Call::Truncate(file, offset),
            4 => Call::Allocate(file, FallocateMode::PunchHole, offset, len),
            5 => {
                let keep_size = self.below(2) == 0;
                Call::Allocate(file, FallocateMode::Allocate { keep_size }, offset, len)
            }
            6 => {
                let keep_size = self.below(2) == 0;
                Call::Allocate(file, FallocateMode::ZeroRange { keep_size }, offset, len)
            }
            7 => Call::Sync(file, self.below(2) == 0),
            _ => Call::Copy(file, offset, self.file(), self.offset(), len),
        }
    }

    fn attr_call(&mut self) -> Call {
        let path = self.path();
        let key = self.one_of(&["user.a", "user.b", "trusted.a", "nonsense"]);
        match self.below(7) {
            0 => {
                let modes = [XattrMode::Set, XattrMode::Create, XattrMode::Replace];
                Call::SetXattr(path, key, self.below(100) as usize, self.one_of(&modes))
            }
            1 => Call::RemoveXattr(path, key),
            2 => Call::SetMode(path, self.one_of(&[0o600, 0o4755, 0o2755, 0o2644, 0o777])),
            3 => Call::SetOwner(path, self.one_of(&[None, Some(1)]), self.one_of(&[None, Some(2)])),
            4 => Call::SetTimes(path, self.one_of(&[None, Some(7)]), self.one_of(&[None, Some(-9)])),
            _ => Call::ReadLink(path),
        }
    }

    fn call(&mut self) -> Call {
        match self.below(10) {
            0..4 => self.name_call(),
            4..8 => self.file_call(),
            _ => self.attr_call(),
        }
    }
}

/// The common part of both file systems, by path.
fn tree(root: &Fd) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![String::new()];
    while let Some(path) = todo.pop() {
        let dir = if path.is_empty() { root.reopen(Access::Directory) } else { open(root, &path) };
        for name in names(&*dir.unwrap()) {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let fd = root.open_at(os(&path), Access::Path).unwrap();
            let attr = fd.stat().unwrap().attr;
            let mut text = format!("{:?} {:o} {} {}", attr.kind, attr.mode, attr.uid, attr.gid);
            if open(root, &path).is_ok() {
                text += &format!(" {}", attr.nlink);
                todo.push(path.clone());
            } else {
                text += &format!(" {} {} {:x}", attr.nlink, attr.size, attr.rdev);
            }
            if attr.mtime.secs <= 7 {
                text += &format!(" {:?}", attr.mtime);
            }
            let mut keys = [0; 256];
            let len = fd.list_xattr(&mut keys).unwrap_or(0);
            let mut keys: Vec<_> = keys[..len].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
            keys.retain(|key| key.starts_with(b"user.") || key.starts_with(b"trusted."));
            keys.sort();
            text += &format!(" {keys:?}");
            if let Ok(file) = root.open_at(os(&path), Access::Read)
                && attr.kind == braid_contract::FileKind::Regular
            {
                let bytes = read(&file, 0, 1 << 20);
                let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
                text += &format!(" {:?}", runs.collect::<Vec<_>>());
            }
            found.insert(path, text);
        }
    }
    found
}

fn open(root: &Fd, path: &str) -> Result<Fd> {
    root.open_at(os(path), Access::Directory)
}

#[test]
fn random_calls_get_the_answers_of_the_kernel() {
    let mut compared = 0;
    'seeds: for seed in 0..120 {
        let dir = tempfile::tempdir().unwrap();
        let kernel = mkdir(&braid_stores::native::open_tier_dir(dir.path()).unwrap(), "base");
        let simulated = mkdir(&disk(Model::WORST).root(), "base");
        let mut draw = Draw(SplitMix::new(seed));
        let mut calls = Vec::new();
        for step in 0..200 {
            let call = draw.call();
            let tag = (step % 250 + 1) as u8;
            let answers = [&kernel, &simulated].map(|root| {
                let answer = call.apply(root, tag);
                answer.map_err(|error| error.errno())
            });
            calls.push(call);
            // Operations that the file system below lacks, and paths through
            // symbolic links, which are not used.
            if answers[0] == Err(Errno::EOPNOTSUPP) || answers[1] == Err(Errno::ELOOP) {
                if answers[0] == answers[1] {
                    continue;
                }
                continue 'seeds;
            }
            compared += 1;
            assert_eq!(answers[0], answers[1], "seed {seed}: {:?} of {calls:#?}", calls.last());
        }
        assert_eq!(tree(&kernel), tree(&simulated), "seed {seed}: {calls:#?}");
    }
    assert!(compared > 2000, "{compared}");
}

#[test]
fn descriptors_do_only_what_they_were_opened_for() {
    let root = disk(APART).root();
    create(&root, "file");
    let open = |access| root.open_at(os("file"), access).unwrap();
    let write = |access| errno(open(access).write_at(0, &[IoSlice::new(b"x")], false));
    let read = |access| errno(open(access).read_at(0, &mut [], false));
    let cases = [
        (Access::Path, Some(Errno::EBADF), Some(Errno::EBADF)),
        (Access::Read, None, Some(Errno::EBADF)),
        (Access::Write, Some(Errno::EBADF), None),
        (Access::ReadWrite, None, None),
    ];
    for (access, may_read, may_write) in cases {
        assert_eq!((read(access), write(access)), (may_read, may_write), "{access:?}");
    }
    assert_eq!(errno(open(Access::Read).truncate(0)), Some(Errno::EINVAL));
    assert_eq!(errno(open(Access::Path).sync(false)), Some(Errno::EBADF));
    assert_eq!(errno(open(Access::Write).map(0, 4096)), Some(Errno::EACCES));
    open(Access::ReadWrite).truncate(4096).unwrap();
    let words = open(Access::Read).map(0, 4096).unwrap();
    assert_eq!(words.load(0).unwrap(), 0x78);
    assert_eq!(errno(words.store(0, 1)), Some(Errno::EROFS));
}

#[test]
fn a_full_disk_writes_what_fits_and_gets_space_back() {
    let config = DiskConfig { capacity: 8 * 4096, ..disk(APART).config().clone() };
    let disk = Disk::new(config);
    let root = disk.root();
    let (a, b) = (create(&root, "a"), create(&root, "b"));
    let put = |file: &Fd, offset, blocks: usize| {
        file.write_at(offset, &[IoSlice::new(&vec![1; blocks * 4096])], false)
    };
    let free = || root.usage().unwrap().space.free / 4096;
    assert_eq!(put(&a, 0, 6).unwrap(), 6 * 4096);
    assert_eq!(put(&b, 0, 6).unwrap(), 2 * 4096);
    assert_eq!(errno(put(&b, 8192, 1)), Some(Errno::ENOSPC));
    assert_eq!(put(&b, 0, 2).unwrap(), 8192);
    let allocate = FallocateMode::Allocate { keep_size: true };
    assert_eq!(errno(b.allocate(allocate, 8192, 4096)), Some(Errno::ENOSPC));
    a.allocate(FallocateMode::PunchHole, 0, 8192).unwrap();
    assert_eq!(free(), 2);
    b.allocate(allocate, 8192, 4096).unwrap();
    assert_eq!(free(), 1);
    a.truncate(3 * 4096).unwrap();
    assert_eq!(free(), 4);
    root.remove_at(os("b"), false).unwrap();
    assert_eq!(free(), 4);
    drop(b);
    assert_eq!(free(), 7);
}

#[test]
fn an_inode_is_found_by_its_handle_as_long_as_it_exists() {
    let disk = disk(APART);
    let root = disk.root();
    let file = create(&root, "file");
    let (handle, ino) = (file.handle().unwrap(), file.stat().unwrap().attr.ino);
    root.rename_at(os("file"), &*root, os("moved"), RenameMode::Replace).unwrap();
    let again = root.open_handle(&handle, Access::Read).unwrap();
    assert_eq!(again.stat().unwrap().attr.ino, ino);
    root.remove_at(os("moved"), false).unwrap();
    drop((file, again));
    assert_eq!(errno(root.open_handle(&handle, Access::Path)), Some(Errno::ESTALE));
    create(&root, "file");
    assert_eq!(errno(root.open_handle(&handle, Access::Path)), Some(Errno::ESTALE));
}

#[test]
fn two_disks_do_not_mix() {
    let (one, other) = (disk(APART), disk(APART));
    let file = create(&one.root(), "file");
    assert_eq!(errno(file.link_to(&*other.root(), os("x"))), Some(Errno::EXDEV));
    let renamed = one.root().rename_at(os("file"), &*other.root(), os("x"), RenameMode::Replace);
    assert_eq!(errno(renamed), Some(Errno::EXDEV));
    assert_eq!(errno(file.copy_range(0, &*create(&other.root(), "y"), 0, 1)), Some(Errno::EXDEV));
}

#[test]
fn reading_a_directory_resumes_where_it_stopped_whatever_changed() {
    let root = disk(APART).root();
    for name in ["a", "b", "c", "d"] {
        create(&root, name);
    }
    let mut seen: Vec<String> = Vec::new();
    let mut offset = 0;
    for turn in 0..10 {
        root.read_dir(offset, &mut |entry| {
            seen.push(entry.name.to_string_lossy().into_owned());
            offset = entry.next_offset;
            Ok(false)
        })
        .unwrap();
        if turn == 3 {
            root.remove_at(os("a"), false).unwrap();
            root.remove_at(os("c"), false).unwrap();
            create(&root, "e");
        }
    }
    assert_eq!(seen, [".", "..", "a", "b", "d", "e"]);
}
