//! Another process goes on after a crash, with the memory that outlives one.

use super::*;

/// A file system of two workers that was killed after six files were made, three by each worker; the
/// memory is as long as it was before the last `cut` records of each worker.
fn killed(cut: [usize; 2]) -> (Arc<SimDisk>, Vec<OwnedFd>) {
    let (device, fs) = fresh(32 << 20, 2);
    let memory = fs.outlive().unwrap();
    let words: Vec<_> = memory.iter().map(|fd| SharedWords::open(fd.try_clone().unwrap()).unwrap()).collect();
    let len = |worker: usize| words[worker].words()[0].load(Ordering::Acquire);
    let mut lens = [vec![], vec![]];
    for file in 0..6 {
        let worker = file as usize % 2;
        lens[worker].push(len(worker));
        let (_, handle) = create(&fs, &caller(file), InodeId::ROOT, &format!("f{file}")).unwrap();
        fs.release(handle).unwrap();
    }
    for worker in 0..2 {
        let lens = &lens[worker];
        if cut[worker] > 0 {
            words[worker].words()[0].store(lens[lens.len() - cut[worker]], Ordering::Release);
        }
    }
    (device, memory)
}

fn go_on(device: &Arc<SimDisk>, memory: &[OwnedFd]) -> braid_contract::Result<LogFs> {
    go_on_with(device, memory, 2)
}

fn go_on_with(device: &Arc<SimDisk>, memory: &[OwnedFd], workers: usize) -> braid_contract::Result<LogFs> {
    let memory = memory.iter().map(|fd| fd.try_clone().unwrap()).collect();
    let crashed = CrashedLog { memory, open: Vec::new(), crashes: 1 };
    let disk: Arc<dyn Device> = device.clone();
    LogFs::open_after_crash(disk, Settings { workers, ..Settings::default() }, environment(), crashed)
}

