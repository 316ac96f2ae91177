//! Files of other forms: plain ones, encrypted ones, those of other settings.

use super::bed::{Bed, ROOT, checked, compressed, encrypted};
use crate::frames::Pipeline;
use crate::frames::codec::Codec;
use braid_contract::{Caller, DirEntry, DirSink, Errno, SetAttr, SetTime, Timestamp, XattrMode};
use std::ffi::OsStr;
use std::fs;

#[test]
fn plain_files_stay_as_they_are_until_they_are_emptied() {
    let bed = Bed::new(compressed(Codec::Lz4, 65536));
    fs::write(bed.below("plain"), vec![5; 300_000]).unwrap();
    assert_eq!(bed.content("plain").unwrap(), vec![5; 300_000]);
    let (ino, handle) = bed.open("plain", true).unwrap();
    bed.write(handle, 299_999, b"end");
    assert_eq!(bed.attr(ino).size, 300_002);
    assert_eq!(fs::read(bed.below("plain")).unwrap()[299_999..], *b"end");
    bed.truncate(ino, Some(handle), 0).unwrap();
    bed.write(handle, 0, &[6; 100_000]);
    bed.close(handle);
    assert_eq!(bed.attr(ino).size, 100_000);
    assert_eq!(bed.content("plain").unwrap(), [6; 100_000]);
    assert!(fs::read(bed.below("plain")).unwrap().starts_with(b"BRAIDFRM"));
}

#[test]
fn a_file_written_without_frames_meanwhile_is_refused_and_left() {
    let other = b"written while the stack was another one";
    for len in [100, 70_000] {
        let mut bed = Bed::new(checked());
        let (_, handle) = bed.create("a");
        bed.write(handle, 0, &vec![1; len]);
        bed.close(handle);
        let (ino, used) = bed.create("used");
        bed.write(used, 0, b"data");
        bed.truncate(ino, Some(used), 0).unwrap();
        bed.fs.settle().unwrap();
        // Written in place, a file keeps its attributes.
        ["a", "used"].iter().for_each(|name| fs::write(bed.below(name), other).unwrap());
        let append = bed.door().write(&Caller::root(), used, 0, b"more", Default::default());
        assert_eq!(append.unwrap_err().errno(), Errno::EUCLEAN);
        bed.close(used);
        bed.mount(checked()).unwrap();
        for name in ["a", "used"] {
            assert_eq!(bed.content(name).unwrap_err().errno(), Errno::EUCLEAN, "{name}");
            assert_eq!(bed.open(name, true).unwrap_err().errno(), Errno::EUCLEAN, "{name}");
            let ino = bed.door().lookup(&Caller::root(), ROOT, OsStr::new(name)).unwrap().attr.ino;
            let longer = bed.truncate(ino, None, 90_000);
            assert_eq!(longer.unwrap_err().errno(), Errno::EUCLEAN, "{name}");
            assert_eq!(fs::read(bed.below(name)).unwrap(), other, "{name}");
        }
        // With zeros in place of the head, or another bit in it, the attribute counts.
        let (_, handle) = bed.create("b");
        bed.write(handle, 0, &vec![1; len]);
        bed.close(handle);
        bed.damage("b", 3);
        assert_eq!(bed.content("b").unwrap(), vec![1; len]);
    }
}

#[test]
fn each_stack_reads_what_another_has_written_but_for_the_key() {
    let mut bed = Bed::new(checked());
    let content = |name: &str| vec![name.len() as u8; 70_000];
    let put = |bed: &Bed, name: &str| {
        let (_, handle) = bed.create(name);
        bed.write(handle, 0, &content(name));
        bed.close(handle);
    };
    put(&bed, "a");
    bed.mount(compressed(Codec::Zstd(3), 1 << 20)).unwrap();
    put(&bed, "bb");
    bed.mount(compressed(Codec::Lz4, 4096)).unwrap();
    put(&bed, "ccc");
    bed.mount(checked()).unwrap();
    for name in ["a", "bb", "ccc"] {
        assert!(bed.content(name).unwrap() == content(name), "{name}");
    }
    bed.mount(encrypted(1)).unwrap();
    put(&bed, "dddd");
    assert!(bed.content("dddd").unwrap() == content("dddd"));
    // A file that is not encrypted is refused, read or written.
    assert_eq!(bed.content("a").unwrap_err().errno(), Errno::EIO);
    fs::write(bed.below("plain"), b"plain").unwrap();
    assert_eq!(bed.content("plain").unwrap_err().errno(), Errno::EIO);
    bed.mount(Pipeline { reads_plain: true, ..encrypted(1) }).unwrap();
    assert!(bed.content("a").unwrap() == content("a"));
    assert_eq!(bed.content("plain").unwrap(), b"plain");
    assert_eq!(bed.open("a", true).unwrap_err().errno(), Errno::EPERM);
    // Emptied, it gets encrypted.
    let ino = bed.door().lookup(&Caller::root(), ROOT, OsStr::new("a")).unwrap().attr.ino;
    bed.truncate(ino, None, 0).unwrap();
    let (_, handle) = bed.open("a", true).unwrap();
    bed.write(handle, 0, b"secret");
    bed.close(handle);
    assert!(!fs::read(bed.below("a")).unwrap().windows(6).any(|part| part == b"secret"));
    // Without the key, or with another one, nothing can be read.
    bed.mount(checked()).unwrap();
    assert_eq!(bed.content("dddd").unwrap_err().errno(), Errno::EIO);
    let refused = bed.mount(encrypted(2)).unwrap_err();
    assert!(refused.to_string().contains("the key is not the one"), "{refused}");
    bed.mount(encrypted(1)).unwrap();
    assert!(bed.content("dddd").unwrap() == content("dddd"));
}

