//! Recording operations on a volume: the records of files, and that operations
//! never wait for the recorder.

use crate::common::{Bed, Open, RANGE, caller};
use braid_contract::{
    Caller, Errno, FallocateMode, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest, Result, SetAttr,
    WriteFlags,
};
use braid_modules::trace::{Recording, Trace as Module, Traced};
use braid_placement::{Trace, TraceOpKind, end_line};
use braid_stores::native::Machine;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// A volume, and the recording module on top of it.
struct Traceable {
    volume: Open,
    fs: Arc<Module>,
}

impl Traceable {
    fn new(bed: &Bed) -> Self {
        let volume = bed.open();
        let fs = Arc::new(Module::new(volume.volume.clone(), Arc::new(Machine)));
        Self { volume, fs }
    }

    fn record(&self, path: Option<&str>) -> Result<Recording> {
        let traced = Traced { volume: "v".into(), range: RANGE as u32, policy: "weighted".into() };
        self.fs.start_recording(traced, path)
    }

    fn create(&self, name: &str) -> (InodeId, HandleId) {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let made =
            self.fs.create(&caller(), InodeId::ROOT, OsStr::new(name), 0o100_644, 0o022, true, flags.into());
        let (entry, opened) = made.unwrap();
        (entry.attr.ino, opened.handle)
    }

    fn open(&self, ino: InodeId) -> HandleId {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        self.fs.open(&caller(), ino, OpenRequest { flags, ..OpenRequest::default() }).unwrap().handle
    }

    fn write(&self, handle: HandleId, offset: u64, data: &[u8]) {
        let written = self.fs.write(&caller(), handle, offset, data, WriteFlags::default());
        assert_eq!(written.unwrap(), data.len());
    }
}

/// Takes all of a recording that has ended.
fn take(recording: &mut Recording) -> (String, u64) {
    let (mut text, mut dropped) = (recording.head().to_owned(), 0);
    while let Some(recorded) = recording.next(Duration::ZERO) {
        text.push_str(&recorded.lines);
        dropped += recorded.dropped;
    }
    (text, dropped)
}

/// Ends a recording and reads it.
fn trace(volume: &Traceable, mut recording: Recording) -> Trace {
    assert!(volume.fs.stop_recording(recording.number()));
    let (text, dropped) = take(&mut recording);
    assert_eq!(dropped, 0);
    Trace::read((text + &end_line(0, 0, 0, "test")).as_bytes()).unwrap()
}

fn kinds(trace: &Trace) -> Vec<TraceOpKind> {
    trace.ops.iter().map(|op| op.kind).collect()
}

#[test]
fn what_comes_too_fast_is_counted_and_nobody_waits() {
    const WRITES: u64 = 50_000;
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let mut recording = volume.record(None).unwrap();
    let (_, handle) = volume.create("f");
    // The recording is not read meanwhile.
    (0..WRITES).for_each(|_| volume.write(handle, 0, b"x"));
    let first = recording.next(Duration::ZERO).unwrap();
    assert!(first.dropped > 0 && first.dropped < WRITES, "{}", first.dropped);
    volume.write(handle, 0, b"y");
    assert!(volume.fs.stop_recording(recording.number()));
    volume.write(handle, 0, b"z");
    let (rest, dropped) = take(&mut recording);
    // The head comes first.
    let text = recording.head().to_owned() + &first.lines + rest.strip_prefix(recording.head()).unwrap();
    let trace = Trace::read(text.as_bytes()).unwrap();
    let told = trace.ops.len() as u64;
    // All operations during the recording, and the new file.
    assert_eq!((dropped, told + first.dropped), (0, WRITES + 2));
    assert_eq!((trace.dropped, trace.complete), (first.dropped, false));
}

#[test]
fn one_at_a_time_until_it_is_dropped_and_none_once_the_volume_ends() {
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let start = |path| volume.record(path).map_err(|error| error.errno());
    let first = start(None).unwrap();
    assert_eq!(start(None).err(), Some(Errno::EBUSY));
    assert!(!volume.fs.stop_recording(first.number() + 1));
    drop(first);
    assert_eq!(start(Some("[a")).err(), Some(Errno::EINVAL));
    let mut second = start(None).unwrap();
    volume.create("f");
    volume.fs.close();
    volume.volume.volume.shutdown().unwrap();
    assert!(take(&mut second).0.contains("\"path\":\"f\""));
    assert_eq!(start(None).err(), Some(Errno::ENODEV));
}

