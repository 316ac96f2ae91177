//! The power is cut before every effect of an import, and of an ejection: no
//! file is lost, and the interrupted operation can be completed.

use crate::common::machine::TIER;
use crate::common::{Open, RANGE, caller, machine, pattern};
use braid_contract::{Access, FileSystem, InodeId, JobKind, NativeFd, OpenFlags, OpenRequest, XattrMode};
use braid_testkit::sim::{Frozen, Model};
use braid_volume::{CheckOptions, EjectOptions, OpenError, Severity, Volume, VolumeConfig, check_with};
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

const HOME: usize = 0;

type Machine = machine::Machine<2>;

fn new(model: Model) -> Machine {
    Machine::new(["home", "tier"], model)
}

fn mount(machine: &Machine) -> Result<Open, OpenError> {
    Volume::open(machine.config(HOME)).map(|volume| Open { volume })
}

/// The findings that the check calls damage.
fn damage(machine: &Machine) -> Vec<String> {
    let roots = vec![("slow".to_owned(), machine.disks[TIER].root())];
    let options = CheckOptions { roots, ..CheckOptions::default() };
    let report = check_with(machine.config(HOME), &options, &mut |_| true).unwrap();
    let damage = report.problems.into_iter().filter(|problem| problem.severity == Severity::Damage);
    damage.map(|problem| problem.what).collect()
}

/// The state of the disks before one effect.
struct Moment {
    disks: [Frozen; 2],
    what: String,
}

/// The moments before each effect of `work`, and after it.
fn record(machine: &Machine, work: impl FnOnce()) -> Vec<Moment> {
    let moments = Arc::new(Mutex::new(Vec::new()));
    let disks = machine.disks.clone();
    let note = {
        let moments = Arc::clone(&moments);
        move |what: String| {
            let disks = Machine::freeze(&disks);
            moments.lock().unwrap().push(Moment { disks, what });
        }
    };
    for disk in &machine.disks {
        let note = note.clone();
        disk.set_observer(Some(Arc::new(move |effect| note(effect.to_string()))));
    }
    work();
    note("the end".into());
    machine.disks.iter().for_each(|disk| disk.set_observer(None));
    std::mem::take(&mut *moments.lock().unwrap())
}

/// Every moment, with every kind of loss.
fn each_state(moments: &[Moment], mut examine: impl FnMut(Machine, &str)) {
    for (at, moment) in moments.iter().enumerate() {
        for seed in 0..6 {
            let context = format!("moment {at}, before {}, seed {seed}", moment.what);
            examine(Machine::after(&moment.disks, seed), &context);
        }
    }
}

/// Creates a native file with these contents.
fn put(root: &dyn NativeFd, path: &str, data: &[u8]) {
    let file = root.create_at(OsStr::new(path), 0o640).unwrap();
    assert_eq!(file.write_at(0, &[IoSlice::new(data)], false).unwrap(), data.len());
}

/// The contents of a native file.
fn get(root: &dyn NativeFd, path: &str) -> Option<Vec<u8>> {
    let file = root.open_at(OsStr::new(path), Access::Read).ok()?;
    let mut data = vec![0; file.stat().unwrap().attr.size as usize];
    file.read_at(0, &mut [IoSliceMut::new(&mut data)], false).unwrap();
    Some(data)
}

fn look_up(open: &Open, path: &str) -> Option<InodeId> {
    path.split('/').try_fold(InodeId::ROOT, |dir, name| {
        open.volume.lookup(&caller(), dir, OsStr::new(name)).ok().map(|entry| entry.attr.ino)
    })
}

fn read(open: &Open, path: &str) -> Option<Vec<u8>> {
    let ino = look_up(open, path)?;
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    let handle = open.volume.open(&caller(), ino, request).ok()?.handle;
    let found = open.read(handle, 0, 1 << 20);
    open.volume.release(handle).unwrap();
    Some(found)
}

