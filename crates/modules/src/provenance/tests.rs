//! The users in records, over a directory.

use super::*;
use braid_contract::OpenFlags;
use braid_testkit::dir_fs::{Choice, DirFs};

struct Bed {
    module: Provenance,
    child: Arc<dyn FileSystem>,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let child: Arc<dyn FileSystem> = Arc::new(DirFs::new(dir.path(), Choice::Cached));
        Self { module: Provenance::new(&Settings {}, Arc::clone(&child)).unwrap(), child, _dir: dir }
    }

    fn fs(&self) -> &dyn FileSystem {
        &self.module
    }

    fn create(&self, caller: &Caller, name: &str) -> (InodeId, HandleId) {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let name = OsStr::new(name);
        let made = self.fs().create(caller, InodeId::ROOT, name, 0o600, 0, true, flags.into());
        let (entry, opened) = made.unwrap();
        (entry.attr.ino, opened.handle)
    }

    fn write(&self, caller: &Caller, handle: HandleId, write_back: bool) {
        let flags = WriteFlags { write_back, ..WriteFlags::default() };
        self.fs().write(caller, handle, 0, b"data", flags).unwrap();
    }

    /// The users of the lines.
    fn told(&self, ino: InodeId) -> Vec<String> {
        let text = match self.fs().getxattr(&Caller::root(), ino, OsStr::new(SHOWN)) {
            Ok(text) => String::from_utf8(text).unwrap(),
            Err(error) => return vec![format!("{:?}", error.errno())],
        };
        let words = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words[1].starts_with("time=1") && words[4].starts_with("pid="), "{line}");
            format!("{} {}", words[0], words[2])
        };
        text.lines().map(words).collect()
    }
}

/// A user, by a process that is there.
fn user(uid: u32) -> Caller {
    let pid = std::process::id();
    Caller { uid, gid: 7, groups: None, pid, tid: pid, of_stack: false }
}

#[test]
fn it_is_known_who_made_a_file_and_who_wrote_it_last() {
    let bed = Bed::new();
    let root = Caller::root();
    let (ino, handle) = bed.create(&root, "f");
    assert_eq!(bed.told(ino), ["created uid=0"]);
    bed.write(&user(12), handle, false);
    assert_eq!(bed.told(ino), ["created uid=0", "written uid=12"]);
    let before = bed.child.getxattr(&root, ino, OsStr::new("trusted.braid-provenance"));
    assert!(!String::from_utf8(before.unwrap()).unwrap().contains("written"), "it is kept when it is closed");
    bed.write(&user(13), handle, true);
    assert_eq!(bed.told(ino)[1], "written uid=0", "what is written back is the opener's");
    bed.fs().release(handle).unwrap();
    let kept = bed.child.getxattr(&root, ino, OsStr::new("trusted.braid-provenance")).unwrap();
    let kept = String::from_utf8(kept).unwrap();
    assert!(kept.starts_with("created ") && kept.contains("\nwritten "), "{kept}");
    // A truncation comes without an open file.
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    let attr = bed.fs().setattr(&user(14), ino, None, &cut).unwrap();
    assert_eq!(attr.ctime, bed.child.getattr(&root, ino, None).unwrap().ctime);
    assert_eq!(bed.told(ino), ["created uid=0", "written uid=14"]);
    let dir = bed.fs().mkdir(&root, InodeId::ROOT, OsStr::new("d"), 0o700, 0).unwrap();
    assert_eq!(bed.told(dir.attr.ino), ["created uid=0"]);
    assert_eq!(bed.told(InodeId::ROOT), ["ENODATA"], "it was there before");
    let lost = Module::figures(&bed.module).into_iter().find(|figure| figure.name == "provenance_lost");
    assert_eq!(lost.unwrap().value, braid_contract::FigureValue::Counter(0.0));
}

#[test]
fn a_process_is_named_by_its_command() {
    let bed = Bed::new();
    let me = Caller { uid: 0, gid: 0, ..user(0) };
    let (ino, _) = bed.create(&me, "f");
    let text = bed.fs().getxattr(&me, ino, OsStr::new(SHOWN)).unwrap();
    let command = std::fs::read_to_string("/proc/self/comm").unwrap();
    let expected = format!("pid={} command={command}", std::process::id());
    assert!(String::from_utf8(text).unwrap().ends_with(&expected), "{expected}");
}

