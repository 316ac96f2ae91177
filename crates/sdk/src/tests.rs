//! Every operation comes through as a message with the same arguments, and its answer
//! comes back.

use crate::places::{Put, Slot, Take, place};
use crate::{Below, Served as Remote, c_header};
use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Errno, Error, FileKind, FileSystem, HandleId, Hint, InodeId, IoMode,
    Layer, OpenFlags, OpenRequest, Opened, Operation, Result, Served, SetAttr, SetTime, StreamId, Timestamp,
    WriteFlags, WriteLife,
};
use braid_sys::module::{self as abi, Message, Numbers};
use braid_testkit::every_operation::{Recorder, call_everything, entry};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};

fn through_messages(fs: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    Arc::new(Served(Remote(Below(fs))))
}

#[test]
fn messages_change_nothing() {
    let bare = Served(Recorder::default());
    let wrapped = Arc::new(Served(Recorder::default()));
    let stack = through_messages(through_messages(wrapped.clone()));
    assert_eq!(call_everything(&*stack), call_everything(&bare));
    assert_eq!(wrapped.0.calls(), bare.0.calls());
}

/// Notes what `setattr`, `write`, `getattr` and `open` get, and answers values without a plain
/// form.
struct Odd {
    below: Arc<dyn FileSystem>,
    seen: Mutex<Vec<String>>,
}

impl Layer for Odd {
    fn child(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn setattr(&self, caller: &Caller, _: InodeId, _: Option<HandleId>, changes: &SetAttr) -> Result<Attr> {
        self.seen.lock().unwrap().push(format!("{caller:?} {changes:?}"));
        let born = Some(Timestamp { secs: -7, nanos: 999_999_999 });
        Ok(Attr { btime: born, kind: FileKind::Socket, mode: 0o6755, ..entry(3).attr })
    }

    fn write(&self, _: &Caller, _: HandleId, _: u64, _: &[u8], flags: WriteFlags) -> Result<usize> {
        self.seen.lock().unwrap().push(format!("{flags:?}"));
        Err(Error::new(Errno::ENOSPC, "no room on fast").context("writing"))
    }

    fn open(&self, _: &Caller, _: InodeId, request: OpenRequest) -> Result<Opened> {
        self.seen.lock().unwrap().push(format!("{request:?}"));
        let file = std::fs::File::open("/dev/null").unwrap();
        Ok(Opened { handle: HandleId(9), mode: IoMode::Passthrough(Arc::new(file.into())), set_id: true })
    }

    fn read_dir(&self, _: &Caller, _: HandleId, _: i64, _: bool, sink: &mut dyn DirSink) -> Result<()> {
        let full = DirEntry {
            ino: InodeId(4),
            next_offset: -1,
            kind: Some(FileKind::Fifo),
            name: OsStr::new("full"),
            entry: Some(entry(4)),
            damaged: true,
        };
        while sink.add(&full) {}
        Ok(())
    }
}

#[derive(Default)]
struct Two(Vec<String>);

impl DirSink for Two {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let room = self.0.len() < 2;
        if room {
            self.0.push(format!("{entry:?}"));
        }
        room
    }
}

#[test]
fn what_has_many_forms_comes_through_in_each() {
    let odd = Arc::new(Odd { below: Arc::new(Served(Recorder::default())), seen: Mutex::default() });
    let far = through_messages(odd.clone());
    let near: &dyn FileSystem = &*odd;
    let caller = Caller { groups: Some(Arc::from([5, 6])), ..Caller::root() };
    let all = SetAttr {
        mode: Some(0o644),
        uid: Some(1),
        gid: Some(u32::MAX - 1),
        size: Some(u64::MAX),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(Timestamp { secs: -1, nanos: 5 })),
        kill_set_id: true,
    };
    let life = |life| WriteFlags {
        hint: Hint { stream: Some(StreamId(0)), life },
        sync: true,
        ..WriteFlags::default()
    };
    let open = OpenRequest {
        passthrough_required: true,
        ..OpenFlags { write: true, ..OpenFlags::default() }.into()
    };
    let mut results = [far.as_ref(), near].map(|fs| {
        let (mut sink, file) = (Two::default(), HandleId(1));
        let listed = fs.read_dir(&caller, HandleId(1), -3, true, &mut sink);
        let error = fs.write(&caller, file, 0, b"x", life(Some(WriteLife::Extreme))).unwrap_err();
        let opened = fs.open(&caller, InodeId(2), open).unwrap();
        assert!(matches!(opened.mode, IoMode::Passthrough(_)));
        vec![
            format!("{:?}", fs.setattr(&caller, InodeId(1), None, &all)),
            format!("{:?}", fs.setattr(&Caller::root(), InodeId(1), None, &SetAttr::default())),
            format!("{:?} {error:?}", error.errno()),
            format!("{}", fs.write(&caller, file, 0, b"x", life(None)).is_err()),
            format!("{:?} {}", opened.handle, opened.set_id),
            format!("{listed:?} {:?}", sink.0),
            format!("{:?}", odd.seen.lock().unwrap().drain(..).collect::<Vec<_>>()),
        ]
    });
    let (near, far) = (results[1].split_off(0), results[0].split_off(0));
    assert_eq!(far, near);
    assert!(far[2].contains("writing: no room on fast: No space left"), "{}", far[2]);
}

