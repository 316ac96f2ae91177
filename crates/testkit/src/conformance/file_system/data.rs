//! The bytes of files.

use super::super::pattern;
use super::bed::{Bed, LONG_AGO, READ_WRITE, ROOT, errno};
use super::{Case, always};
use braid_contract::SplitMix;
use braid_contract::{Errno, Hint, InodeId, IoMode, OpenFlags, OpenRequest, SetAttr, WriteFlags};
use std::ffi::OsStr;

pub(super) const CASES: [Case; 13] = [
    ("what is written is read", always, what_is_written_is_read),
    ("reads are short at the end only", always, reads_are_short_at_the_end_only),
    ("a gap reads as zeros", always, a_gap_reads_as_zeros),
    ("a size is cut and grown", always, a_size_is_cut_and_grown),
    ("random writes leave the last of each byte", always, random_writes),
    ("a large file is read back by another handle", always, a_large_file_is_read_back),
    ("handles of one file see one another", always, handles_of_one_file_see_one_another),
    ("direct and synchronous access come to the same", always, direct_access_comes_to_the_same),
    ("a write is seen in the time", always, a_write_is_seen_in_the_time),
    ("set-id bits go with a write", |bed| bed.is_superuser(), set_id_bits_go_with_a_write),
    ("a file is durable when that is answered", always, a_file_is_synced),
    ("passthrough is given if it must be", |bed| bed.fs.capabilities().passthrough, passthrough),
    ("threads write to one file", always, threads_write_to_one_file),
];

fn what_is_written_is_read(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    let data = pattern(1, 200_000);
    let mut at = 0;
    for len in [1, 4095, 4097, 8192, 77, 65_536, 118_002] {
        bed.write(handle, at as u64, &data[at..at + len]);
        at += len;
        assert_eq!(bed.attr_of(handle, ino).size, at as u64);
    }
    assert_eq!(at, data.len());
    bed.expect(handle, &data);
    for (offset, len) in [(0, 1), (4095, 2), (5000, 150_000), (199_999, 1)] {
        assert_eq!(bed.read(handle, offset as u64, len), data[offset..offset + len], "{offset}");
    }
    bed.close(handle);
    assert_eq!(bed.attr(ino).size, data.len() as u64);
    assert!(bed.content(ROOT, "file") == data);
}

fn reads_are_short_at_the_end_only(bed: &Bed<'_>) {
    let (_, handle) = bed.create(ROOT, "file");
    assert_eq!(bed.read(handle, 0, 10), b"");
    bed.write(handle, 0, &[7; 5000]);
    for (offset, len, read) in [(0, 5000, 5000), (0, 5001, 5000), (4999, 9, 1), (5000, 9, 0), (1 << 40, 9, 0)]
    {
        assert_eq!(bed.read(handle, offset, len).len(), read, "{len} bytes at {offset}");
    }
    bed.close(handle);
}

fn a_gap_reads_as_zeros(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.write(handle, (3 << 20) + 5, b"end");
    assert_eq!(bed.attr_of(handle, ino).size, (3 << 20) + 8);
    assert_eq!(bed.read(handle, (3 << 20) + 3, 10), b"\0\0end");
    assert!(bed.read(handle, 0, 3 << 20).iter().all(|byte| *byte == 0));
    bed.write(handle, 1 << 20, b"middle");
    assert_eq!(bed.read(handle, (1 << 20) - 1, 8), b"\0middle\0");
    bed.close(handle);
}

fn a_size_is_cut_and_grown(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.write(handle, 0, &[7; 300_000]);
    bed.truncate(ino, 100_001);
    bed.truncate(ino, 250_000);
    let mut wanted = vec![7; 100_001];
    wanted.resize(250_000, 0);
    bed.expect(handle, &wanted);
    // By the open file, too.
    let changes = SetAttr { size: Some(10), ..SetAttr::default() };
    assert_eq!(bed.fs.setattr(&bed.caller, ino, Some(handle), &changes).unwrap().size, 10);
    bed.expect(handle, &[7; 10]);
    bed.truncate(ino, 0);
    bed.write(handle, 5, b"new");
    bed.expect(handle, b"\0\0\0\0\0new");
    bed.close(handle);
    let dir = bed.mkdir(ROOT, "dir");
    assert_eq!(errno(bed.try_set(dir, SetAttr { size: Some(0), ..SetAttr::default() })), Some(Errno::EISDIR));
}

