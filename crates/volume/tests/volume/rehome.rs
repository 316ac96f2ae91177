//! Home is replaced while the volume is in use: applications do not notice, and
//! nothing is lost.

use crate::common::{Bed, Open, RANGE, caller, config, pattern};
use braid_contract::{
    Attr, DirEntry, DirSink, Errno, FileKind, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest,
    RenameMode, Result, SetAttr, SetTime, Timestamp, WriteFlags, XattrMode,
};
use braid_stores::native::open_tier_dir;
use braid_testkit::SplitMix;
use braid_volume::{OpenError, RehomePhase, RehomeReport, Volume, check, discard_copy, settle_home};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FLAGS: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

fn new_home(bed: &Bed, name: &str) {
    std::fs::create_dir(bed.path(name)).unwrap();
}

fn replace(bed: &Bed, open: &Open, name: &str) -> Result<RehomeReport> {
    let dir = bed.path(name);
    open.volume.replace_home(&open_tier_dir(&dir)?, dir.to_str().unwrap(), &mut |_| true)
}

/// Opens the volume with another directory as its home.
fn open_at(bed: &Bed, name: &str) -> std::result::Result<Open, OpenError> {
    Volume::open(config(&bed.path(name), &bed.path("slow"))).map(|volume| Open { volume })
}

fn assert_clean(bed: &Bed, home: &str) {
    let report = check(config(&bed.path(home), &bed.path("slow")), false, &mut |_| {}).unwrap();
    let problems: Vec<_> = report.problems.iter().map(|problem| &problem.what).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

/// Names, numbers and offsets of a directory, a few at a time.
#[derive(Default)]
struct Names {
    found: Vec<(String, InodeId)>,
    next: i64,
    room: usize,
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.next = entry.next_offset;
        self.found.push((entry.name.to_str().unwrap().to_owned(), entry.ino));
        true
    }
}

fn read_some(open: &Open, dir: HandleId, names: &mut Names, room: usize) {
    names.room = room;
    open.volume.read_dir(&caller(), dir, names.next, false, names).unwrap();
}

fn lookup_in(open: &Open, dir: InodeId, name: &str) -> Result<Attr> {
    Ok(open.volume.lookup(&caller(), dir, OsStr::new(name))?.attr)
}

fn same(mut a: Attr, mut b: Attr) -> bool {
    // Users can't set these.
    for attr in [&mut a, &mut b] {
        attr.ctime = Timestamp::default();
        attr.btime = None;
        attr.blocks = 0;
        attr.size *= u64::from(attr.kind == FileKind::Regular);
        // Copying a directory reads it.
        if attr.kind == FileKind::Directory {
            attr.atime = Timestamp::default();
        }
        attr.nlink *= u32::from(attr.kind == FileKind::Regular);
        attr.block_size = 0;
    }
    a == b
}