#[test]
fn nothing_of_an_encrypted_file_can_be_seen_below() {
    let bed = Bed::new(encrypted(1));
    let (_, handle) = bed.create("a");
    for offset in [0, 5000, 100_000, 0] {
        bed.write(handle, offset, &[0x5a; 3000]);
        bed.fsync(handle);
    }
    bed.close(handle);
    let below = fs::read(bed.below("a")).unwrap();
    assert!(!below.windows(8).any(|part| part == [0x5a; 8]));
}

#[test]
fn attributes_of_the_module_are_not_shown() {
    let bed = Bed::new(checked());
    let (ino, handle) = bed.create("a");
    bed.write(handle, 0, b"data");
    let (fs, caller) = (bed.door(), Caller::root());
    fs.setxattr(&caller, ino, OsStr::new("user.mine"), b"1", XattrMode::Set).unwrap();
    assert_eq!(fs.listxattr(&caller, ino).unwrap(), b"user.mine\0");
    assert!(fs.listxattr(&caller, ROOT).unwrap().is_empty());
    for name in ["trusted.braid-frame", "user.braid-frames"].map(OsStr::new) {
        assert_eq!(fs.getxattr(&caller, ino, name).unwrap_err().errno(), Errno::ENODATA);
        assert_eq!(fs.removexattr(&caller, ino, name).unwrap_err().errno(), Errno::ENODATA);
        let set = fs.setxattr(&caller, ino, name, b"1", XattrMode::Set);
        assert_eq!(set.unwrap_err().errno(), Errno::EPERM);
    }
    bed.close(handle);
}

struct Sizes(Vec<(String, Option<u64>)>);

impl DirSink for Sizes {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let name = entry.name.to_str().unwrap().to_owned();
        self.0.push((name, entry.entry.map(|entry| entry.attr.size)));
        true
    }
}

#[test]
fn sizes_are_those_of_the_data_wherever_they_are_asked_for() {
    let mut bed = Bed::new(checked());
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 9000]);
    bed.close(handle);
    fs::write(bed.below("plain"), [1; 9000]).unwrap();
    bed.mount(checked()).unwrap();
    let (fs, caller) = (bed.door(), Caller::root());
    let dir = fs.open_dir(&caller, ROOT).unwrap();
    let mut sizes = Sizes(Vec::new());
    fs.read_dir(&caller, dir, 0, true, &mut sizes).unwrap();
    fs.release_dir(dir).unwrap();
    sizes.0.retain(|(name, _)| !name.starts_with('.'));
    sizes.0.sort();
    assert_eq!(sizes.0, [("a".to_owned(), Some(9000)), ("plain".to_owned(), Some(9000))]);
    let entry = fs.lookup(&caller, ROOT, OsStr::new("a")).unwrap();
    let linked = fs.link(&caller, entry.attr.ino, ROOT, OsStr::new("b")).unwrap();
    assert_eq!([entry.attr.size, linked.attr.size], [9000; 2]);
    assert_eq!(bed.truncate(entry.attr.ino, None, 5000).unwrap().size, 5000);
    assert_eq!(bed.truncate(entry.attr.ino, None, 1 << 40).unwrap().size, 1 << 40);
    assert_eq!(bed.truncate(entry.attr.ino, None, u64::MAX).unwrap_err().errno(), Errno::EFBIG);
}

#[test]
fn what_is_done_later_leaves_the_times() {
    let bed = Bed::new(checked());
    let (ino, handle) = bed.create("a");
    for byte in 0..3 {
        bed.write(handle, 0, &[byte; 20_000]);
        bed.fsync(handle);
    }
    let time = Timestamp { secs: 1_000_000, nanos: 5 };
    let changes = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    bed.door().setattr(&Caller::root(), ino, Some(handle), &changes).unwrap();
    let before = bed.attr(ino).blocks;
    bed.fs.settle().unwrap();
    assert!(bed.attr(ino).blocks < before);
    assert_eq!(bed.attr(ino).mtime, time);
    bed.close(handle);
}