fn random_writes(bed: &Bed<'_>) {
    const LEN: u64 = 600_000;
    let (ino, handle) = bed.create(ROOT, "file");
    let (mut random, mut wanted) = (SplitMix::new(11), Vec::new());
    for seed in 0..150 {
        let (offset, len) = (random.below(LEN) as usize, 1 + random.below(30_000) as usize);
        if random.below(12) == 0 {
            bed.truncate(ino, offset as u64);
            wanted.resize(offset, 0);
            continue;
        }
        let data = pattern(seed, len);
        bed.write(handle, offset as u64, &data);
        wanted.resize(wanted.len().max(offset + len), 0);
        wanted[offset..offset + len].copy_from_slice(&data);
    }
    bed.expect(handle, &wanted);
    bed.close(handle);
    assert!(bed.content(ROOT, "file") == wanted);
}

fn a_large_file_is_read_back(bed: &Bed<'_>) {
    let data = pattern(3, 5 << 20);
    let (ino, handle) = bed.create(ROOT, "file");
    for (at, piece) in data.chunks(100_000).enumerate() {
        bed.write(handle, at as u64 * 100_000, piece);
    }
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    bed.close(handle);
    bed.fs.forget(ino, 1);
    assert!(bed.content(ROOT, "file") == data);
    let attr = bed.attr(bed.lookup(ROOT, "file"));
    assert!(attr.size == 5 << 20 && attr.blocks >= (5 << 20) / 512, "{attr:?}");
}

fn handles_of_one_file_see_one_another(bed: &Bed<'_>) {
    let (ino, one) = bed.create(ROOT, "file");
    bed.link(ino, ROOT, "linked").unwrap();
    let other = bed.open(bed.lookup(ROOT, "linked"));
    bed.write(one, 0, b"by the one");
    bed.expect(other, b"by the one");
    bed.write(other, 7, b"other");
    bed.expect(one, b"by the other");
    assert_eq!(bed.attr_of(one, ino).size, 12);
    bed.close(one);
    bed.expect(other, b"by the other");
    bed.close(other);
}

