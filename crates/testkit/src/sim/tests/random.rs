//! Random operations: properties of every outcome.

use super::*;
use crate::sim::Seeded;
use braid_contract::SplitMix;
use braid_contract::{FallocateMode, FileKind, RenameMode, SetTime, XattrMode};
use std::collections::BTreeMap;

/// All sizes and contents that a file had since it was last synced.
#[derive(Default)]
struct Past {
    states: Vec<Vec<u8>>,
}

struct Driver {
    disk: Disk,
    random: SplitMix,
    past: BTreeMap<u64, Past>,
    version: u8,
}

impl Driver {
    fn new(model: Model, seed: u64) -> Self {
        Self { disk: disk(model), random: SplitMix::new(seed), past: BTreeMap::new(), version: 0 }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn dir(&mut self) -> Fd {
        let root = self.disk.root();
        let names = ["d0", "d1", "d2", "d0/d1"];
        let at = self.below(6) as usize;
        names.get(at).and_then(|name| root.open_at(os(name), Access::Directory).ok()).unwrap_or(root)
    }

    fn name(&mut self) -> String {
        let kind = if self.below(3) == 0 { 'd' } else { 'f' };
        format!("{kind}{}", self.below(3))
    }

    fn step(&mut self) {
        let (dir, other) = (self.dir(), self.dir());
        let (name, other_name) = (self.name(), self.name());
        let name = os(&name);
        match self.below(20) {
            0..5 => drop(dir.create_at(name, 0o600)),
            5 => drop(dir.make_dir_at(name, 0o700)),
            6 => drop(dir.remove_at(name, false)),
            7 => drop(dir.remove_at(name, true)),
            8 | 9 => {
                let modes =
                    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::Whiteout];
                let mode = modes[self.below(4) as usize];
                drop(dir.rename_at(name, &*other, os(&other_name), mode));
            }
            10 => {
                if let Ok(file) = dir.open_at(name, Access::Path) {
                    drop(file.link_to(&*other, os(&other_name)));
                }
            }
            11 => {
                let _ = dir.sync(false);
            }
            12 if self.below(4) == 0 => {
                dir.sync_fs().unwrap();
                self.past.clear();
            }
            _ => {
                if let Ok(file) = dir.open_at(name, Access::ReadWrite) {
                    self.change_file(&file);
                }
            }
        }
    }

    fn change_file(&mut self, file: &Fd) {
        let ino = file.stat().unwrap().attr.ino.0;
        let (offset, len) = (self.below(20_000), 1 + self.below(9_000));
        let before = read(file, 0, 1 << 20);
        self.past.entry(ino).or_default().states.push(before);
        self.version = self.version % 250 + 1;
        match self.below(10) {
            0..3 => write(file, offset, &vec![self.version; len as usize]),
            3 | 4 => file.truncate(offset).unwrap(),
            5 => file.allocate(FallocateMode::PunchHole, offset, len).unwrap(),
            6 => file.allocate(FallocateMode::ZeroRange { keep_size: false }, offset, len).unwrap(),
            7 => {
                file.set_xattr(os("user.x"), &[self.version], XattrMode::Set).unwrap();
                file.set_times(None, Some(SetTime::Now)).unwrap();
            }
            8 => {
                let keep_size = self.below(2) == 0;
                file.allocate(FallocateMode::Allocate { keep_size }, offset, len).unwrap();
            }
            _ => {
                file.sync(self.below(2) == 0).unwrap();
                self.past.remove(&ino);
            }
        }
        let after = read(file, 0, 1 << 20);
        self.past.entry(ino).or_default().states.push(after);
    }

    /// Checks an outcome: links agree, and files have only contents that they
    /// once had.
    fn check(&self, found: &Disk) {
        assert_eq!(questions(found), 0);
        let mut links = BTreeMap::new();
        self.check_dir(&found.root(), &mut links);
        for (nlink, seen) in links.values() {
            assert_eq!(nlink, seen);
        }
    }

    fn check_dir(&self, dir: &Fd, links: &mut BTreeMap<u64, (u32, u32)>) {
        let mut subdirs = 0;
        for name in names(&**dir) {
            if let Ok(below) = dir.open_at(os(&name), Access::Directory) {
                subdirs += 1;
                self.check_dir(&below, links);
                continue;
            }
            let attr = dir.open_at(os(&name), Access::Path).unwrap().stat().unwrap().attr;
            links.entry(attr.ino.0).or_insert((attr.nlink, 0)).1 += 1;
            if attr.kind != FileKind::Regular {
                continue;
            }
            let file = dir.open_at(os(&name), Access::Read).unwrap();
            self.check_file(attr.ino.0, &read(&file, 0, 1 << 20));
        }
        assert_eq!(dir.stat().unwrap().attr.nlink, 2 + subdirs);
    }

    fn check_file(&self, ino: u64, found: &[u8]) {
        let Some(past) = self.past.get(&ino) else { return };
        if let [only] = &past.states[..] {
            assert_eq!(found, only, "synced and not changed since");
        }
        assert!(past.states.iter().any(|state| state.len() == found.len()));
        for (at, byte) in found.iter().enumerate() {
            let held = past.states.iter().any(|state| state.get(at) == Some(byte));
            assert!(*byte == 0 || held, "{byte} at {at} was never there");
        }
    }
}

#[test]
fn outcomes_of_random_operations_hold_together() {
    let models = [Model::WORST, Model::EXT4, Model::BTRFS, APART, ORDERED];
    for seed in 0..30 {
        let model = models[seed as usize % models.len()];
        let mut driver = Driver::new(model, seed);
        for step in 0..150 {
            driver.step();
            if step % 10 != 0 {
                continue;
            }
            let frozen = driver.disk.freeze();
            let kept = frozen.after_power_loss(&mut AllKept);
            assert_eq!(dump(&kept), dump(&driver.disk), "seed {seed} step {step}");
            driver.check(&kept);
            driver.check(&frozen.after_power_loss(&mut AllLost));
            for sample in 0..4 {
                let outcome = || frozen.after_power_loss(&mut Seeded::new(seed * 1000 + sample));
                let found = outcome();
                driver.check(&found);
                assert_eq!(dump(&found), dump(&outcome()));
                assert_eq!(dump(&found), dump(&super::outcome(&found, AllLost)));
            }
        }
        driver.disk.root().sync_fs().unwrap();
        assert_eq!(dump(&outcome(&driver.disk, AllLost)), dump(&driver.disk));
    }
}

#[test]
fn space_in_use_is_what_the_files_take() {
    let mut driver = Driver::new(Model::WORST, 1);
    for _ in 0..2000 {
        driver.step();
    }
    let space = driver.disk.root().usage().unwrap().space;
    let kept = outcome(&driver.disk, AllKept).root().usage().unwrap().space;
    assert_eq!(space, kept);
    assert!(space.free < space.total);
}
