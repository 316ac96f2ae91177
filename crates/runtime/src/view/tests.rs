//! Each attack is one that the kernel would have stopped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use braid_contract::{
    Layer, OpenFlags, RenameMode, SeekTarget, Served, SetTime, Timestamp, WriteFlags, XattrMode,
};
use braid_testkit::dir_fs::{Choice, DirFs};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use tempfile::TempDir;

const USER: u32 = 54_321;
const GROUP: u32 = 54_322;
const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };
const NONE: OpenFlags = OpenFlags { read: false, write: false, direct: false, sync: false };

/// A user's view of a directory in which all may write.
struct Bed {
    fs: Served<View>,
    dir: TempDir,
}

impl Bed {
    /// `None` without root: only root can give files away.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            braid_testkit::skipped("root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let top = Arc::new(DirFs::new(dir.path(), Choice::Cached));
        let view = View::new(top, None, (false, false), KnownFiles::default());
        view.show(InodeId::ROOT).unwrap();
        Some(Self { fs: Served(view), dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of this owner, group and mode.
    fn file(&self, name: &str, (uid, gid): (u32, u32), mode: u32) -> InodeId {
        fs::write(self.path(name), "content").unwrap();
        chown(self.path(name), Some(uid), Some(gid)).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        self.look(name)
    }

    fn look(&self, name: &str) -> InodeId {
        self.fs.lookup(&user(), InodeId::ROOT, OsStr::new(name)).unwrap().attr.ino
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().mode() & 0o7777
    }

    fn set(&self, ino: InodeId, changes: SetAttr) -> Result<Attr> {
        self.fs.setattr(&user(), ino, None, &changes)
    }
}

fn user() -> Caller {
    Caller { uid: USER, gid: USER, groups: Some(Arc::from([])), pid: 1, tid: 1, of_stack: false }
}

fn refused<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Notes the modes of files that are to be made.
struct Noting {
    inner: DirFs,
    modes: Mutex<Vec<u32>>,
}

impl Layer for Noting {
    fn child(&self) -> &dyn FileSystem {
        &self.inner
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        self.modes.lock().push(mode & 0o7777);
        self.inner.mknod(caller, parent, name, mode, umask, rdev)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        self.modes.lock().push(mode);
        self.inner.create(caller, parent, name, mode, umask, exclusive, request)
    }
}

#[test]
fn no_file_runs_with_the_rights_of_a_group_that_its_maker_is_not_in() {
    let Some(bed) = Bed::new() else { return };
    chown(bed.dir.path(), None, Some(GROUP)).unwrap();
    fs::set_permissions(bed.dir.path(), Permissions::from_mode(0o2777)).unwrap();
    let inner = DirFs::new(bed.dir.path(), Choice::Cached);
    let top = Arc::new(Noting { inner, modes: Mutex::default() });
    let view =
        View::new(Arc::clone(&top) as Arc<dyn FileSystem>, None, (false, false), KnownFiles::default());
    view.show(InodeId::ROOT).unwrap();
    let (fs, root, member) = (Served(view), InodeId::ROOT, Caller { gid: GROUP, ..user() });
    let create = |caller: &Caller, name: &str, mode, exclusive| {
        fs.create(caller, root, OsStr::new(name), mode, 0, exclusive, BOTH.into()).unwrap();
    };
    create(&user(), "made", 0o2755, true);
    create(&user(), "opened", 0o2755, false);
    fs.mknod(&user(), root, OsStr::new("node"), 0o102_755, 0, 0).unwrap();
    // As it always was for locks, and for members.
    create(&user(), "lock", 0o2644, true);
    create(&member, "theirs", 0o2755, true);
    assert_eq!(*top.modes.lock(), [0o755, 0o755, 0o755, 0o2644, 0o2755]);
}

#[test]
fn set_id_bits_are_neither_lent_nor_taken_by_who_may_not() {
    let Some(bed) = Bed::new() else { return };
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let mine = bed.file("mine", (USER, USER), 0o755);
    for lent in [0o4755, 0o2755, 0o6777] {
        assert_eq!(refused(bed.set(mine, mode(lent))), Some(Errno::EPERM), "{lent:o}");
    }
    bed.set(mine, mode(0o2700)).unwrap();
    bed.set(mine, mode(0o100_700)).unwrap();
    assert_eq!(bed.mode("mine"), 0o700);
    let theirs = bed.file("theirs", (0, 0), 0o4755);
    let kill = SetAttr { kill_set_id: true, ..SetAttr::default() };
    assert_eq!(refused(bed.set(theirs, kill)), Some(Errno::EACCES));
    assert_eq!(bed.mode("theirs"), 0o4755);
}

#[test]
fn one_time_alone_is_set_by_the_owner() {
    let Some(bed) = Bed::new() else { return };
    let theirs = bed.file("theirs", (0, 0), 0o666);
    let now = Some(SetTime::Now);
    bed.set(theirs, SetAttr { atime: now, mtime: now, ..SetAttr::default() }).unwrap();
    for times in [(now, None), (None, now), (now, Some(SetTime::At(Timestamp::default())))] {
        let changes = SetAttr { atime: times.0, mtime: times.1, ..SetAttr::default() };
        assert_eq!(refused(bed.set(theirs, changes)), Some(Errno::EPERM), "{times:?}");
    }
}

#[test]
fn directories_that_are_always_there_are_not_changed_by_name() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("dir")).unwrap();
    chown(bed.path("dir"), Some(USER), Some(USER)).unwrap();
    let (caller, dir) = (user(), bed.look("dir"));
    let other = OsStr::new("other");
    for (name, unlinked, removed) in
        [(".", Errno::EISDIR, Errno::EINVAL), ("..", Errno::EISDIR, Errno::ENOTEMPTY)]
    {
        let name = OsStr::new(name);
        assert_eq!(refused(bed.fs.unlink(&caller, dir, name)), Some(unlinked));
        assert_eq!(refused(bed.fs.rmdir(&caller, dir, name)), Some(removed));
        for (from, to) in [(name, other), (other, name)] {
            for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
                assert_eq!(refused(bed.fs.rename(&caller, dir, from, dir, to, mode)), Some(Errno::EBUSY));
            }
        }
        let made = [
            refused(bed.fs.mkdir(&caller, dir, name, 0o777, 0)),
            refused(bed.fs.mknod(&caller, dir, name, 0o100_666, 0, 0)),
            refused(bed.fs.symlink(&caller, dir, name, other)),
            refused(bed.fs.create(&caller, dir, name, 0o666, 0, false, BOTH.into())),
            refused(bed.fs.link(&caller, dir, dir, name)),
        ];
        assert_eq!(made, [Some(Errno::EEXIST); 5]);
    }
    assert!(bed.fs.lookup(&caller, dir, OsStr::new("..")).is_ok(), "it has been there");
}