#[test]
fn a_record_whose_number_alone_was_taken_is_left_out_and_a_lost_one_is_told() {
    let names = |fs: &LogFs| {
        let root = fs.open_dir(&caller(1), InodeId::ROOT).unwrap();
        names_after(fs, root, 2, 9).into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    for (cut, expected) in [
        ([0, 0], vec!["f0", "f1", "f2", "f3", "f4", "f5"]),
        ([0, 1], vec!["f0", "f1", "f2", "f3", "f4"]),
        // The number of the fifth is missing before the sixth.
        ([1, 0], vec!["f0", "f1", "f2", "f3", "f5"]),
    ] {
        let (device, memory) = killed(cut);
        let fs = go_on(&device, &memory).unwrap();
        assert_eq!(names(&fs), expected);
        fs.audit().unwrap();
        // What was left out stays so, whatever comes next.
        create(&fs, &caller(0), InodeId::ROOT, "f9").unwrap();
        fs.sync().unwrap();
        let fs = open(device.moment().after_power_loss(Left::Nothing), 1).unwrap();
        assert_eq!(names(&fs), [&expected[..], &["f9"]].concat());
    }
    // Two workers can't have left three unfinished.
    let (device, memory) = killed([3, 0]);
    let refused = go_on(&device, &memory).unwrap_err();
    assert!(refused.to_string().contains("is missing"), "{refused}");
    let (device, memory) = killed([0, 0]);
    let lost = SharedWords::open(memory[0].try_clone().unwrap()).unwrap();
    lost.words()[3].fetch_xor(1, Ordering::Relaxed);
    let refused = go_on(&device, &memory).unwrap_err();
    assert_eq!(refused.errno(), Errno::EUCLEAN, "{refused}");
    // The device is as it was: it is mounted as after any crash.
    assert!(names(&open(device, 2).unwrap()).is_empty());
}

#[test]
fn what_is_open_stays_open_after_a_crash() {
    let (device, fs) = fresh(32 << 20, 2);
    let memory = fs.outlive().unwrap();
    let (root, me) = (InodeId::ROOT, caller(1));
    let unnamed = fs.tmpfile(&me, root, 0o600, 0, READ_WRITE.into()).unwrap();
    let (nameless, of_nameless) = (unnamed.0.attr.ino, unnamed.1.handle);
    let (gone, of_gone) = create(&fs, &me, root, "removed").unwrap();
    fs.unlink(&me, root, OsStr::new("removed")).unwrap();
    for handle in [of_nameless, of_gone] {
        write(&fs, handle, 0, &[7; 10_000]).unwrap();
    }
    let removed = fs.mkdir(&me, root, OsStr::new("cwd"), 0o755, 0).unwrap().attr.ino;
    let of_removed = fs.open_dir(&me, removed).unwrap();
    fs.rmdir(&me, root, OsStr::new("cwd")).unwrap();
    // One that was just closed, of which that is not known yet.
    let (closed, of_closed) = create(&fs, &me, root, "closed").unwrap();
    fs.unlink(&me, root, OsStr::new("closed")).unwrap();
    fs.release(of_closed).unwrap();

    let file = |ino, handle| OpenBefore {
        handle,
        ino,
        flags: Some(READ_WRITE),
        passthrough: false,
        opener: [5, 6, 7],
    };
    // The kernel knows one that is not open, of which the next process has to be told.
    let (known, of_known) = create(&fs, &me, root, "known").unwrap();
    fs.release(of_known).unwrap();
    let dir = OpenBefore { flags: None, ..file(removed, of_removed) };
    let open = vec![file(nameless, of_nameless), file(gone, of_gone), file(closed, of_closed), dir];
    let disk: Arc<dyn Device> = device.clone();
    let crashed = CrashedLog { memory, open, crashes: 3 };
    let fs = LogFs::open_after_crash(disk, Settings::default(), environment(), crashed).unwrap();
    for handle in [of_nameless, of_gone] {
        let mut data = vec![0; 20_000];
        assert_eq!(fs.read(&me, handle, 0, &mut data, false).unwrap(), 10_000);
        assert!(data[..10_000].iter().all(|byte| *byte == 7));
        write(&fs, handle, 10_000, b"more").unwrap();
    }
    assert!(names_after(&fs, of_removed, 0, 9).len() <= 2);
    assert_eq!(fs.getattr(&me, removed, None).unwrap().nlink, 0);
    fs.release(of_closed).unwrap();
    assert!(fs.link(&me, gone, root, OsStr::new("back")).is_err(), "what was removed came back");
    fs.link(&me, nameless, root, OsStr::new("got-a-name")).unwrap();
    fs.unlink(&me, root, OsStr::new("known")).unwrap();
    assert_eq!(fs.getattr(&me, known, None).unwrap().nlink, 0);
    fs.forget(known, 1);
    assert_eq!(fs.getattr(&me, known, None).unwrap_err().errno(), Errno::ESTALE);
    let (_, new) = create(&fs, &me, root, "new").unwrap();
    assert!(new.0 >= 3 << 44, "a handle of before may be in a request that comes again");
    for handle in [of_nameless, of_gone, new] {
        fs.release(handle).unwrap();
    }
    fs.release_dir(of_removed).unwrap();
    fs.audit().unwrap();
    fs.close().unwrap();
    assert_eq!(check(&*device).unwrap().problems, [""; 0]);
}

#[test]
fn power_loss_while_another_process_goes_on_takes_no_synced_data() {
    let (device, fs) = fresh(32 << 20, 2);
    let memory = fs.outlive().unwrap();
    let (root, me) = (InodeId::ROOT, caller(1));
    // There is no other room.
    let mut names = Vec::new();
    loop {
        let name = format!("{}{}", ["removed", "cut", "open"][names.len() % 3], names.len());
        let Ok((_, handle)) = create(&fs, &me, root, &name) else { break };
        let written = write(&fs, handle, 0, &vec![7; 1 << 20]);
        fs.release(handle).unwrap();
        names.push(name);
        if written.is_err() {
            break;
        }
    }
    assert!(names.len() > 20);
    fs.sync().unwrap();
    fs.checkpoint().unwrap();
    fs.sync().unwrap();
    // Only the memory has these.
    for name in &names {
        let ino = fs.lookup(&me, root, OsStr::new(name)).unwrap().attr.ino;
        if name.starts_with("cut") {
            fs.setattr(&me, ino, None, &SetAttr { size: Some(9), ..SetAttr::default() }).unwrap();
            continue;
        }
        let open = name.starts_with("open").then(|| fs.open(&me, ino, READ_WRITE.into()).unwrap());
        fs.unlink(&me, root, OsStr::new(name)).unwrap();
        // This one is not open any more when the process is killed.
        open.into_iter().for_each(|open| fs.release(open.handle).unwrap());
    }
    device.record();
    // Their logs begin in all parts of the device.
    drop(go_on_with(&device, &memory, 8).unwrap());
    let moments = device.moments();
    assert!(moments.len() > 5);
    for (at, moment) in moments.iter().enumerate() {
        for left in [Left::Nothing, Left::All, Left::Some(at as u64), Left::Most(at as u64)] {
            let fs = open(moment.after_power_loss(left), 2).unwrap();
            for name in &names {
                let Ok(entry) = fs.lookup(&me, root, OsStr::new(name)) else { continue };
                let handle = fs.open(&me, entry.attr.ino, READ_WRITE.into()).unwrap().handle;
                let mut found = vec![0; 1 << 20];
                let len = fs.read(&me, handle, 0, &mut found, false).unwrap();
                assert!(found[..len].iter().all(|byte| *byte == 7), "{name} at moment {at}, {left:?}");
            }
        }
    }
}
