//! Volumes of version 1 become volumes of version 2, also across a crash, and
//! attributes that Braid did not write are not believed.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{DirEntry, DirSink, Errno, FileSystem, InodeId, RenameMode};
use braid_volume::check;
use rustix::fs::XattrFlags;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

const LABELS: [&str; 2] = ["home/.braid/label", "slow/.braid/label"];
const TABLE: &str = "home/.braid/volume";

fn attr_name() -> &'static str {
    if rustix::process::geteuid().is_root() { "trusted.braid.id" } else { "user.braid.id" }
}

fn sealed(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at..at + 4].fill(0);
    let crc = crc32c::crc32c(&bytes);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn contents() -> Vec<u8> {
    pattern(3, 7 * RANGE as usize)
}

fn key_at(name: &str) -> usize {
    if name == TABLE { 40 } else { 88 }
}

fn key(bed: &Bed, name: &str) -> Vec<u8> {
    fs::read(bed.path(name)).unwrap()[key_at(name)..][..16].to_vec()
}

fn versions(bed: &Bed) -> Vec<u8> {
    [TABLE, LABELS[0], LABELS[1]].iter().map(|name| fs::read(bed.path(name)).unwrap()[8]).collect()
}

fn attr(bed: &Bed, name: &str) -> Vec<u8> {
    let mut value = [0; 128];
    let len = rustix::fs::getxattr(bed.path("home").join(name), attr_name(), &mut value[..]).unwrap();
    value[..len].to_vec()
}

fn set_attr(bed: &Bed, name: &str, value: &[u8]) {
    let path = bed.path("home").join(name);
    rustix::fs::setxattr(path, attr_name(), value, XattrFlags::empty()).unwrap();
}

/// The attribute as version 1 has it.
fn old_attr(value: &[u8]) -> Vec<u8> {
    let mut old = value[..40].to_vec();
    old[0] = 1;
    sealed(old, 4)
}

fn downgrade(bed: &Bed, name: &str) {
    let mut bytes = fs::read(bed.path(name)).unwrap();
    bytes[8] = 1;
    bytes[key_at(name)..][..17].fill(0);
    fs::write(bed.path(name), sealed(bytes, 12)).unwrap();
}

fn spread(open: &Open, name: &str) {
    let (_, handle) = open.create(name);
    open.write_ranges(handle, &contents());
    open.volume.release(handle).unwrap();
}

/// A volume of version 1 with a spread file `f`.
fn version_1() -> Bed {
    let bed = Bed::new();
    let open = bed.open();
    spread(&open, "f");
    open.close();
    let old = old_attr(&attr(&bed, "f"));
    set_attr(&bed, "f", &old);
    [TABLE, LABELS[0], LABELS[1]].iter().for_each(|name| downgrade(&bed, name));
    bed
}

/// The volume is one of version 2, with unchanged contents.
fn is_upgraded(bed: &Bed) {
    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    let handle = open.open(ino);
    assert!(open.read(handle, 0, contents().len()) == contents());
    open.volume.release(handle).unwrap();
    spread(&open, "new");
    open.close();
    assert_eq!(versions(bed), [2, 2, 2]);
    assert_ne!(key(bed, TABLE), [0; 16]);
    for name in LABELS {
        assert_eq!(key(bed, name), key(bed, TABLE));
        assert_eq!(fs::read(bed.path(name)).unwrap()[104], 1, "it was one of version 1");
    }
    assert_eq!((attr(bed, "f").len(), attr(bed, "new").len()), (40, 64));
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

#[test]
fn a_volume_of_version_1_becomes_one_of_version_2() {
    let bed = version_1();
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty() && versions(&bed) == [1, 1, 1], "{report:?}");
    is_upgraded(&bed);
    let upgraded = key(&bed, TABLE);
    bed.open().close();
    assert_eq!(key(&bed, TABLE), upgraded, "it is kept");
}

#[test]
fn an_upgrade_that_a_crash_interrupted_goes_on() {
    // The part that was not written yet; the table comes first.
    for behind in
        [vec![LABELS[0], LABELS[1]], vec![LABELS[0]], vec![LABELS[1]], vec![TABLE], vec![TABLE, LABELS[0]]]
    {
        let bed = version_1();
        bed.open().close();
        let before = key(&bed, TABLE);
        behind.iter().for_each(|name| downgrade(&bed, name));
        let report = check(bed.config(), false, &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{behind:?}: {report:?}");
        is_upgraded(&bed);
        assert_eq!(key(&bed, TABLE), before, "{behind:?}");
    }
}

#[test]
fn a_tier_that_was_absent_is_upgraded_when_it_is_back() {
    let bed = version_1();
    let mut config = bed.config();
    config.tiers[0].store = None;
    Open { volume: braid_volume::Volume::open(config).unwrap() }.close();
    assert_eq!(versions(&bed), [2, 2, 1]);
    is_upgraded(&bed);
}

#[test]
fn a_label_with_another_key_is_renewed_and_a_lost_table_gets_its_key_back() {
    let bed = Bed::new();
    let open = bed.open();
    spread(&open, "f");
    open.close();
    let good = key(&bed, TABLE);
    let mut label = fs::read(bed.path(LABELS[1])).unwrap();
    label[90] ^= 1;
    fs::write(bed.path(LABELS[1]), sealed(label, 12)).unwrap();
    bed.open().close();
    assert_eq!(key(&bed, LABELS[1]), good);
    fs::write(bed.path(TABLE), [0; 4096]).unwrap();
    let report = check(bed.config(), true, &mut |_| {}).unwrap();
    assert!(report.problems.iter().all(|problem| problem.repaired), "{report:?}");
    assert_eq!(key(&bed, TABLE), good);
    bed.open().close();
}

/// Names of the root, with the answers of `readdir` and `readdirplus`.
#[derive(Default)]
struct Names(Vec<(OsString, bool, bool)>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push((entry.name.to_owned(), entry.entry.is_some(), entry.damaged));
        true
    }
}

