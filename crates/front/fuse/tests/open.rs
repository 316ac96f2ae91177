//! Opens in all modes and combinations: none may fail, and all see each
//! other's data.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use braid_fuse::CacheMode;
use braid_testkit::SplitMix;
use common::{Choice, Mount, config, has_passthrough};
use rustix::fs::{Mode, OFlags};
use rustix::io::{pread, pwrite};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

/// Size of a thread's slot in the shared file, and of its reads and writes:
/// suitable for direct I/O.
const SLOT: usize = 4096;

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .unwrap_or_else(|error| panic!("{flags:?}: {error}"))
}

/// Memory that is suitable for direct I/O.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize, byte: u8) -> Self {
        let bytes = vec![byte; len + SLOT];
        let start = bytes.as_ptr().align_offset(SLOT);
        Self { bytes, start, len }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Each thread writes its own slots of some files through one open and reads
/// them back through another, of any mode.
fn storm(mount: &Mount, threads: u64, rounds: u64) {
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = SplitMix::new(thread);
                let mut last = [0_u8; 3];
                for _ in 0..rounds {
                    one_round(mount, thread as usize, &mut random, &mut last);
                }
            });
        }
    });
}

fn one_round(mount: &Mount, slot: usize, random: &mut SplitMix, last: &mut [u8; 3]) {
    let offset = (slot * SLOT) as u64;
    let file = random.below(3) as usize;
    let path = mount.path(&format!("file-{file}"));
    let extra = |random: &mut SplitMix| match random.below(4) {
        0 => OFlags::DIRECT,
        1 => OFlags::CREATE,
        _ => OFlags::empty(),
    };
    if random.below(2) == 0 {
        let writer = open(&path, OFlags::RDWR | extra(random));
        last[file] = last[file].wrapping_add(1);
        assert_eq!(pwrite(&writer, Aligned::new(SLOT, last[file]).get(), offset).unwrap(), SLOT);
    }
    let reader = open(&path, OFlags::RDONLY | extra(random));
    let mut found = Aligned::new(SLOT, 0xff);
    let found = found.get();
    let mut done = 0;
    while done < SLOT {
        match pread(&reader, &mut found[done..], offset + done as u64).unwrap() {
            0 => break,
            count => done += count,
        }
    }
    assert_eq!(done, SLOT);
    assert!(found.iter().all(|byte| *byte == last[file]), "slot {slot} of file {file} is stale");
}

fn prepare(mount: &Mount, threads: u64) {
    for file in 0..3 {
        fs::write(mount.path(&format!("file-{file}")), vec![0; threads as usize * SLOT]).unwrap();
    }
}

#[test]
fn storms_of_opens_never_fail_and_never_read_stale_data() {
    for choice in [Choice::Cached, Choice::Direct, Choice::Passthrough, Choice::Rotate] {
        let mount = Mount::new(choice);
        prepare(&mount, 8);
        storm(&mount, 8, 400);
        let passed = mount.fs.passthrough_opens.load(Ordering::Relaxed) > 0;
        let expected = matches!(choice, Choice::Passthrough | Choice::Rotate) && has_passthrough();
        assert_eq!(passed, expected);
    }
}

#[test]
fn a_file_that_was_just_made_is_not_looked_up_again() {
    for choice in [Choice::Passthrough, Choice::Cached, Choice::Rotate] {
        let mount = Mount::new(choice);
        let path = mount.path("file");
        let file = fs::File::create(&path).unwrap();
        let before = mount.fs.lookups.load(Ordering::Relaxed);
        for written in 1..1000 {
            pwrite(&file, b"x", written - 1).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), written);
        }
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), [b'x'; 999]);
        fs::remove_file(&path).unwrap();
        assert_eq!(mount.fs.lookups.load(Ordering::Relaxed), before);
    }
}

