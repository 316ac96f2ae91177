//! The suite for [`KeyValue`]: a directory as keys and values, beside the same directory
//! as files.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

use super::Report;
use braid_contract::key_value::BATCH_MAX;
use braid_contract::{
    Caller, Errno, FileSystem, InodeId, KeyChange, KeyValue, OpenFlags, PutOptions, PutWhen, ScanRange,
    SetAttr, SplitMix, WriteFlags, XattrMode,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An empty directory, as values and as files.
pub struct Fresh {
    /// The directory as keys and values.
    pub values: Arc<dyn KeyValue>,
    /// The file system that it is of.
    pub fs: Arc<dyn FileSystem>,
    /// The directory.
    pub dir: InodeId,
    /// Most bytes of a value.
    pub value_max: usize,
    /// It acts for the callers that it is given, and not always for the same one.
    pub knows_callers: bool,
    /// Its resources.
    pub kept: Box<dyn Any>,
}

type Case = (&'static str, fn(&Fresh) -> Option<()>);

const CASES: [Case; 7] = [
    ("it agrees with a map", agrees_with_a_map),
    ("conditions decide, and only they", conditions),
    ("readers see the old value or the new one", replaces_atomically),
    ("of several that add a key, one does", one_adds),
    ("values are files and files are values", same_as_files),
    ("rights are those of the files", rights),
    ("limits are refused", limits),
];

/// Runs every case for the `implementation`, each on a directory of its own.
#[must_use]
pub fn run(implementation: &str, fresh: &dyn Fn() -> Fresh) -> Report {
    let mut report = Report::new("key-value", implementation);
    for (name, case) in CASES {
        report.run(name, || case(&fresh()));
    }
    report
}

fn root() -> Caller {
    Caller::root()
}

/// A key out of few, so that they meet, with bytes that names of files can't
/// have.
fn key(random: &mut SplitMix) -> Vec<u8> {
    let len = random.below(4) as usize;
    (0..len).map(|_| random.pick(b"a/\0.%\xff")).collect()
}

fn value(random: &mut SplitMix) -> Vec<u8> {
    let most = random.pick(&[1, 40, 513, 5000, 40_000]);
    let len = random.below(most) as usize;
    let mut value = vec![0; len];
    random.fill(&mut value);
    value
}

/// All keys of a range, page by page.
fn all(
    values: &dyn KeyValue,
    range: &ScanRange,
    count: usize,
    with: bool,
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let (mut range, mut found) = (range.clone(), Vec::new());
    loop {
        let page = values.scan(&root(), &range, count, with).unwrap();
        assert!(page.entries.len() <= count);
        found.extend(page.entries);
        match page.next {
            Some(next) => range.after = Some(next),
            None => return found,
        }
    }
}

fn agrees_with_a_map(fresh: &Fresh) -> Option<()> {
    let (values, mut model) = (&*fresh.values, BTreeMap::<Vec<u8>, Vec<u8>>::new());
    let (mut random, mut read) = (SplitMix::new(11), Vec::new());
    for _ in 0..1500 {
        let (key, value) = (key(&mut random), value(&mut random));
        match random.below(12) {
            0..4 => {
                let when = random.pick(&[PutWhen::Always, PutWhen::Absent, PutWhen::Present]);
                let options = PutOptions { when, ..PutOptions::default() };
                let is_met = match when {
                    PutWhen::Always => true,
                    PutWhen::Absent => !model.contains_key(&key),
                    PutWhen::Present => model.contains_key(&key),
                };
                assert_eq!(values.put(&root(), &key, &value, options).unwrap(), is_met);
                if is_met {
                    model.insert(key, value);
                }
            }
            4..6 => assert_eq!(values.delete(&root(), &key).unwrap(), model.remove(&key).is_some()),
            6 => {
                let keys: Vec<_> = (0..random.below(6)).map(|_| self::key(&mut random)).collect();
                let change = |key| match random.below(3) {
                    0 => KeyChange::Delete(key),
                    _ => KeyChange::Put(key, &value),
                };
                let changes: Vec<_> = keys.iter().map(|key| &key[..]).map(change).collect();
                values.batch(&root(), &changes).unwrap();
                for change in changes {
                    match change {
                        KeyChange::Put(key, value) => drop(model.insert(key.to_vec(), value.to_vec())),
                        KeyChange::Delete(key) => drop(model.remove(key)),
                    }
                }
            }
            7 => {
                let mut range = ScanRange::default();
                match random.below(4) {
                    0 => range.prefix = key,
                    1 => (range.from, range.to) = (key, Some(self::key(&mut random))),
                    2 => range.after = Some(key),
                    _ => {}
                }
                let with = random.below(2) == 0;
                let wanted = model.iter().filter(|(key, _)| range.has(key));
                let wanted: Vec<_> =
                    wanted.map(|(key, value)| (key.clone(), with.then(|| value.clone()))).collect();
                assert_eq!(all(values, &range, 1 + random.below(9) as usize, with), wanted, "{range:?}");
            }
            8 => assert_eq!(
                values.len(&root(), &key).unwrap(),
                model.get(&key).map(|value| value.len() as u64)
            ),
            9 if random.below(20) == 0 => values.sync().unwrap(),
            _ => {
                // Into memory that has another value.
                let is_there = values.read(&root(), &key, &mut read, fresh.value_max).unwrap();
                assert_eq!(is_there.then_some(&read), model.get(&key));
            }
        }
    }
    Some(())
}

fn conditions(fresh: &Fresh) -> Option<()> {
    let put = |value: &[u8], when| {
        let options = PutOptions { when, ..PutOptions::default() };
        fresh.values.put(&root(), b"k", value, options).unwrap()
    };
    assert!(!put(b"1", PutWhen::Present));
    assert!(put(b"2", PutWhen::Absent) && !put(b"3", PutWhen::Absent));
    assert_eq!(fresh.values.get(&root(), b"k").unwrap().unwrap(), b"2");
    assert!(put(&[b'x'; 2000], PutWhen::Present));
    assert_eq!(fresh.values.len(&root(), b"k").unwrap(), Some(2000));
    assert!(fresh.values.delete(&root(), b"k").unwrap() && !fresh.values.delete(&root(), b"k").unwrap());
    Some(())
}

fn replaces_atomically(fresh: &Fresh) -> Option<()> {
    let (values, ended) = (&fresh.values, AtomicBool::new(false));
    values.put(&root(), b"k", &[0; 9000], PutOptions::default()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200_usize {
                let len = [9000, 100, 20_000][round % 3];
                values.put(&root(), b"k", &vec![round as u8; len], PutOptions::default()).unwrap();
            }
            ended.store(true, Ordering::Release);
        });
        while !ended.load(Ordering::Acquire) {
            let value = values.get(&root(), b"k").unwrap().expect("it is always there");
            assert!(value.iter().all(|byte| *byte == value[0]), "a mixture of two values");
            assert!([9000, 100, 20_000].contains(&value.len()));
        }
    });
    Some(())
}

