//! Tests of the simulated file system: helpers, and its behaviour by area.

mod names;
mod random;
mod semantics;
mod syncs;
mod writes;

use super::{AllKept, AllLost, Chooser, Disk, DiskConfig, Model, Scripted};
use braid_contract::{Access, Errno, Fd, NativeDirEntry, NativeFd, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};

/// Each on its own, nothing for nothing.
const APART: Model = Model { journal_order: false, fsync_names: false, tear: false };
/// One order for all metadata.
const ORDERED: Model = Model { journal_order: true, fsync_names: false, tear: false };

fn disk(model: Model) -> Disk {
    let name = "disk".to_owned();
    Disk::new(DiskConfig { name, capacity: 16 << 20, device: 7, volatile: false, model })
}

fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn create(dir: &Fd, name: &str) -> Fd {
    dir.create_at(os(name), 0o644).unwrap()
}

fn mkdir(dir: &Fd, name: &str) -> Fd {
    dir.make_dir_at(os(name), 0o755).unwrap();
    open_dir(dir, name)
}

fn open_dir(dir: &Fd, name: &str) -> Fd {
    dir.open_at(os(name), Access::Directory).unwrap()
}

fn write(file: &Fd, offset: u64, bytes: &[u8]) {
    assert_eq!(file.write_at(offset, &[IoSlice::new(bytes)], false).unwrap(), bytes.len());
}

fn read(file: &Fd, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = file.read_at(offset, &mut [IoSliceMut::new(&mut bytes)], false).unwrap();
    bytes.truncate(len);
    bytes
}

fn contents(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    let file = disk.root().open_at(os(path), Access::Read).ok()?;
    Some(read(&file, 0, 1 << 20))
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn names(dir: &dyn NativeFd) -> Vec<String> {
    let mut names = Vec::new();
    let mut take = |entry: &NativeDirEntry<'_>| {
        names.push(entry.name.to_string_lossy().into_owned());
        Ok(true)
    };
    dir.read_dir(0, &mut take).unwrap();
    names.retain(|name| name != "." && name != "..");
    names
}

/// Everything that can be seen of a disk.
fn dump(disk: &Disk) -> Vec<String> {
    let mut lines = Vec::new();
    dump_dir(&disk.root(), "", &mut lines);
    lines
}

fn dump_dir(dir: &Fd, path: &str, lines: &mut Vec<String>) {
    lines.push(format!("{path}/ {:?}", dir.stat().unwrap()));
    for name in names(&**dir) {
        let fd = dir.open_at(os(&name), Access::Path).unwrap();
        let stat = fd.stat().unwrap();
        let mut xattrs = [0; 256];
        let len = fd.list_xattr(&mut xattrs).unwrap();
        lines.push(format!("{path}/{name} {stat:?} {}", String::from_utf8_lossy(&xattrs[..len])));
        if let Ok(dir) = dir.open_at(os(&name), Access::Directory) {
            dump_dir(&dir, &format!("{path}/{name}"), lines);
        } else if let Ok(file) = dir.open_at(os(&name), Access::Read) {
            let bytes = read(&file, 0, 1 << 20);
            let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
            lines.push(format!("{:?}", runs.collect::<Vec<_>>()));
        }
    }
}

/// The outcomes of losing power now, as `look` sees them.
fn outcomes<T: Ord>(disk: &Disk, look: impl Fn(&Disk) -> T) -> BTreeSet<T> {
    let frozen = disk.freeze();
    let mut script = Scripted::new();
    let mut seen = BTreeSet::new();
    loop {
        seen.insert(look(&frozen.after_power_loss(&mut script)));
        if !script.advance() {
            return seen;
        }
    }
}

fn count_outcomes(disk: &Disk) -> usize {
    let frozen = disk.freeze();
    let mut script = Scripted::new();
    let mut count = 0;
    loop {
        drop(frozen.after_power_loss(&mut script));
        count += 1;
        if !script.advance() {
            return count;
        }
    }
}

/// How many questions are asked when all answers are that nothing is kept.
fn questions(disk: &Disk) -> usize {
    let mut script = Scripted::new();
    drop(disk.freeze().after_power_loss(&mut script));
    script.asked().len()
}

fn outcome(disk: &Disk, mut chooser: impl Chooser) -> Disk {
    disk.freeze().after_power_loss(&mut chooser)
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn set_of<const N: usize>(sets: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    sets.into_iter().map(strings).collect()
}

#[test]
fn nothing_pending_means_one_outcome() {
    let disk = disk(APART);
    write(&create(&disk.root(), "file"), 0, b"bytes");
    disk.root().sync_fs().unwrap();
    assert_eq!(count_outcomes(&disk), 1);
    assert_eq!(dump(&outcome(&disk, AllLost)), dump(&disk));
    assert_eq!(dump(&outcome(&disk, AllKept)), dump(&disk));
}

#[test]
fn a_crash_of_the_process_loses_nothing_and_leaves_everything_pending() {
    let disk = disk(APART);
    let file = create(&disk.root(), "file");
    write(&file, 0, b"bytes");
    let crashed = disk.freeze().after_process_crash();
    assert_eq!(dump(&crashed), dump(&disk));
    assert_eq!(count_outcomes(&crashed), count_outcomes(&disk));
    assert!(count_outcomes(&disk) > 1);
    assert_eq!(contents(&outcome(&crashed, AllLost), "file"), None);
    crashed.root().sync_fs().unwrap();
    assert_eq!(contents(&outcome(&crashed, AllLost), "file").as_deref(), Some(&b"bytes"[..]));
}

#[test]
fn a_crash_of_the_process_ends_files_that_were_open_without_a_name() {
    let disk = disk(APART);
    let file = create(&disk.root(), "file");
    write(&file, 0, b"bytes");
    disk.root().remove_at(os("file"), false).unwrap();
    let handle = file.handle().unwrap();
    let crashed = disk.freeze().after_process_crash();
    assert_eq!(errno(crashed.root().open_handle(&handle, Access::Read)), Some(Errno::ESTALE));
    let space = crashed.root().usage().unwrap().space;
    assert_eq!(space.free, space.total);
    assert_eq!(read(&file, 0, 9), b"bytes");
}

#[test]
fn what_happens_after_a_freeze_is_not_in_it() {
    let disk = disk(APART);
    let file = create(&disk.root(), "file");
    write(&file, 0, b"first");
    disk.root().sync_fs().unwrap();
    let frozen = disk.freeze();
    write(&file, 0, b"later");
    disk.root().sync_fs().unwrap();
    disk.root().remove_at(os("file"), false).unwrap();
    let found = frozen.after_power_loss(&mut AllKept);
    assert_eq!(contents(&found, "file").as_deref(), Some(&b"first"[..]));
    assert_ne!(frozen.version(), disk.freeze().version());
}

#[test]
fn a_volatile_disk_is_empty_after_power_loss() {
    let config = disk(APART).config().clone();
    let disk = Disk::new(DiskConfig { volatile: true, ..config });
    create(&disk.root(), "file");
    disk.root().sync_fs().unwrap();
    assert!(disk.root().usage().unwrap().volatile);
    assert_eq!(names(&*outcome(&disk, AllKept).root()), Vec::<String>::new());
    assert_eq!(contents(&disk.freeze().after_process_crash(), "file"), Some(Vec::new()));
}