#[test]
fn everything_is_on_the_new_home_and_open_files_go_on() {
    let bed = Bed::new();
    new_home(&bed, "new");
    let open = bed.open();
    let fs = &*open.volume;
    let mkdir =
        |parent, name: &str| fs.mkdir(&caller(), parent, OsStr::new(name), 0o2751, 0).unwrap().attr.ino;
    let (a, b) = (mkdir(InodeId::ROOT, "a"), mkdir(InodeId::ROOT, "b"));
    let deep = mkdir(a, "deep");
    let (plain, plain_handle) = open.create("plain");
    open.write(plain_handle, 10, b"hello");
    open.write(plain_handle, 40 << 10, b"far away");
    let (spread, spread_handle) = open.create("spread");
    let data = pattern(1, 9 * RANGE as usize + 77);
    open.write_ranges(spread_handle, &data);
    fs.link(&caller(), spread, deep, OsStr::new("link")).unwrap();
    fs.setxattr(&caller(), plain, OsStr::new("user.colour"), b"green", XattrMode::Set).unwrap();
    fs.symlink(&caller(), b, OsStr::new("symlink"), OsStr::new("../plain")).unwrap();
    fs.mknod(&caller(), b, OsStr::new("pipe"), 0o010_640, 0, 0).unwrap();
    fs.mknod(&caller(), b, OsStr::new("device"), 0o020_600, 0, 0x0103).unwrap();
    let times = SetAttr {
        atime: Some(SetTime::At(Timestamp { secs: 1000, nanos: 5 })),
        mtime: Some(SetTime::At(Timestamp { secs: 2000, nanos: 7 })),
        uid: Some(12),
        gid: Some(34),
        ..SetAttr::default()
    };
    for ino in [plain, deep, a] {
        fs.setattr(&caller(), ino, None, &times).unwrap();
    }
    // Open, without a name.
    let (nameless, nameless_handle) = open.create("nameless");
    open.write(nameless_handle, 0, b"nobody can find me");
    let (nameless_spread, nameless_spread_handle) = open.create("nameless-spread");
    let lost = pattern(2, 5 * RANGE as usize);
    open.write_ranges(nameless_spread_handle, &lost);
    // One that is to get its name on the new home.
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let (late_name, late_opened) = fs.tmpfile(&caller(), a, 0o640, 0, flags.into()).unwrap();
    open.write_ranges(late_opened.handle, &lost);
    for name in ["nameless", "nameless-spread"] {
        fs.unlink(&caller(), InodeId::ROOT, OsStr::new(name)).unwrap();
    }
    // In the middle of a `readdir`.
    for at in 0..40 {
        fs.mknod(&caller(), deep, OsStr::new(&format!("entry{at}")), 0o100_600, 0, 0).unwrap();
    }
    let dir = fs.open_dir(&caller(), deep).unwrap();
    let mut names = Names::default();
    read_some(&open, dir, &mut names, 17);
    let before: Vec<Attr> =
        [plain, spread, a, b, deep].map(|ino| fs.getattr(&caller(), ino, None).unwrap()).to_vec();

    let report = replace(&bed, &open, "new").unwrap();
    assert!(report.old_location.ends_with("/home") && report.files >= 42, "{report:?}");

    let after: Vec<Attr> =
        [plain, spread, a, b, deep].map(|ino| fs.getattr(&caller(), ino, None).unwrap()).to_vec();
    for (before, after) in before.iter().zip(&after) {
        assert!(same(*before, *after), "{before:?}\n{after:?}");
    }
    read_some(&open, dir, &mut names, 1000);
    let mut found: Vec<_> = names.found.iter().map(|(name, _)| name.clone()).collect();
    found.sort();
    found.dedup();
    assert_eq!((found.len(), names.found.len()), (43, 43), "{:?}", names.found);
    for (name, ino) in names.found.iter().filter(|(name, _)| name.starts_with("entry")) {
        assert_eq!(lookup_in(&open, deep, name).unwrap().ino, *ino);
    }
    let mut again = Names::default();
    read_some(&open, dir, &mut again, 1000);
    assert_eq!(again.found.len(), 43);

    assert_eq!(open.read(plain_handle, 10, 5), b"hello");
    assert_eq!(open.read(spread_handle, 0, 10 * RANGE as usize), data);
    assert_eq!(open.read(nameless_handle, 0, 100), b"nobody can find me");
    assert_eq!(open.read(nameless_spread_handle, 0, lost.len() + 1), lost);
    for ino in [nameless, nameless_spread] {
        assert_eq!(fs.getattr(&caller(), ino, None).unwrap().nlink, 0);
    }
    let named = fs.link(&caller(), late_name.attr.ino, b, OsStr::new("late-name")).unwrap();
    assert_eq!((named.attr.ino, named.attr.nlink), (late_name.attr.ino, 1));
    fs.release(late_opened.handle).unwrap();
    // They stay usable.
    open.write(spread_handle, 3 * RANGE + 5, b"written on the new home");
    open.write(plain_handle, 0, b"new");
    open.write(nameless_spread_handle, 2 * RANGE, b"x");
    fs.fsync(&caller(), spread_handle, false).unwrap();
    assert_eq!(lookup_in(&open, deep, "link").unwrap().ino, spread);
    assert_eq!(lookup_in(&open, deep, "link").unwrap().nlink, 2);
    let (_, late) = open.create("late");
    open.write(late, 0, b"late");
    for handle in [plain_handle, spread_handle, nameless_handle, nameless_spread_handle, late] {
        fs.release(handle).unwrap();
    }
    let status = fs.status();
    assert!(status.tiers[0].location.ends_with("/new"), "{}", status.tiers[0].location);
    open.close();

    assert!(matches!(open_at(&bed, "home"), Err(OpenError::HomeMoved { to, .. }) if to.ends_with("/new")));
    assert_clean(&bed, "new");
    let open = open_at(&bed, "new").unwrap();
    let mut expected = data;
    expected[3 * RANGE as usize + 5..][..23].copy_from_slice(b"written on the new home");
    let handle = open.open(open.lookup("spread").unwrap());
    assert_eq!(open.read(handle, 0, 10 * RANGE as usize), expected);
    let ino = open.lookup("plain").unwrap();
    assert_eq!(open.volume.getxattr(&caller(), ino, OsStr::new("user.colour")).unwrap(), b"green");
    let handle = open.open(ino);
    assert_eq!(open.read(handle, 0, 3), b"new");
    assert_eq!(open.read(handle, (40 << 10) - 1, 9), b"\0far away");
    let b = open.lookup("b").unwrap();
    let handle = open.open(lookup_in(&open, b, "late-name").unwrap().ino);
    assert_eq!(open.read(handle, 0, lost.len() + 1), lost);
    let link = lookup_in(&open, b, "symlink").unwrap().ino;
    assert_eq!(open.volume.readlink(&caller(), link).unwrap(), b"../plain");
    assert_eq!(lookup_in(&open, b, "device").unwrap().rdev, 0x0103);
    assert_eq!(lookup_in(&open, b, "pipe").unwrap().kind, FileKind::Fifo);
    assert!(open.lookup("nameless").is_err());
    drop(open);
    // The two files without a name left nothing on the other tier.
    assert_clean_after_kill(&bed, "new");
}