fn listed(open: &Open, name: &str) -> (bool, bool) {
    let handle = open.volume.open_dir(&caller(), InodeId::ROOT).unwrap();
    let mut names = Names::default();
    open.volume.read_dir(&caller(), handle, 0, true, &mut names).unwrap();
    open.volume.release_dir(handle).unwrap();
    let found = names.0.into_iter().find(|(found, ..)| found == name).unwrap();
    (found.1, found.2)
}

/// Two spread files, `mine` and `other`, and a plain one, `plain`.
fn three_files(version: u8) -> Bed {
    let bed = if version == 1 { version_1() } else { Bed::new() };
    let open = bed.open();
    for name in ["mine", "other"] {
        spread(&open, name);
    }
    let (_, handle) = open.create("plain");
    open.write(handle, 0, b"plain");
    open.volume.release(handle).unwrap();
    open.close();
    bed
}

/// All of `mine` is refused, and `other` is unchanged.
fn is_refused(bed: &Bed, what: &str) {
    let open = bed.open();
    let name = OsStr::new("mine");
    assert_eq!(open.lookup("mine").unwrap_err().errno(), Errno::EUCLEAN, "{what}");
    assert_eq!(listed(&open, "mine"), (true, true), "{what}");
    let unlinked = open.volume.unlink(&caller(), InodeId::ROOT, name);
    assert_eq!(unlinked.unwrap_err().errno(), Errno::EUCLEAN, "{what}");
    let (root, plain) = (InodeId::ROOT, OsStr::new("plain"));
    let replaced = open.volume.rename(&caller(), root, plain, root, name, RenameMode::Replace);
    assert_eq!(replaced.unwrap_err().errno(), Errno::EUCLEAN, "{what}");
    open.close();
    let open = bed.open();
    let handle = open.open(open.lookup("other").unwrap());
    assert!(open.read(handle, 0, contents().len()) == contents(), "{what}");
    open.volume.release(handle).unwrap();
    assert!(open.lookup("plain").is_ok(), "{what}");
    open.close();
}

#[test]
fn an_id_that_is_not_the_files_own_gets_at_nothing() {
    for version in [1, 2] {
        let bed = three_files(version);
        let (mine, other) = (attr(&bed, "mine"), attr(&bed, "other"));
        for kind in [1, 2] {
            let mut forged = mine.clone();
            forged[1] = kind;
            forged[8..24].copy_from_slice(&other[8..24]);
            for value in [sealed(forged.clone(), 4), old_attr(&forged)] {
                set_attr(&bed, "mine", &value);
                is_refused(&bed, &format!("volume of version {version}, kind {kind}, {} bytes", value.len()));
            }
        }
        // Copied whole, it names the other's inode.
        set_attr(&bed, "mine", &other);
        let open = bed.open();
        assert!(open.lookup("mine").is_ok());
        open.close();
        // A repair gives the file the id that its index names.
        let report = check(bed.config(), true, &mut |_| {}).unwrap();
        assert!(report.problems.iter().all(|problem| problem.repaired), "{report:?}");
        assert_eq!(attr(&bed, "mine")[8..24], mine[8..24]);
    }
}

#[test]
fn a_file_without_a_usable_index_is_there_and_stays() {
    let index = |bed: &Bed| -> PathBuf {
        let id: String = attr(bed, "mine")[8..24].iter().map(|byte| format!("{byte:02x}")).collect();
        bed.path("home/.braid/index").join(&id[..2]).join(id)
    };
    let bed = three_files(2);
    let whole = fs::read(index(&bed)).unwrap();
    fs::remove_file(index(&bed)).unwrap();
    is_refused(&bed, "missing");
    for (at, what) in
        [(0, "magic"), (16, "volume"), (32, "object"), (56, "inode"), (64, "birth"), (90, "handle")]
    {
        let mut header = whole.clone();
        header[at] ^= 0x10;
        let sealed = sealed(header[..256].to_vec(), 12);
        header[..256].copy_from_slice(&sealed);
        fs::write(index(&bed), &header).unwrap();
        is_refused(&bed, what);
    }
    let mut newer = attr(&bed, "mine");
    newer[0] = 3;
    fs::write(index(&bed), &whole).unwrap();
    let good = attr(&bed, "mine");
    for (value, what) in [(sealed(newer, 4), "newer"), (vec![3; 120], "longer"), (good[..20].to_vec(), "cut")]
    {
        set_attr(&bed, "mine", &value);
        is_refused(&bed, what);
    }
    set_attr(&bed, "mine", &good);
    assert!(bed.open().lookup("mine").is_ok());
}