fn one_adds(fresh: &Fresh) -> Option<()> {
    let options = PutOptions { when: PutWhen::Absent, ..PutOptions::default() };
    for round in 0..40_u8 {
        let added = std::thread::scope(|scope| {
            let add = |who: u8| {
                let values = &fresh.values;
                scope.spawn(move || values.put(&root(), &[b'k', round], &[who; 700], options).unwrap())
            };
            let threads: Vec<_> = (0..4).map(add).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        assert_eq!(added, 1);
    }
    Some(())
}

const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

fn same_as_files(fresh: &Fresh) -> Option<()> {
    let Fresh { values, fs, dir, .. } = fresh;
    values.put(&root(), b"a/b", b"from a put", PutOptions { mode: 0o640, ..PutOptions::default() }).unwrap();
    let entry = fs.lookup(&root(), *dir, OsStr::new("a%2Fb")).unwrap();
    assert_eq!((entry.attr.size, entry.attr.mode), (10, 0o640));
    let set = fs.setxattr(&root(), entry.attr.ino, OsStr::new("user.kept"), b"yes", XattrMode::Set);
    let handle = fs.open(&root(), entry.attr.ino, READ_WRITE.into()).unwrap().handle;
    values.put(&root(), b"a/b", &[b'n'; 600], PutOptions::default()).unwrap();
    // A program that has the old one open keeps it.
    let mut bytes = [0; 20];
    assert_eq!(fs.read(&root(), handle, 0, &mut bytes, false).unwrap(), 10);
    assert_eq!(&bytes[..10], b"from a put");
    fs.release(handle).unwrap();
    fs.forget(entry.attr.ino, 1);
    let entry = fs.lookup(&root(), *dir, OsStr::new("a%2Fb")).unwrap();
    assert_eq!((entry.attr.size, entry.attr.mode, entry.attr.nlink), (600, 0o640, 1));
    if set.is_ok() {
        assert_eq!(fs.getxattr(&root(), entry.attr.ino, OsStr::new("user.kept")).unwrap(), b"yes");
    }
    fs.forget(entry.attr.ino, 1);
    // And the other way round.
    let name = OsStr::new("made");
    let (entry, opened) = fs.create(&root(), *dir, name, 0o600, 0, true, READ_WRITE.into()).unwrap();
    fs.write(&root(), opened.handle, 0, b"from a file", WriteFlags::default()).unwrap();
    assert_eq!(values.get(&root(), b"made").unwrap().unwrap(), b"from a file");
    fs.release(opened.handle).unwrap();
    fs.forget(entry.attr.ino, 1);
    let made = fs.mkdir(&root(), *dir, OsStr::new("sub"), 0o700, 0).unwrap();
    fs.forget(made.attr.ino, 1);
    for done in [values.get(&root(), b"sub").map(drop), values.delete(&root(), b"sub").map(drop)] {
        assert_eq!(done.unwrap_err().errno(), Errno::EISDIR);
    }
    let put = values.put(&root(), b"sub", b"", PutOptions::default());
    assert_eq!(put.unwrap_err().errno(), Errno::EISDIR);
    let keys = all(&**values, &ScanRange::default(), 10, false).into_iter().map(|(key, _)| key);
    assert_eq!(keys.collect::<Vec<_>>(), [b"a/b".to_vec(), b"made".to_vec()]);
    assert!(values.delete(&root(), b"made").unwrap());
    assert_eq!(fs.lookup(&root(), *dir, name).unwrap_err().errno(), Errno::ENOENT);
    Some(())
}

fn rights(fresh: &Fresh) -> Option<()> {
    let Fresh { values, fs, dir, .. } = fresh;
    if !fresh.knows_callers || !rustix::process::geteuid().is_root() {
        return None;
    }
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let (one, other) = (
        Caller { uid: 1001, gid: 1001, groups: None, ..root() },
        Caller { uid: 1002, gid: 1002, groups: Some([77].into()), ..root() },
    );
    let denied = |done: braid_contract::Result<()>| assert_eq!(done.unwrap_err().errno(), Errno::EACCES);
    fs.setattr(&root(), *dir, None, &mode(0o777)).unwrap();
    let put =
        |caller: &Caller, value: &[u8]| values.put(caller, b"k", value, PutOptions::default()).map(drop);
    put(&one, b"mine").unwrap();
    denied(values.get(&other, b"k").map(drop));
    denied(put(&other, b"theirs"));
    denied(values.scan(&other, &ScanRange::default(), 9, true).map(drop));
    assert_eq!(values.scan(&other, &ScanRange::default(), 9, false).unwrap().entries.len(), 1);
    let entry = fs.lookup(&root(), *dir, OsStr::new("k")).unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid, entry.attr.mode), (1001, 1001, 0o600));
    fs.setattr(
        &root(),
        entry.attr.ino,
        None,
        &SetAttr { mode: Some(0o660), gid: Some(77), ..SetAttr::default() },
    )
    .unwrap();
    fs.forget(entry.attr.ino, 1);
    assert_eq!(values.get(&other, b"k").unwrap().unwrap(), b"mine");
    // By the right to write: it stays whose it was.
    put(&other, b"ours").unwrap();
    let entry = fs.lookup(&root(), *dir, OsStr::new("k")).unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid, entry.attr.mode), (1001, 77, 0o660));
    fs.forget(entry.attr.ino, 1);
    fs.setattr(&root(), *dir, None, &mode(0o1777)).unwrap();
    denied(values.delete(&other, b"k").map(drop));
    fs.setattr(&root(), *dir, None, &mode(0o755)).unwrap();
    for done in
        [put(&other, b"x"), values.delete(&one, b"k").map(drop), values.delete(&one, b"none").map(drop)]
    {
        denied(done);
    }
    fs.setattr(&root(), *dir, None, &mode(0o700)).unwrap();
    denied(values.get(&other, b"k").map(drop));
    denied(values.len(&other, b"none").map(drop));
    denied(values.scan(&other, &ScanRange::default(), 9, false).map(drop));
    assert_eq!(values.get(&root(), b"k").unwrap().unwrap(), b"ours");
    Some(())
}