#[test]
fn messages_that_break_the_rules_are_refused() {
    let fs = Served(Recorder::default());
    let refused = |change: &dyn Fn(&mut Message<'_>)| {
        let mut message = Message::new(Numbers::default());
        message.name = b"fine";
        change(&mut message);
        crate::bridge::carry_out(&fs, message).unwrap_err().errno
    };
    let operation = |operation: Operation| operation as u32;
    assert_eq!(refused(&|message| message.numbers.operation = 1000), Errno::ENOSYS.0);
    let named = |name| {
        let mut message = Message::new(Numbers::default());
        message.name = name;
        Errno(crate::bridge::carry_out(&fs, message).unwrap_err().errno)
    };
    assert_eq!(named(&[b'a'; 256]), Errno::ENAMETOOLONG);
    for name in [&b""[..], b"a/b", b"a\0"] {
        assert_eq!(named(name), Errno::EIO);
    }
    for (which, change) in [
        (Operation::Rename, (|numbers| numbers.how = 9) as fn(&mut Numbers)),
        (Operation::Fallocate, |numbers| numbers.how = 5),
        (Operation::Setattr, |numbers| {
            numbers.set = abi::SET_ACCESSED;
            numbers.set_accessed.nanoseconds = 1_000_000_000;
        }),
        // Nothing takes the entries.
        (Operation::ReadDir, |_| {}),
    ] {
        let errno = refused(&|message| {
            message.numbers.operation = operation(which);
            message.new_name = b"fine";
            change(&mut message.numbers);
        });
        assert_eq!(errno, Errno::EIO.0, "{which}");
    }
    for change in [
        (|numbers| (numbers.set, numbers.set_uid) = (abi::SET_UID, u32::MAX)) as fn(&mut Numbers),
        |numbers| (numbers.set, numbers.set_gid) = (abi::SET_GID, u32::MAX),
    ] {
        let errno = refused(&|message| {
            message.numbers.operation = operation(Operation::Setattr);
            change(&mut message.numbers);
        });
        assert_eq!(errno, Errno::EINVAL.0);
    }
    assert!(fs.0.calls().is_empty());
}

#[test]
fn offsets_of_directories_keep_their_sign() {
    let (mut message, mut slot): (_, Slot<'_>) = (Message::new(Numbers::default()), None);
    <place::offset as Put<'_, i64>>::put(-5, &mut message, &mut slot);
    let (caller, changes) = (Caller::root(), SetAttr::default());
    let mut parts = crate::places::Parts {
        numbers: message.numbers,
        caller: &caller,
        changes: &changes,
        name: &[],
        new_name: &[],
        data: &[],
        buffer: &mut [],
        sink: None,
    };
    assert_eq!(<place::offset as Take<'_, i64>>::take(&mut parts), Ok(-5));
}

/// A change of it is a new version of the interface: the number of an operation, or the
/// place of an argument, would be another one.
#[test]
fn the_header_is_that_of_the_table() {
    assert!(
        include_str!("../include/braid_module.h") == c_header(),
        "another table of operations, or other structures: ABI, and `braid module header > crates/sdk/include/braid_module.h`"
    );
}