/// The files of the tier that come in, and their contents.
fn files() -> [(&'static str, Vec<u8>); 4] {
    [
        ("dir/large", pattern(2, 5 * RANGE as usize + 9)),
        ("dir/link", pattern(2, 5 * RANGE as usize + 9)),
        ("dir/small", pattern(3, 100)),
        ("new/empty", Vec::new()),
    ]
}

/// A tier with files of its own, one of which exists on home too.
fn fill_tier(machine: &Machine) {
    let (home, tier) = (machine.disks[HOME].root(), machine.disks[TIER].root());
    home.make_dir_at(OsStr::new("dir"), 0o755).unwrap();
    put(&*home, "dir/same", b"home's");
    for dir in ["dir", "new"] {
        tier.make_dir_at(OsStr::new(dir), 0o755).unwrap();
    }
    for (path, data) in files().iter().filter(|(path, _)| *path != "dir/link") {
        put(&*tier, path, data);
    }
    put(&*tier, "dir/same", b"the tier's");
    let dir = tier.open_at(OsStr::new("dir"), Access::Directory).unwrap();
    let large = tier.open_at(OsStr::new("dir/large"), Access::Path).unwrap();
    large.link_to(&*dir, OsStr::new("link")).unwrap();
    large.set_owner(Some(7), Some(8)).unwrap();
    machine.disks.iter().for_each(|disk| disk.root().sync_fs().unwrap());
}

/// Completes an import of the tier, a resumed one or a new one.
fn import(open: &Open) {
    if open.volume.jobs().iter().all(|job| job.record.state.is_final()) {
        open.volume.start_job(JobKind::Import { tier: "slow".into() }, None).unwrap();
    }
    while open.volume.jobs().iter().any(|job| !job.record.state.is_final()) {
        open.volume.tick();
    }
}

fn comes_in(model: Model) {
    let machine = new(model);
    fill_tier(&machine);
    let open = mount(&machine).unwrap();
    open.volume.sync().unwrap();
    let moments = record(&machine, || import(&open));
    assert!(moments.len() > 30, "{}", moments.len());
    each_state(&moments, |machine, context| {
        let open = mount(&machine).map_err(|error| format!("{context}: {error}")).unwrap();
        let tier = machine.disks[TIER].root();
        for (path, data) in files() {
            let found = read(&open, path).or_else(|| get(&*tier, path));
            assert!(found.as_ref() == Some(&data), "{context}: {path} is lost");
        }
        import(&open);
        for (path, data) in files() {
            assert!(read(&open, path).as_ref() == Some(&data), "{context}: {path} did not come in");
            assert!(get(&*tier, path).is_none(), "{context}: {path} is on the tier still");
        }
        let [large, link] = ["dir/large", "dir/link"].map(|path| {
            let attr = open.volume.getattr(&caller(), look_up(&open, path).unwrap(), None).unwrap();
            assert_eq!((attr.uid, attr.gid, attr.mode, attr.nlink), (7, 8, 0o640, 2), "{context}: {path}");
            attr.ino
        });
        assert_eq!(large, link, "{context}");
        assert_eq!(read(&open, "dir/same").unwrap(), b"home's", "{context}");
        assert_eq!(get(&*tier, "dir/same").unwrap(), b"the tier's", "{context}");
        open.volume.tick();
        open.close();
        assert_eq!(damage(&machine), [""; 0], "{context}");
    });
}

fn goes(model: Model) {
    let machine = new(model);
    let open = mount(&machine).unwrap();
    let large = pattern(4, 5 * RANGE as usize + 9);
    let (_, handle) = open.create("large");
    open.write_ranges(handle, &large);
    open.volume.release(handle).unwrap();
    let (_, handle) = open.create("plain");
    open.write(handle, 0, b"plain");
    open.volume.release(handle).unwrap();
    fill_whole(&open, &machine);
    open.volume.sync().unwrap();
    open.close();
    machine.disks.iter().for_each(|disk| disk.root().sync_fs().unwrap());
    let eject =
        |machine: &Machine| Volume::eject(machine.config(HOME), EjectOptions::default(), &mut |_| true);
    let moments = record(&machine, || assert!(eject(&machine).unwrap().done));
    assert!(moments.len() > 30, "{}", moments.len());
    each_state(&moments, |machine, context| {
        match eject(&machine) {
            Ok(ejection) => assert!(ejection.done, "{context}: {ejection:?}"),
            // The import was complete.
            Err(error) => assert!(matches!(error, OpenError::NoVolume { .. }), "{context}: {error}"),
        }
        let home = machine.disks[HOME].root();
        for (path, data) in [("large", &large), ("plain", &b"plain".to_vec()), ("whole", &pattern(5, 100))] {
            assert!(get(&*home, path).as_ref() == Some(data), "{context}: {path} is not what it was");
        }
        for disk in &machine.disks {
            assert!(disk.root().open_at(OsStr::new(".braid"), Access::Path).is_err(), "{context}");
        }
    });
}

/// The final disk and path of a file after an ejection in place.
const IN_PLACE: [(usize, &str); 5] =
    [(TIER, "dir/large"), (TIER, "dir/link"), (TIER, "dir/small"), (HOME, "new/empty"), (HOME, "dir/same")];

fn content_of(path: &str) -> Vec<u8> {
    let found = files().into_iter().find(|(name, _)| *name == path);
    found.map_or_else(|| b"home's".to_vec(), |(_, data)| data)
}

fn eject_in_place(machine: &Machine) -> Result<braid_volume::Ejection, OpenError> {
    let options = EjectOptions { in_place: true, ..EjectOptions::default() };
    Volume::eject(machine.config(HOME), options, &mut |_| true)
}

/// A volume with files imported from the tier, and a spread one.
fn come_in(machine: &Machine) -> Vec<u8> {
    fill_tier(machine);
    let tier = machine.disks[TIER].root();
    let small = tier.open_at(OsStr::new("dir/small"), Access::Path).unwrap();
    small.set_xattr(OsStr::new("user.note"), b"kept", XattrMode::Set).unwrap();
    tier.open_at(OsStr::new("new"), Access::Path).unwrap().set_owner(Some(9), Some(9)).unwrap();
    let dir = tier.open_at(OsStr::new("dir"), Access::Path).unwrap();
    dir.set_owner(Some(5), Some(6)).unwrap();
    machine.disks[HOME].root().open_at(OsStr::new("dir"), Access::Path).unwrap().set_mode(0o751).unwrap();
    let open = mount(machine).unwrap();
    import(&open);
    let spread = pattern(4, 5 * RANGE as usize + 9);
    let (_, handle) = open.create("spread");
    open.write_ranges(handle, &spread);
    open.volume.release(handle).unwrap();
    open.volume.sync().unwrap();
    open.close();
    // An existing entry of that name keeps a file away.
    let tier = machine.disks[TIER].root();
    if tier.open_at(OsStr::new("dir/same"), Access::Path).is_ok() {
        assert_eq!(get(&*tier, "dir/same").unwrap(), b"the tier's");
    }
    machine.disks.iter().for_each(|disk| disk.root().sync_fs().unwrap());
    spread
}

/// All files are there, as a volume or on their tiers.
fn is_taken_apart(machine: &Machine, spread: &[u8], context: &str) {
    let roots = [HOME, TIER].map(|disk| machine.disks[disk].root());
    for (disk, path) in IN_PLACE {
        assert!(get(&*roots[disk], path) == Some(content_of(path)), "{context}: {path} is not what it was");
        if path != "dir/same" {
            assert!(get(&*roots[1 - disk], path).is_none(), "{context}: {path} is there twice");
        }
    }
    assert!(get(&*roots[HOME], "spread").is_some_and(|data| data == spread), "{context}");
    assert_eq!(get(&*roots[TIER], "dir/same").unwrap(), b"the tier's", "{context}");
    let stat = |path: &str| roots[TIER].open_at(OsStr::new(path), Access::Path).unwrap().stat().unwrap().attr;
    let (large, link, small) = (stat("dir/large"), stat("dir/link"), stat("dir/small"));
    assert_eq!((large.uid, large.gid, large.mode, large.nlink), (7, 8, 0o640, 2), "{context}");
    assert_eq!((large.ino, small.nlink), (link.ino, 1), "{context}");
    let small = roots[TIER].open_at(OsStr::new("dir/small"), Access::Path).unwrap();
    let mut note = [0; 8];
    assert_eq!(small.get_xattr(OsStr::new("user.note"), &mut note).unwrap(), 4, "{context}");
    for root in roots {
        assert!(root.open_at(OsStr::new(".braid"), Access::Path).is_err(), "{context}");
    }
}

fn goes_in_place(model: Model) {
    let machine = new(model);
    let spread = come_in(&machine);
    let moments = record(&machine, || {
        let ejection = eject_in_place(&machine).unwrap();
        assert!(ejection.done, "{ejection:?}");
        assert_eq!((ejection.amounts.files, ejection.amounts.stays[0].files), (1, 2), "{ejection:?}");
    });
    is_taken_apart(&machine, &spread, "undisturbed");
    assert!(moments.len() > 60, "{}", moments.len());
    let (mut mounted, mut met) = (0, 0);
    each_state(&moments, |machine, context| {
        let config = VolumeConfig { create: false, ..machine.config(HOME) };
        match Volume::open(config).map(|volume| Open { volume }) {
            Ok(open) => {
                mounted += 1;
                for (_, path) in IN_PLACE {
                    assert!(read(&open, path) == Some(content_of(path)), "{context}: {path} is lost");
                }
                assert!(read(&open, "spread").as_ref() == Some(&spread), "{context}");
                let small = machine.disks[TIER].root().open_at(OsStr::new("dir/small"), Access::Path);
                if let Ok(small) = small {
                    let attr = small.stat().unwrap().attr;
                    assert_eq!((attr.mode, attr.nlink), (0o600, 2), "{context}: only Braid's");
                    met += 1;
                }
                if context.contains("seed 1") {
                    // The object on the tier is recognised as the same file.
                    import(&open);
                    assert!(get(&*machine.disks[TIER].root(), "dir/small").is_none(), "{context}");
                    assert!(read(&open, "dir/small") == Some(content_of("dir/small")), "{context}");
                }
                open.volume.tick();
                open.close();
                assert_eq!(damage(&machine), [""; 0], "{context}");
            }
            Err(OpenError::Ejected { .. } | OpenError::NoVolume { .. }) => {}
            Err(error) => panic!("{context}: {error}"),
        }
        match eject_in_place(&machine) {
            Ok(ejection) => assert!(ejection.done, "{context}: {ejection:?}"),
            Err(error) => assert!(matches!(error, OpenError::NoVolume { .. }), "{context}: {error}"),
        }
        is_taken_apart(&machine, &spread, context);
    });
    assert!(mounted > 60 && met > 20, "{mounted} {met}");
}

/// A file that lives wholly on the other tier.
fn fill_whole(open: &Open, machine: &Machine) {
    put(&*machine.disks[TIER].root(), "whole", &pattern(5, 100));
    machine.disks[TIER].root().sync_fs().unwrap();
    import(open);
    assert_eq!(read(open, "whole").unwrap(), pattern(5, 100));
}

#[test]
fn links_and_names_met_again_share_the_syncs_of_an_import() {
    let machine = new(Model::EXT4);
    let tier = machine.disks[TIER].root();
    for at in 0..50 {
        put(&*tier, &format!("file-{at}"), b"data");
        let file = tier.open_at(OsStr::new(&format!("file-{at}")), Access::Path).unwrap();
        file.link_to(&*tier, OsStr::new(&format!("link-{at}"))).unwrap();
        tier.make_symlink_at(OsStr::new(&format!("soft-{at}")), OsStr::new("file-0")).unwrap();
    }
    let open = mount(&machine).unwrap();
    let syncs = |moments: &[Moment]| moments.iter().filter(|moment| moment.what.contains("syncfs")).count();
    let moments = record(&machine, || import(&open));
    assert!((1..10).contains(&syncs(&moments)), "{}", syncs(&moments));
    // As after a crash that kept the names that had gone.
    for at in 0..50 {
        let home = machine.disks[HOME].root();
        let object = open.volume.lookup(&caller(), InodeId::ROOT, OsStr::new(&format!("link-{at}"))).unwrap();
        assert_eq!(object.attr.nlink, 2);
        assert!(home.open_at(OsStr::new(&format!("soft-{at}")), Access::Path).is_ok());
        tier.make_symlink_at(OsStr::new(&format!("soft-{at}")), OsStr::new("file-0")).unwrap();
    }
    let moments = record(&machine, || import(&open));
    assert!((1..10).contains(&syncs(&moments)), "{}", syncs(&moments));
    assert!(tier.open_at(OsStr::new("soft-7"), Access::Path).is_err());
    open.close();
}

#[test]
fn an_import_loses_nothing_with_a_journal() {
    comes_in(Model::EXT4);
}

#[test]
fn an_import_loses_nothing_without_an_order() {
    comes_in(Model::WORST);
}

#[test]
fn an_ejection_loses_nothing_with_a_journal() {
    goes(Model::EXT4);
}

#[test]
fn an_ejection_loses_nothing_without_an_order() {
    goes(Model::WORST);
}

#[test]
fn an_ejection_in_place_loses_nothing_with_a_journal() {
    goes_in_place(Model::EXT4);
}

#[test]
fn an_ejection_in_place_loses_nothing_without_an_order() {
    goes_in_place(Model::WORST);
}