/// Recovers, unmounts and checks the volume.
fn assert_clean_after_kill(bed: &Bed, home: &str) {
    open_at(bed, home).unwrap().close();
    assert_clean(bed, home);
}

#[test]
fn directories_that_will_not_do_are_refused_and_a_cancelled_copy_leaves_nothing() {
    let bed = Bed::new();
    for name in ["new", "full"] {
        new_home(&bed, name);
    }
    std::fs::write(bed.path("full").join("thing"), "x").unwrap();
    let open = bed.open();
    let (_, handle) = open.create("file");
    open.write_ranges(handle, &pattern(3, 20 * RANGE as usize));
    assert_eq!(replace(&bed, &open, "full").unwrap_err().errno(), Errno::ENOTEMPTY);
    // This process holds the lock, for another open of it.
    let slow = braid_stores::native::open_dir(&bed.path("slow")).unwrap();
    let refused = open.volume.replace_home(&slow, "slow", &mut |_| true).unwrap_err();
    assert_eq!(refused.errno(), Errno::EEXIST, "{refused}");
    for phase in
        [RehomePhase::Counting, RehomePhase::Copying, RehomePhase::CatchingUp, RehomePhase::Switching]
    {
        let root = open_tier_dir(&bed.path("new")).unwrap();
        let cancelled = open.volume.replace_home(&root, "new", &mut |progress| progress.phase != phase);
        assert_eq!(cancelled.unwrap_err().errno(), Errno::ECANCELED, "{phase:?}");
        assert_eq!(std::fs::read_dir(bed.path("new")).unwrap().count(), 0, "{phase:?}");
        open.write(handle, 5, b"goes on");
    }
    open.close();
    assert_clean(&bed, "home");
}