#[test]
fn nobody_changes_it_or_sees_where_it_is() {
    let bed = Bed::new();
    let root = Caller::root();
    let (ino, _) = bed.create(&root, "f");
    bed.fs().setxattr(&root, ino, OsStr::new("user.mine"), b"1", XattrMode::Set).unwrap();
    assert_eq!(bed.fs().listxattr(&root, ino).unwrap(), b"user.mine\0");
    for name in [SHOWN, "trusted.braid-provenance", "user.braid-provenance"] {
        let name = OsStr::new(name);
        let set = bed.fs().setxattr(&root, ino, name, b"me", XattrMode::Set);
        assert_eq!(set.unwrap_err().errno(), Errno::EPERM);
        assert_eq!(bed.fs().removexattr(&root, ino, name).unwrap_err().errno(), Errno::EPERM);
    }
    assert_eq!(bed.told(ino), ["created uid=0"]);
    let kept = OsStr::new("trusted.braid-provenance");
    assert_eq!(bed.fs().getxattr(&root, ino, kept).unwrap_err().errno(), Errno::ENODATA);
}

#[test]
fn a_successor_knows_who_has_files_open() {
    let bed = Bed::new();
    let (ino, handle) = bed.create(&Caller::root(), "f");
    bed.write(&user(12), handle, false);
    let next = Provenance::new(&Settings {}, Arc::clone(&bed.child)).unwrap();
    let state = Module::export(&bed.module);
    Module::import(&next, &state).unwrap();
    let bed = Bed { module: next, ..bed };
    assert_eq!(bed.told(ino), ["created uid=0", "written uid=12"]);
    bed.write(&user(13), handle, true);
    assert_eq!(bed.told(ino)[1], "written uid=0");
    let odd = State { version: 1, bytes: b"odd".to_vec() };
    assert_eq!(Module::import(&bed.module, &odd).unwrap_err().errno(), Errno::EINVAL);
    // One that comes anew does not know them, and asks for the file.
    let newcomer = Provenance::new(&Settings {}, Arc::clone(&bed.child)).unwrap();
    let bed = Bed { module: newcomer, ..bed };
    bed.write(&user(15), handle, false);
    assert_eq!(bed.told(ino)[1], "written uid=15");
    Module::end(&bed.module);
    let last = Provenance::new(&Settings {}, Arc::clone(&bed.child)).unwrap();
    assert_eq!(Bed { module: last, ..bed }.told(ino)[1], "written uid=15");
}

#[test]
fn after_a_crash_who_wrote_is_kept_unless_another_one_did_later() {
    let bed = Bed::new();
    let [(one, first), (two, second), (_, closed)] =
        ["one", "two", "closed"].map(|name| bed.create(&Caller::root(), name));
    bed.write(&user(12), first, false);
    bed.write(&user(13), second, false);
    let state = Module::snapshot(&bed.module).unwrap();
    // The events of the last moment before the crash.
    bed.fs().release(closed).unwrap();
    bed.write(&user(14), second, false);
    bed.module.keep(two);
    let kept = OsStr::new("trusted.braid-provenance");
    let record = |child: &dyn FileSystem, ino| {
        String::from_utf8(child.getxattr(&Caller::root(), ino, kept).unwrap()).unwrap()
    };
    assert!(!record(&*bed.child, one).contains("written"), "asking for the state keeps nothing");

    let next = Provenance::new(&Settings {}, Arc::clone(&bed.child)).unwrap();
    Module::import(&next, &state).unwrap();
    Module::repair(&next, Crash { count: 1, state_age: Some(std::time::Duration::ZERO) }).unwrap();
    assert!(record(&*bed.child, one).contains("uid=12"));
    assert!(record(&*bed.child, two).contains("uid=14"));
    let open: Vec<u64> = next.files.all().into_iter().map(|(handle, _)| handle.0).collect();
    assert_eq!(open, [first.0, second.0]);
    let odd = State { version: 2, bytes: b"[]".to_vec() };
    assert_eq!(Module::import(&next, &odd).unwrap_err().errno(), Errno::EINVAL);
}