fn limits(fresh: &Fresh) -> Option<()> {
    let (values, value_max) = (&fresh.values, fresh.value_max);
    let fails = |done: braid_contract::Result<()>, errno| assert_eq!(done.unwrap_err().errno(), errno);
    fails(values.get(&root(), &[b'x'; 256]).map(drop), Errno::ENAMETOOLONG);
    fails(values.put(&root(), &[0; 86], b"", PutOptions::default()).map(drop), Errno::ENAMETOOLONG);
    let long = vec![1; value_max + 1];
    fails(values.put(&root(), b"k", &long, PutOptions::default()).map(drop), Errno::EFBIG);
    fails(values.batch(&root(), &[KeyChange::Put(b"k", &long)]), Errno::EFBIG);
    let keys: Vec<Vec<u8>> = (0..=BATCH_MAX).map(|key| format!("{key:0>250}").into_bytes()).collect();
    let changes: Vec<_> = keys.iter().map(|key| KeyChange::Put(key, &long[..512])).collect();
    fails(values.batch(&root(), &changes), Errno::EFBIG);
    assert!(values.scan(&root(), &ScanRange::default(), 9, false).unwrap().entries.is_empty());
    values.batch(&root(), &changes[..BATCH_MAX]).unwrap();
    assert_eq!(all(&**values, &ScanRange::default(), 64, false).len(), BATCH_MAX);
    assert!(values.put(&root(), &keys[0], &long[..value_max], PutOptions::default()).unwrap());
    assert_eq!(values.get(&root(), &keys[0]).unwrap().unwrap().len(), value_max);
    let mut value = Vec::new();
    fails(values.read(&root(), &keys[0], &mut value, value_max - 1).map(drop), Errno::EFBIG);
    assert!(value.capacity() < value_max, "it takes no memory");
    assert!(values.read(&root(), &keys[1], &mut value, 512).unwrap() && value.len() == 512);
    Some(())
}