#[test]
fn a_copy_that_was_not_completed_is_no_home_and_the_old_one_goes_on() {
    let bed = Bed::new();
    new_home(&bed, "new");
    let open = bed.open();
    let (_, handle) = open.create("file");
    open.write(handle, 0, b"old");
    let new = bed.path("new");
    // The daemon is killed midway: its work so far stays.
    let root = open_tier_dir(&new).unwrap();
    let saved = bed.path("saved");
    let mut save = |progress: &braid_volume::RehomeProgress| {
        if progress.phase == RehomePhase::Switching {
            let copy = |from: &std::path::Path, to: &str| {
                let to = bed.path(to);
                let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
                assert!(done.success());
            };
            copy(&new, "saved");
            copy(&bed.path("home"), "saved-home");
        }
        true
    };
    open.volume.replace_home(&root, new.to_str().unwrap(), &mut save).unwrap();
    drop((open, root));
    // As before: neither complete nor moved.
    std::fs::remove_dir_all(&new).unwrap();
    std::fs::rename(&saved, &new).unwrap();
    assert!(
        matches!(open_at(&bed, "new"), Err(OpenError::IncompleteHome { of, .. }) if of.ends_with("/home"))
    );
    let old = open_tier_dir(&bed.path("saved-home")).unwrap();
    let left = settle_home(&old, &mut |place| open_tier_dir(place.as_ref())).unwrap().unwrap();
    discard_copy(&left).unwrap();
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 0);
    drop(old);
    let open = open_at(&bed, "saved-home").unwrap();
    let handle = open.open(open.lookup("file").unwrap());
    assert_eq!(open.read(handle, 0, 10), b"old");
}

#[test]
fn closing_the_volume_gives_a_replacement_up() {
    let bed = Bed::new();
    new_home(&bed, "new");
    let open = bed.open();
    let (ino, handle) = open.create("file");
    open.write(handle, 0, b"old");
    open.volume.release(handle).unwrap();
    // The kernel does I/O on it itself, and the replacement waits.
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, passthrough_allowed: true, ..OpenRequest::default() };
    open.volume.open(&caller(), ino, request).unwrap();
    let (begun, waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            let begun = begun;
            let root = open_tier_dir(&bed.path("new")).unwrap();
            let mut tell = |progress: &braid_volume::RehomeProgress| {
                if progress.phase == RehomePhase::Waiting {
                    let _ = begun.send(progress.waiting);
                }
                true
            };
            open.volume.replace_home(&root, "new", &mut tell).unwrap_err().errno()
        });
        assert_eq!(waiting.recv().unwrap(), 1);
        open.volume.shutdown().unwrap();
        assert_eq!(replacing.join().unwrap(), Errno::ECANCELED);
    });
    drop(open);
    assert_eq!(std::fs::read_dir(bed.path("new")).unwrap().count(), 0);
    assert_clean(&bed, "home");
}

/// The model that one thread has of its own directory: contents by inode, names
/// in two directories, and open files.
struct World<'a> {
    open: &'a Open,
    dice: SplitMix,
    dirs: [InodeId; 2],
    names: BTreeMap<(usize, String), InodeId>,
    contents: BTreeMap<InodeId, Vec<u8>>,
    handles: Vec<(InodeId, HandleId)>,
}

impl<'a> World<'a> {
    fn new(open: &'a Open, number: u64) -> Self {
        let name = format!("world{number}");
        let root = open.volume.mkdir(&caller(), InodeId::ROOT, OsStr::new(&name), 0o755, 0).unwrap().attr.ino;
        let dirs = ["one", "two"]
            .map(|name| open.volume.mkdir(&caller(), root, OsStr::new(name), 0o755, 0).unwrap().attr.ino);
        Self {
            open,
            dice: SplitMix::new(number * 77 + 1),
            dirs,
            names: BTreeMap::new(),
            contents: BTreeMap::new(),
            handles: Vec::new(),
        }
    }