fn direct_access_comes_to_the_same(bed: &Bed<'_>) {
    let flags = OpenFlags { direct: true, sync: true, ..READ_WRITE };
    let made = bed.fs.create(&bed.caller, ROOT, OsStr::new("file"), 0o100_600, 0, true, flags.into());
    let handle = match made {
        Ok((_, opened)) => opened.handle,
        // As open(2) answers where the file system below has no direct I/O.
        Err(error) => return assert_eq!(error.errno(), Errno::EINVAL),
    };
    let data = pattern(5, 40_000);
    let direct = WriteFlags { direct: true, ..WriteFlags::default() };
    bed.write_with(handle, 0, &data[..8192], direct);
    bed.write_with(handle, 8192, &data[8192..8200], direct);
    bed.write_with(handle, 8200, &data[8200..20_000], WriteFlags { sync: true, ..WriteFlags::default() });
    bed.write_with(handle, 20_000, &data[20_000..], WriteFlags { sync: true, ..direct });
    bed.expect(handle, &data);
    for (offset, len) in [(0, 4096), (4096, 36_864), (1, 4095), (36_864, 8192)] {
        // The memory is the caller's to align.
        let mut memory = vec![0; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let buf = &mut memory[start..start + len];
        let done = bed.fs.read(&bed.caller, handle, offset as u64, buf, true).unwrap();
        assert_eq!(done, len.min(data.len() - offset), "{len} bytes at {offset}");
        assert!(buf[..done] == data[offset..offset + done], "{len} bytes at {offset}");
    }
    bed.close(handle);
}

fn a_write_is_seen_in_the_time(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    let sees = |what: &str, change: &dyn Fn()| {
        bed.age(ino);
        change();
        assert!(bed.attr_of(handle, ino).mtime > LONG_AGO, "{what}");
        assert!(bed.attr(ino).mtime > LONG_AGO, "{what}");
    };
    sees("write", &|| bed.write(handle, 0, b"data"));
    sees("truncate", &|| bed.truncate(ino, 2));
    sees("grow", &|| bed.truncate(ino, 200_000));
    bed.age(ino);
    bed.read(handle, 0, 100);
    bed.close(handle);
    assert_eq!(bed.attr(ino).mtime, LONG_AGO, "reading and closing are no changes");
}

fn set_id_bits_go_with_a_write(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.set(ino, SetAttr { mode: Some(0o6755), ..SetAttr::default() });
    bed.write(handle, 0, b"by one who keeps them");
    assert_eq!(bed.attr(ino).mode, 0o6755);
    bed.write_with(handle, 0, b"x", WriteFlags { kill_set_id: true, ..WriteFlags::default() });
    assert_eq!(bed.attr(ino).mode, 0o755);
    bed.close(handle);
}

fn a_file_is_synced(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    for (at, data_only) in [(0, true), (100_000, false), (1 << 20, true)] {
        let flags = WriteFlags { hint: Hint::default(), ..WriteFlags::default() };
        bed.write_with(handle, at, b"data", flags);
        bed.fs.fsync(&bed.caller, handle, data_only).unwrap();
    }
    bed.fs.sync().unwrap();
    bed.unlink(ROOT, "file").unwrap();
    // A file without a name can still be synced.
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    assert_eq!(bed.attr_of(handle, ino).size, (1 << 20) + 4);
    bed.close(handle);
}

fn passthrough(bed: &Bed<'_>) {
    let ino = bed.file(ROOT, "file", b"content");
    let request = OpenRequest { flags: READ_WRITE, ..OpenRequest::default() };
    let opened = bed.fs.open(&bed.caller, ino, request).unwrap();
    assert!(!matches!(opened.mode, IoMode::Passthrough(_)), "it was not allowed");
    bed.close(opened.handle);
    let flags = OpenFlags { write: false, ..READ_WRITE };
    let allowed = OpenRequest { flags, passthrough_allowed: true, passthrough_required: false };
    let first = bed.fs.open(&bed.caller, ino, allowed).unwrap();
    let IoMode::Passthrough(fd) = &first.mode else { return bed.close(first.handle) };
    let mut buf = [0; 20];
    let done = rustix::io::pread(fd, &mut buf, 0).unwrap();
    assert_eq!(&buf[..done], b"content");
    let required = OpenRequest { passthrough_required: true, ..allowed };
    let second = bed.fs.open(&bed.caller, ino, required).unwrap();
    assert!(matches!(second.mode, IoMode::Passthrough(_)), "the kernel takes no other");
    bed.close(first.handle);
    bed.close(second.handle);
    assert_eq!(bed.content(ROOT, "file"), b"content");
}

fn threads_write_to_one_file(bed: &Bed<'_>) {
    const THREADS: usize = 4;
    const PIECE: usize = 30_001;
    let data = pattern(7, THREADS * 20 * PIECE);
    let (_, handle) = bed.create(ROOT, "file");
    let own: Vec<InodeId> = (0..THREADS).map(|thread| bed.file(ROOT, &format!("of-{thread}"), b"")).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (data, own) = (&data, &own);
            scope.spawn(move || {
                let own = bed.open(own[thread]);
                for piece in 0..20 {
                    let at = (piece * THREADS + thread) * PIECE;
                    let mine = &data[at..at + PIECE];
                    bed.write(handle, at as u64, mine);
                    assert!(bed.read(handle, at as u64, PIECE) == mine);
                    bed.write(own, (piece * PIECE) as u64, mine);
                }
                bed.close(own);
            });
        }
    });
    bed.expect(handle, &data);
    bed.close(handle);
    for thread in 0..THREADS {
        let pieces = data.chunks(PIECE).skip(thread).step_by(THREADS);
        assert!(bed.content(ROOT, &format!("of-{thread}")) == pieces.collect::<Vec<_>>().concat());
    }
}