#[test]
fn what_the_kernel_would_not_pass_on_is_refused() {
    let Some(bed) = Bed::new() else { return };
    let mine = bed.file("mine", (USER, USER), 0o600);
    let (caller, root, name) = (user(), InodeId::ROOT, OsStr::new("new"));
    for (mode, errno) in [(0o040_777, Errno::EPERM), (0o120_777, Errno::EINVAL), (0o777, Errno::EINVAL)] {
        assert_eq!(refused(bed.fs.mknod(&caller, root, name, mode, 0, 0)), Some(errno), "{mode:o}");
    }
    let long = "x".repeat(4096);
    for (target, errno) in [("", Errno::ENOENT), ("a\0b", Errno::EINVAL), (&long, Errno::ENAMETOOLONG)] {
        assert_eq!(refused(bed.fs.symlink(&caller, root, name, OsStr::new(target))), Some(errno));
    }
    let value = vec![0; (64 << 10) + 1];
    let set = bed.fs.setxattr(&caller, mine, OsStr::new("user.x"), &value, XattrMode::Set);
    assert_eq!(refused(set), Some(Errno(7)));
    let handle = bed.fs.open(&caller, mine, BOTH.into()).unwrap().handle;
    let end = i64::MAX as u64;
    let written = |offset| refused(bed.fs.write(&caller, handle, offset, b"12", WriteFlags::default()));
    assert_eq!((written(end - 1), written(u64::MAX)), (Some(Errno::EFBIG), Some(Errno::EFBIG)));
    assert_eq!(refused(bed.fs.read(&caller, handle, u64::MAX, &mut [0], false)), Some(Errno::EINVAL));
    assert_eq!(refused(bed.fs.seek(&caller, handle, end + 1, SeekTarget::Data)), Some(Errno::ENXIO));
    assert_eq!(refused(bed.fs.copy_range(&caller, handle, 0, handle, 3, 4)), Some(Errno::EINVAL));
    assert_eq!(refused(bed.fs.copy_range(&caller, handle, end, handle, 0, 4)), Some(Errno::EOVERFLOW));
    let size = SetAttr { size: Some(end + 1), ..SetAttr::default() };
    assert_eq!(refused(bed.set(mine, size)), Some(Errno::EINVAL));
    bed.fs.release(handle).unwrap();
}

#[test]
fn an_open_without_a_purpose_needs_all_rights() {
    let Some(bed) = Bed::new() else { return };
    let closed = bed.file("closed", (0, 0), 0o600);
    let half = bed.file("half", (0, 0), 0o644);
    for ino in [closed, half] {
        assert_eq!(refused(bed.fs.open(&user(), ino, NONE.into())), Some(Errno::EACCES));
    }
}

