//! Full devices: what is refused, and that recovery and a checkpoint have room whatever was done.

use super::*;

#[test]
fn a_full_device_says_so_and_gives_everything_back() {
    for workers in [1, 4] {
        let (device, fs) = fresh(24 << 20, workers);
        let free = fs.statfs(&caller(0)).unwrap().available;
        let (_, first) = create(&fs, &caller(1), InodeId::ROOT, "first").unwrap();
        for round in 0..3 {
            let (mut count, mut bytes) = (0, 0);
            let error = loop {
                let (_, handle) = match create(&fs, &caller(count), InodeId::ROOT, &format!("f{count}")) {
                    Ok(made) => made,
                    Err(error) => break error,
                };
                let written = write(&fs, handle, 0, &[round as u8; 900_000]);
                fs.release(handle).unwrap();
                count += 1;
                match written {
                    Ok(done) => bytes += done as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.errno(), Errno::ENOSPC);
            let taken = create(&fs, &caller(1), InodeId::ROOT, "first").unwrap_err();
            assert_eq!(taken.errno(), Errno::EEXIST, "a name that is there needs no room");
            // The rest, between other blocks.
            let mut at = 0;
            while let Ok(done) = write(&fs, first, at, &[2; 4096]) {
                at += done as u64;
            }
            assert!(bytes + (1 << 20) > free * 9 / 10, "round {round}: {bytes} of {free}");
            assert_eq!(write(&fs, first, 0, &[1; 9000]).unwrap_err().errno(), Errno::ENOSPC);
            fs.audit().unwrap();
            // The device is full, and recovers like any other.
            let other = open(device.moment().after_power_loss(Left::All), workers).unwrap();
            other.audit().unwrap();
            for file in 0..count {
                let name = format!("f{file}");
                if file % 2 == 0 {
                    let ino = fs.lookup(&caller(0), InodeId::ROOT, OsStr::new(&name)).unwrap().attr.ino;
                    let size = SetAttr { size: Some(100), ..SetAttr::default() };
                    fs.setattr(&caller(0), ino, None, &size).unwrap();
                    fs.forget(ino, 1);
                }
                fs.unlink(&caller(file), InodeId::ROOT, OsStr::new(&name)).unwrap();
            }
            write(&fs, first, 0, &[1; 9000]).unwrap();
            fs.setattr(&caller(0), InodeId(2), None, &SetAttr { size: Some(0), ..SetAttr::default() })
                .unwrap();
            fs.audit().unwrap();
        }
        assert!(fs.statfs(&caller(0)).unwrap().available + (2 << 20) > free);
    }
}

/// A file system that is full, and used on; it is recovered whatever was done, and all room comes back.
fn is_recovered_when_full(device: &Arc<SimDisk>, workers: usize) {
    for left in [Left::Nothing, Left::All] {
        let fs = open(device.moment().after_power_loss(left), workers)
            .unwrap_or_else(|error| panic!("{left:?}: it can't be opened any more: {error}"));
        fs.audit().unwrap();
        let root = fs.open_dir(&caller(1), InodeId::ROOT).unwrap();
        for (_, name) in names_after(&fs, root, 2, usize::MAX) {
            fs.unlink(&caller(1), InodeId::ROOT, OsStr::new(&name)).unwrap();
        }
        fs.release_dir(root).unwrap();
        fs.checkpoint().unwrap();
        let space = fs.statfs(&caller(1)).unwrap();
        assert!(space.available * 10 > space.total * 8, "{space:?}");
        fs.close().unwrap();
    }
}

/// Writes a file until there is no room; returns its handle and its blocks.
fn filled(fs: &LogFs, blocks: u64) -> (HandleId, u64) {
    let (_, handle) = create(fs, &caller(1), InodeId::ROOT, "big").unwrap();
    let mut at = 0;
    while at / BLOCK < blocks
        && let Ok(done) = write(fs, handle, at, &vec![1; 1 << 20])
    {
        at += done as u64;
    }
    (handle, at / BLOCK)
}

#[test]
fn a_full_file_system_that_becomes_fragmented_is_recovered() {
    for workers in [1, 4] {
        let (device, fs) = fresh(320 << 20, workers);
        let (handle, blocks) = filled(&fs, u64::MAX);
        let mut done = 0;
        // In the end, each block is a piece of its own.
        for block in (1..blocks).step_by(2).chain((0..blocks).step_by(2)) {
            done += u32::from(write(&fs, handle, block * BLOCK, &[2; BLOCK as usize]).is_ok());
            if done % 5000 == 0 {
                fs.sync().unwrap();
            }
        }
        assert!(u64::from(done) == blocks, "{done} of {blocks}");
        drop(fs);
        is_recovered_when_full(&device, workers);
    }
}

#[test]
fn small_files_that_grow_on_a_full_file_system_leave_room_for_its_recovery() {
    let (device, fs) = fresh(32 << 20, 2);
    filled(&fs, (20 << 20) / BLOCK);
    let mut files = Vec::new();
    let error = loop {
        match create(&fs, &caller(1), InodeId::ROOT, &format!("f{}", files.len())) {
            Ok((_, handle)) => files.push(handle),
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), Errno::ENOSPC);
    let mut grown = 0;
    for handle in files {
        grown += u32::from(write(&fs, handle, 0, &[3; 500]).is_ok());
        fs.release(handle).unwrap();
    }
    assert!(grown < 10_000, "{grown}");
    drop(fs);
    is_recovered_when_full(&device, 2);
}

#[test]
fn writers_on_a_full_file_system_do_not_fail_for_checkpoints_of_one_another() {
    let (device, fs) = fresh(48 << 20, 2);
    let (handle, blocks) = filled(&fs, u64::MAX);
    let refused = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut random = SplitMix::new(thread);
                    let mut write = || {
                        let at = random.below(blocks) * BLOCK;
                        fs.write(
                            &caller(thread as u32),
                            handle,
                            at,
                            &[2; BLOCK as usize],
                            WriteFlags::default(),
                        )
                    };
                    (0..4000).filter(|_| write().is_err()).count()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
    });
    assert_eq!(refused, 0);
    drop(fs);
    is_recovered_when_full(&device, 2);
}