    fn any_name(&mut self) -> Option<((usize, String), InodeId)> {
        let at = self.dice.below(self.names.len().max(1) as u64) as usize;
        self.names.iter().nth(at).map(|(name, ino)| (name.clone(), *ino))
    }

    fn new_name(&mut self) -> (usize, String) {
        (self.dice.below(2) as usize, format!("n{}", self.dice.below(12)))
    }

    fn handle(&mut self, ino: InodeId) -> HandleId {
        if let Some((_, handle)) = self.handles.iter().find(|(open, _)| *open == ino) {
            return *handle;
        }
        let request = OpenRequest { flags: FLAGS, ..OpenRequest::default() };
        let handle = self.open.volume.open(&caller(), ino, request).unwrap().handle;
        self.handles.push((ino, handle));
        handle
    }

    fn step(&mut self) {
        let fs = &*self.open.volume;
        match self.dice.below(12) {
            0 | 1 => {
                let name = self.new_name();
                if !self.names.contains_key(&name) {
                    let dir = self.dirs[name.0];
                    let made =
                        fs.create(&caller(), dir, OsStr::new(&name.1), 0o100_644, 0, true, FLAGS.into());
                    let (entry, opened) = made.unwrap();
                    // The number may be that of a file that is gone.
                    self.contents.insert(entry.attr.ino, Vec::new());
                    self.names.insert(name, entry.attr.ino);
                    self.handles.push((entry.attr.ino, opened.handle));
                }
            }
            2..=5 => self.write(),
            6 => {
                if let Some((_, ino)) = self.any_name() {
                    let size = self.dice.below(6 * RANGE);
                    self.open.truncate(ino, size);
                    self.contents.get_mut(&ino).unwrap().resize(size as usize, 0);
                }
            }
            7 => {
                if let Some(((dir, name), _)) = self.any_name() {
                    fs.unlink(&caller(), self.dirs[dir], OsStr::new(&name)).unwrap();
                    self.names.remove(&(dir, name));
                }
            }
            8 => {
                if let Some((from, ino)) = self.any_name() {
                    let to = self.new_name();
                    let (old, new) = (self.dirs[from.0], self.dirs[to.0]);
                    let names = (OsStr::new(&from.1), OsStr::new(&to.1));
                    fs.rename(&caller(), old, names.0, new, names.1, RenameMode::Replace).unwrap();
                    if self.names.get(&to) != Some(&ino) {
                        self.names.remove(&from);
                        self.names.insert(to, ino);
                    }
                }
            }
            9 => {
                if let Some((_, ino)) = self.any_name() {
                    let to = self.new_name();
                    let name = OsStr::new(&to.1);
                    match fs.link(&caller(), ino, self.dirs[to.0], name) {
                        Ok(_) => assert!(self.names.insert(to, ino).is_none()),
                        Err(error) => assert_eq!(error.errno(), Errno::EEXIST),
                    }
                }
            }
            10 => {
                if self.handles.len() > 4 {
                    let (_, handle) = self.handles.remove(0);
                    fs.release(handle).unwrap();
                } else if let Some((_, handle)) = self.handles.last() {
                    fs.fsync(&caller(), *handle, true).unwrap();
                }
            }
            _ => self.check_one(),
        }
    }

    fn write(&mut self) {
        let Some((_, ino)) = self.any_name() else { return };
        let handle = self.handle(ino);
        let (offset, len) = (self.dice.below(5 * RANGE), 1 + self.dice.below(30_000));
        let data = pattern(self.dice.below(1 << 30), len as usize);
        let written = self.open.volume.write(&caller(), handle, offset, &data, WriteFlags::default());
        assert_eq!(written.unwrap(), data.len());
        let content = self.contents.get_mut(&ino).unwrap();
        let end = (offset + len) as usize;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(&data);
    }