#[test]
fn a_file_that_others_put_in_the_way_is_not_taken_for_a_new_one() {
    let Some(bed) = Bed::new() else { return };
    bed.file("trap", (USER + 1, USER + 1), 0o666);
    bed.file("mine", (USER, USER), 0o600);
    let create = |name: &str| {
        let created = bed.fs.create(&user(), InodeId::ROOT, OsStr::new(name), 0o600, 0, false, BOTH.into());
        refused(created)
    };
    assert_eq!((create("trap"), create("mine")), (None, None));
    fs::set_permissions(bed.dir.path(), Permissions::from_mode(0o1777)).unwrap();
    assert_eq!((create("trap"), create("mine")), (Some(Errno::EACCES), None));
}

#[test]
fn an_inode_in_use_is_forgotten_when_it_is_not() {
    let known = KnownFiles::default();
    let ino = InodeId(7);
    (0..3).for_each(|_| known.learn(ino).unwrap());
    assert!(known.hold(ino) && known.hold(ino) && !known.hold(InodeId(8)));
    assert_eq!(known.forget(ino, 2), 0);
    assert_eq!((known.let_go(ino), known.let_go(ino)), (0, 2));
    assert!(known.hold(ino));
    assert_eq!(known.forget(ino, 9), 0);
    // It can't be used any more, but counts.
    assert!(known.has(ino).is_err());
    known.learn(ino).unwrap();
    assert_eq!(known.let_go(ino), 1);
    assert!(known.has(ino).is_ok());
    assert_eq!(known.forget(ino, 1), 1);
    assert!(!known.hold(ino));
}

/// Keeps what it is told.
#[derive(Default)]
struct Kernel(Mutex<Vec<String>>);

impl FrontCache for Kernel {
    fn names_came(&self, _: InodeId, names: &[OsString]) {
        self.0.lock().extend(names.iter().map(|name| format!("name {}", name.to_string_lossy())));
    }

    fn attributes_changed(&self, _: InodeId) {
        self.0.lock().push("attributes".into());
    }

    fn data_changed(&self, _: InodeId) {
        self.0.lock().push("data".into());
    }

    fn forget(&self, _: &[InodeId]) -> Result<()> {
        Ok(())
    }

    fn knows(&self, _: InodeId) -> bool {
        false
    }

    fn write_back(&self, _: InodeId) -> Result<()> {
        Ok(())
    }

    fn write_back_all(&self) -> Result<()> {
        self.0.lock().push("all".into());
        Ok(())
    }
}

#[test]
fn the_kernel_is_told_what_a_request_changed_and_nothing_of_one_that_failed() {
    let (dir, kernel) = (tempfile::tempdir().unwrap(), Arc::new(Kernel::default()));
    let top = Arc::new(DirFs::new(dir.path(), Choice::Cached));
    let cache = Arc::clone(&kernel) as Arc<dyn FrontCache>;
    let view = View::new(top, Some(cache), (false, false), KnownFiles::default());
    view.show(InodeId::ROOT).unwrap();
    let (fs, root) = (Served(view), InodeId::ROOT);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let me = Caller { uid, gid, groups: Some(Arc::from([])), pid: 1, tid: 1, of_stack: false };
    let told = || std::mem::take(&mut *kernel.0.lock());
    let create = || fs.create(&me, root, OsStr::new("a"), 0o600, 0, false, BOTH.into()).unwrap();
    let (entry, opened) = create();
    assert_eq!(told(), ["name a"]);
    create();
    assert!(told().is_empty(), "the name was there");
    assert!(fs.mkdir(&me, root, OsStr::new("a"), 0o700, 0).is_err() && told().is_empty());
    fs.write(&me, opened.handle, 0, b"content", WriteFlags::default()).unwrap();
    assert_eq!(told(), ["data"]);
    let ino = entry.attr.ino;
    fs.setattr(&me, ino, None, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    assert_eq!(told(), ["attributes"]);
    fs.setattr(&me, ino, None, &SetAttr { size: Some(3), ..SetAttr::default() }).unwrap();
    assert_eq!(told(), ["data"]);
    fs.link(&me, ino, root, OsStr::new("b")).unwrap();
    assert_eq!(told(), ["name b", "attributes"]);
    fs.rename(&me, root, OsStr::new("b"), root, OsStr::new("c"), RenameMode::Replace).unwrap();
    assert_eq!(told(), ["name b", "name c", "attributes"]);
    fs.unlink(&me, root, OsStr::new("c")).unwrap();
    assert_eq!(told(), ["name c", "attributes"]);
}