#[test]
fn readers_by_passthrough_and_writers_live_together() {
    let mount = Mount::new(Choice::Passthrough);
    prepare(&mount, 8);
    let path = mount.path("file-0");
    let reader = open(&path, OFlags::RDONLY);
    let mut bytes = [0; 4];
    for round in 0..50 {
        let writer = open(&path, OFlags::RDWR);
        pwrite(&writer, &[round; 4], 0).unwrap();
        pread(&reader, &mut bytes, 0).unwrap();
        assert_eq!(bytes, [round; 4]);
        let mut page = Aligned::new(SLOT, 0xff);
        pread(open(&path, OFlags::RDONLY | OFlags::DIRECT), page.get(), 0).unwrap();
        assert_eq!(page.get()[..4], [round; 4]);
    }
    if has_passthrough() {
        assert_eq!(mount.fs.passthrough_opens.load(Ordering::Relaxed), 101);
        // The size is right although the file system saw no write.
        let writer = open(&path, OFlags::WRONLY | OFlags::APPEND);
        let before = fs::metadata(&path).unwrap().len();
        rustix::io::write(&writer, b"tail").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), before + 4);
        assert_eq!(mount.fs.reads.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn data_survives_changes_of_mode() {
    let mount = Mount::new(Choice::Rotate);
    let path = mount.path("file");
    fs::write(&path, "0").unwrap();
    for round in 1..200_u32 {
        let text = round.to_string();
        // A page in the cache from the last open must not outlive this one.
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .map(|file| pwrite(&file, text.as_bytes(), 0))
            .unwrap()
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn creating_takes_part() {
    for choice in [Choice::Passthrough, Choice::Rotate] {
        let mount = Mount::new(choice);
        for round in 0..100 {
            let path = mount.path(&format!("file-{round}"));
            let created = open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
            pwrite(&created, b"created", 0).unwrap();
            let mut text = String::new();
            let mut again = fs::File::from(open(&path, OFlags::RDWR));
            again.read_to_string(&mut text).unwrap();
            assert_eq!(text, "created");
            drop(created);
            pwrite(&again, b"C", 0).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "Created");
        }
    }
}

/// Files that appear behind the mount's back make the kernel create an existing
/// file.
#[test]
fn creating_what_exists_and_is_open_by_passthrough() {
    let mount = Mount::new(Choice::Passthrough);
    for round in 0..20 {
        let (known, unknown) = (format!("known-{round}"), format!("unknown-{round}"));
        assert!(!mount.path(&unknown).exists());
        fs::write(mount.backing(&known), "text").unwrap();
        let first = open(&mount.path(&known), OFlags::RDONLY);
        fs::hard_link(mount.backing(&known), mount.backing(&unknown)).unwrap();
        let second = open(&mount.path(&unknown), OFlags::RDWR | OFlags::CREATE);
        pwrite(&second, b"TEXT", 0).unwrap();
        let mut bytes = [0; 4];
        pread(&first, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"TEXT");
    }
}

#[test]
fn files_are_served_where_passthrough_fails() {
    let mount = Mount::new(Choice::BadPassthrough);
    prepare(&mount, 2);
    storm(&mount, 2, 50);
    assert_eq!(fs::read(mount.path("file-0")).unwrap().len(), 2 * SLOT);
    drop(mount);

    let mut off = config();
    off.cache = CacheMode::WriteBack;
    let mount = Mount::with(Choice::Passthrough, &off);
    prepare(&mount, 2);
    storm(&mount, 2, 50);
    assert_eq!(mount.fs.passthrough_opens.load(Ordering::Relaxed), 0);
}

#[test]
fn every_handle_is_released() {
    let mount = Mount::new(Choice::Rotate);
    prepare(&mount, 4);
    storm(&mount, 4, 100);
    assert!(mount.fs.wait_all_released());
}

#[test]
fn direct_reads_reach_the_device_aligned() {
    for choice in [Choice::Cached, Choice::Direct] {
        let mount = Mount::new(choice);
        let data: Vec<u8> = (0..3_u32 << 20).map(|index| (index / 4096) as u8).collect();
        fs::write(mount.path("file"), &data).unwrap();
        // The file system reads with O_DIRECT into the buffer it gets, which
        // fails with EINVAL if that is not aligned.
        let file = open(&mount.path("file"), OFlags::RDONLY | OFlags::DIRECT);
        for size in [4096, 65536, 1 << 20, 3 << 20] {
            let offset = data.len() - size;
            let mut found = Aligned::new(size, 0xff);
            let mut done = 0;
            while done < size {
                done += pread(&file, &mut found.get()[done..], (offset + done) as u64).unwrap();
            }
            assert_eq!(found.get(), &data[offset..], "{size}");
        }
        // Memory of the application that is not aligned is no obstacle.
        let mut found = vec![0; data.len() + 1];
        let mut done = 0;
        while done < data.len() {
            done += pread(&file, &mut found[1 + done..], done as u64).unwrap();
        }
        assert_eq!(found[1..], data);
    }
}