#[test]
fn a_file_is_told_of_again_when_it_comes_into_use_and_is_gone_when_nobody_has_it_open() {
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let (ino, handle) = volume.create("before");
    volume.write(handle, 0, &[1; 100]);
    let recording = volume.record(None).unwrap();
    let other = Caller { uid: 0, gid: 7, tid: 42, ..caller() };
    let flags = WriteFlags { sync: true, direct: true, ..WriteFlags::default() };
    volume.fs.write(&other, handle, 2 * RANGE, &[1; 50], flags).unwrap();
    volume.fs.release(handle).unwrap();
    let handle = volume.open(ino);
    let shorter = SetAttr { size: Some(5), ..SetAttr::default() };
    volume.fs.setattr(&caller(), ino, Some(handle), &shorter).unwrap();
    volume.fs.unlink(&caller(), InodeId::ROOT, OsStr::new("before")).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(volume.fs.read(&other, handle, 0, &mut bytes, false).unwrap(), 5);
    volume.fs.release(handle).unwrap();
    let trace = trace(&volume, recording);
    use TraceOpKind::{Open, Read, Remove, Truncate, Write};
    assert_eq!(kinds(&trace), [Write, Open, Truncate, Read, Remove]);
    let paths: Vec<(&str, u64)> = trace.files.iter().map(|file| (file.path.as_str(), file.size)).collect();
    assert_eq!(paths, [("before", 100), ("before", 2 * RANGE + 50)]);
    let write = trace.ops[0];
    assert_eq!((write.thread, write.gid, write.offset, write.len), (42, 7, 2 * RANGE, 50));
    assert_eq!((write.size, write.sync, write.direct), (100, true, true));
    assert_eq!((trace.ops[2].size, trace.ops[3].len, trace.ops[3].size), (5, 5, 5));
}

#[test]
fn what_the_kernel_writes_back_is_in_the_name_of_the_thread_that_opened_the_file() {
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let (ino, _) = volume.create("f");
    let recording = volume.record(None).unwrap();
    let opener = Caller { uid: 0, gid: 7, tid: 42, ..caller() };
    let request = OpenRequest {
        flags: OpenFlags { read: true, write: true, ..OpenFlags::default() },
        ..OpenRequest::default()
    };
    let handle = volume.fs.open(&opener, ino, request).unwrap().handle;
    let kernel = Caller { uid: 0, gid: 0, tid: 0, ..caller() };
    for write_back in [true, false] {
        let flags = WriteFlags { write_back, ..WriteFlags::default() };
        volume.fs.write(&kernel, handle, 0, &[1; 50], flags).unwrap();
    }
    let trace = trace(&volume, recording);
    let writers: Vec<(u32, u32)> = trace.ops[1..].iter().map(|op| (op.thread, op.gid)).collect();
    assert_eq!(writers, [(42, 7), (0, 0)]);
}

#[test]
fn room_is_told_of_where_the_file_may_grow() {
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let (_, handle) = volume.create("f");
    let recording = volume.record(None).unwrap();
    let allocate = |offset: u64, mode| {
        volume.fs.fallocate(&caller(), handle, offset, RANGE, mode).unwrap();
    };
    allocate(0, FallocateMode::Allocate { keep_size: true });
    allocate(0, FallocateMode::Allocate { keep_size: false });
    allocate(3 * RANGE, FallocateMode::ZeroRange { keep_size: true });
    allocate(RANGE, FallocateMode::ZeroRange { keep_size: false });
    allocate(0, FallocateMode::PunchHole);
    let trace = trace(&volume, recording);
    let told: Vec<_> = trace.ops.iter().map(|op| (op.kind, op.offset, op.len, op.size)).collect();
    let allocated = TraceOpKind::Allocate;
    assert_eq!(told, [(allocated, 0, RANGE, 0), (allocated, RANGE, RANGE, RANGE)]);
}

#[test]
fn long_paths_wait_within_a_bound_too() {
    const NAME: usize = 250;
    let bed = Bed::new();
    let volume = Traceable::new(&bed);
    let mut dir = InodeId::ROOT;
    for _ in 0..12 {
        let made = volume.fs.mkdir(&caller(), dir, OsStr::new(&"d".repeat(NAME)), 0o755, 0o022);
        dir = made.unwrap().attr.ino;
    }
    let mut recording = volume.record(None).unwrap();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let make = |at: u32| {
        let name = format!("{at:0250}");
        let made = volume.fs.create(&caller(), dir, OsStr::new(&name), 0o100_644, 0o022, true, flags.into());
        volume.fs.release(made.unwrap().1.handle).unwrap();
    };
    // Recorded operations, bytes of all records, and operations that are
    // missing.
    let mut take = || {
        let (mut ops, mut bytes, mut dropped) = (0, 0, 0);
        loop {
            let recorded = recording.next(Duration::ZERO).unwrap();
            if recorded.lines.is_empty() {
                return (ops, bytes, dropped);
            }
            (ops, bytes) = (ops + recorded.ops, bytes + recorded.lines.len());
            dropped += recorded.dropped;
        }
    };
    // More than 9 MiB, mostly paths.
    (0..3000).for_each(make);
    let (ops, bytes, dropped) = take();
    assert!(ops > 0 && dropped > 0 && bytes < 9 << 20, "{ops} {bytes} {dropped}");
    assert_eq!(ops + dropped, 3000);
    // Once they are read there is room again.
    make(3000);
    let (ops, _, dropped) = take();
    assert_eq!((ops, dropped), (1, 0));
}