    fn check_one(&mut self) {
        let open = match self.handles.is_empty() {
            true => self.any_name().map(|(_, ino)| (ino, self.handle(ino))),
            false => Some(self.handles[self.dice.below(self.handles.len() as u64) as usize]),
        };
        if let Some((ino, handle)) = open {
            let content = &self.contents[&ino];
            let found = self.open.read(handle, 0, content.len() + 10);
            assert!(found == *content, "inode {} differs", ino.0);
        }
    }

    /// Everything, by name, on a volume that may have been opened again.
    fn check_all(&self, open: &Open, number: u64) {
        let root = open.lookup(&format!("world{number}")).unwrap();
        for (dir, name) in ["one", "two"].iter().enumerate() {
            let dir_ino = lookup_in(open, root, name).unwrap().ino;
            let handle = open.volume.open_dir(&caller(), dir_ino).unwrap();
            let mut names = Names::default();
            read_some(open, handle, &mut names, 1000);
            let mut found: Vec<String> = names.found.into_iter().map(|(name, _)| name).collect();
            found.retain(|name| !name.starts_with('.'));
            found.sort();
            let expected = self.names.keys().filter(|(at, _)| *at == dir).map(|(_, name)| name.clone());
            assert_eq!(found, expected.collect::<Vec<_>>(), "world {number}");
        }
        for ((dir, name), ino) in &self.names {
            let dir = lookup_in(open, root, ["one", "two"][*dir]).unwrap().ino;
            let attr = lookup_in(open, dir, name).unwrap();
            let links = self.names.values().filter(|other| *other == ino).count();
            assert_eq!(attr.nlink as usize, links, "links of {name}");
            let content = &self.contents[ino];
            assert_eq!(attr.size, content.len() as u64);
            let handle = open.open(attr.ino);
            assert!(open.read(handle, 0, content.len() + 10) == *content, "{name} differs");
            open.volume.release(handle).unwrap();
        }
    }
}

#[test]
fn threads_that_change_everything_do_not_notice() {
    const HOMES: [&str; 4] = ["new0", "new1", "new2", "new3"];
    let bed = Bed::new();
    HOMES.iter().for_each(|name| new_home(&bed, name));
    let open = bed.open();
    let (end, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let worlds: Vec<World<'_>> = std::thread::scope(|scope| {
        let run = |number| {
            let (open, end, steps) = (&open, &end, &steps);
            scope.spawn(move || {
                let mut world = World::new(open, number);
                while !end.load(Ordering::Relaxed) {
                    world.step();
                    steps.fetch_add(1, Ordering::Relaxed);
                }
                world
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        for name in HOMES {
            let more = steps.load(Ordering::Relaxed) + 200;
            while steps.load(Ordering::Relaxed) < more && !threads.iter().any(|one| one.is_finished()) {
                std::thread::yield_now();
            }
            let replaced = replace(&bed, &open, name);
            if replaced.is_err() {
                end.store(true, Ordering::Relaxed);
            }
            replaced.unwrap();
        }
        end.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, world) in worlds.iter().enumerate() {
        world.check_all(&open, number as u64);
        for (ino, handle) in &world.handles {
            let content = &world.contents[ino];
            assert!(open.read(*handle, 0, content.len() + 10) == *content, "open inode {} differs", ino.0);
        }
    }
    let worlds: Vec<_> = worlds.into_iter().map(|world| (world.names, world.contents)).collect();
    let volume = open;
    volume.close();
    assert_clean(&bed, HOMES[3]);
    let open = open_at(&bed, HOMES[3]).unwrap();
    for (number, (names, contents)) in worlds.into_iter().enumerate() {
        let world = World {
            open: &open,
            dice: SplitMix::new(0),
            dirs: [InodeId::ROOT; 2],
            names,
            contents,
            handles: Vec::new(),
        };
        world.check_all(&open, number as u64);
    }
}
