//! `braid import`: a user joins disks full of files.

use crate::common::{Bench, RANGE, pattern, read_anew};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

const STACK: &str = "\
stack:
  volume:
    home: one
    policy: { adaptive: { } }
    range: 64KiB
    tiers:
      one: { dir: a }
      two: { dir: b }
";

type Files = Vec<(&'static str, Vec<u8>)>;

/// Two disks with files, and the contents of the second one's, by name.
fn disks() -> Option<(Bench, Files)> {
    let bench = Bench::bare(&["a", "b", "m"])?;
    bench.write_stack(STACK);
    fs::create_dir_all(bench.path("a/films/old")).unwrap();
    fs::write(bench.path("a/films/one"), "first disk").unwrap();
    fs::write(bench.path("a/same"), "of the first").unwrap();
    fs::create_dir_all(bench.path("b/films/new")).unwrap();
    fs::create_dir_all(bench.path("b/only/here")).unwrap();
    let files = vec![
        ("films/two", pattern(2, 5 * RANGE + 3)),
        ("films/new/three", pattern(3, 100)),
        ("only/here/empty", Vec::new()),
        ("large", pattern(4, 40 * RANGE)),
    ];
    for (name, data) in &files {
        fs::write(bench.path("b").join(name), data).unwrap();
    }
    fs::write(bench.path("b/same"), "of the second").unwrap();
    Some((bench, files))
}

fn names_below(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".braid" {
            continue;
        }
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_below(&path));
        }
        names.push(path.to_str().unwrap().to_owned());
    }
    names
}

/// A mount that reports invisible files.
fn mount(bench: &Bench) -> String {
    let output = bench.braid(&["mount", "s.yaml", "m"]);
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_of_another_disk_come_in_where_they_are() {
    let Some((bench, files)) = disks() else { return };
    let two = bench.path("b/films/two");
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 5_000);
    fs::File::options().write(true).open(&two).unwrap().set_modified(then).unwrap();
    fs::set_permissions(&two, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&two, Some(1234), Some(4321)).unwrap();
    rustix::fs::setxattr(&two, "user.note", b"seen", rustix::fs::XattrFlags::empty()).unwrap();
    fs::hard_link(&two, bench.path("b/films/new/link")).unwrap();
    symlink("two", bench.path("b/films/soft")).unwrap();
    let ino = fs::metadata(&two).unwrap().ino();

    let said = mount(&bench);
    assert!(said.contains("tier two: its directory has files of its own"), "{said}");
    assert!(said.contains("braid import two"), "{said}");
    // The kernel caches missing names, and the listing.
    assert!(!bench.path("m/large").exists());
    let names = names_below(&bench.path("m")).len();

    let said = bench.ok(&["import", "two", "m", "--dry-run"]);
    assert!(said.starts_with("tier two: 5 files of "), "{said}");
    assert!(said.contains("1 stay on the tier") && said.contains("\n  same\n"), "{said}");
    let survey = bench.json(&["import", "two", "m", "--dry-run", "--json"]);
    assert_eq!((survey["conflicts"].as_u64(), survey["dirs"].as_u64()), (Some(1), Some(4)));

    let job = bench.json(&["import", "two", "m", "--json"]);
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["done"]["files"], 5, "{job}");
    assert_eq!(job["skipped"]["home has something of that name"], 1, "{job}");
    assert_eq!(names_below(&bench.path("m")).len(), names + 9);
    for (name, data) in &files {
        assert!(fs::read(bench.path("m").join(name)).unwrap() == *data, "{name}");
        let runs = bench.runs(&format!("m/{name}"));
        assert!(runs.iter().all(|run| run["tier"]["name"] == "two"), "{name}: {runs:?}");
    }
    let two = fs::metadata(bench.path("m/films/two")).unwrap();
    assert_eq!((two.uid(), two.gid(), two.mode() & 0o7777, two.nlink()), (1234, 4321, 0o640, 2));
    assert_eq!(two.modified().unwrap(), then);
    assert_eq!(two.ino(), fs::metadata(bench.path("m/films/new/link")).unwrap().ino());
    let mut note = [0; 16];
    let len = rustix::fs::getxattr(bench.path("m/films/two"), "user.note", &mut note).unwrap();
    assert_eq!(&note[..len], b"seen");
    assert_eq!(fs::read_link(bench.path("m/films/soft")).unwrap(), Path::new("two"));
    assert_eq!(fs::read(bench.path("m/same")).unwrap(), b"of the first");
    assert_eq!(fs::read(bench.path("m/films/one")).unwrap(), b"first disk");
    assert_eq!(names_below(&bench.path("b")), [bench.path("b/same").to_str().unwrap()]);
    // Nothing was copied: the object is the inode that the file was.
    let objects = names_of_objects(&bench.path("b/.braid/data"));
    assert!(objects.iter().any(|path| fs::metadata(path).unwrap().ino() == ino));

    // It is a file like any other.
    bench.ok(&["move", "m/films/new/three", "--to", "one"]);
    fs::write(bench.path("m/large"), pattern(9, 3 * RANGE)).unwrap();
    fs::remove_file(bench.path("m/films/two")).unwrap();
    assert!(fs::read(bench.path("m/films/new/link")).unwrap() == files[0].1);
    bench.unmount_clean();
    let said = mount(&bench);
    assert!(said.contains("files of its own"), "the one that stays: {said}");
    assert!(fs::read(bench.path("m/large")).unwrap() == pattern(9, 3 * RANGE));
    bench.unmount_clean();
}

fn names_of_objects(dir: &Path) -> Vec<std::path::PathBuf> {
    names_below(dir).into_iter().map(Into::into).filter(|path: &std::path::PathBuf| path.is_file()).collect()
}

#[test]
fn an_import_that_was_killed_is_gone_on_with() {
    let Some((bench, files)) = disks() else { return };
    for at in 0..600 {
        fs::write(bench.path(&format!("b/many-{at}")), format!("{at}")).unwrap();
        fs::hard_link(bench.path(&format!("b/many-{at}")), bench.path(&format!("b/twin-{at}"))).unwrap();
    }
    mount(&bench);
    bench.ok(&["import", "two", "m", "--background"]);
    bench.kill();
    mount(&bench);
    // The job continues by itself.
    bench.ok(&["job", "wait", "1"]);
    for at in 0..600 {
        let [one, twin] = ["many", "twin"].map(|name| bench.path(&format!("m/{name}-{at}")));
        assert_eq!(fs::read(&one).unwrap(), format!("{at}").as_bytes());
        let [one, twin] = [one, twin].map(|path| fs::metadata(path).unwrap());
        assert_eq!((one.ino(), one.nlink()), (twin.ino(), 2));
    }
    for (name, data) in &files {
        assert!(fs::read(bench.path("m").join(name)).unwrap() == *data, "{name}");
    }
    assert_eq!(names_below(&bench.path("b")), [bench.path("b/same").to_str().unwrap()]);
    bench.unmount_clean();
    assert!(!bench.path("a/.braid/import").exists());
}

#[test]
fn what_has_no_files_of_its_own_is_told() {
    let Some((bench, _)) = disks() else { return };
    mount(&bench);
    let said = bench.refused(&["import", "one", "m"]);
    assert!(said.contains("tier one is home"), "{said}");
    let said = bench.refused(&["import", "none", "m"]);
    assert!(said.contains("none"), "{said}");
    bench.make_dir("c");
    fs::write(bench.path("c/more"), "x").unwrap();
    let output = bench.braid(&["tier", "add", "three=c", "m"]);
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("tier three: its directory has files of its own")
    );
    bench.ok(&["import", "three", "m"]);
    assert_eq!(fs::read(bench.path("m/more")).unwrap(), b"x");
    // A spread file of another volume has holes where its data is on other
    // tiers.
    fs::write(bench.path("c/spread"), "x").unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(bench.path("c/spread"), "trusted.braid.id", &[7; 64], none).unwrap();
    let said = bench.refused(&["import", "three", "m"]);
    assert!(said.contains("spread: it was a file of a Braid volume"), "{said}");
    assert!(bench.path("c/spread").exists() && !bench.path("m/spread").exists());
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_is_mounted_below_is_passed_over() {
    let Some((mut bench, files)) = disks() else { return };
    bench.make_tmpfs("b/other", c"size=1m");
    fs::write(bench.path("b/other/foreign"), "on another file system").unwrap();
    // The same file system, mounted at another place.
    bench.make_dir("elsewhere");
    fs::write(bench.path("elsewhere/kept"), "outside").unwrap();
    bench.bind("elsewhere", "b/bound");
    bench.make_dir("b/bound.d");
    fs::write(bench.path("b/bound.d/file"), "comes in").unwrap();
    mount(&bench);
    let survey = bench.json(&["import", "two", "m", "--dry-run", "--json"]);
    let mut failed: Vec<_> = survey["failures"].as_array().unwrap().iter().collect();
    failed.sort_by_key(|failure| failure["path"].as_str());
    let failed: Vec<_> = failed.iter().map(|failure| failure["path"].as_str().unwrap()).collect();
    assert_eq!((survey["files"].as_u64(), failed), (Some(5), vec!["bound", "other"]), "{survey}");
    let said = bench.fails(&["import", "two", "m"]).1;
    assert!(said.contains("another file system is mounted there"), "{said}");
    for (name, data) in &files {
        assert!(fs::read(bench.path("m").join(name)).unwrap() == *data, "{name}");
    }
    assert_eq!(fs::read(bench.path("m/bound.d/file")).unwrap(), b"comes in");
    assert!(!bench.path("m/other").exists() && !bench.path("m/bound").exists());
    assert_eq!(fs::read(bench.path("b/other/foreign")).unwrap(), b"on another file system");
    assert_eq!(fs::read(bench.path("elsewhere/kept")).unwrap(), b"outside");
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_is_open_goes_on_leading_to_the_object() {
    let Some((bench, files)) = disks() else { return };
    let (name, data) = &files[0];
    let open = fs::File::options().read(true).write(true).open(bench.path("b").join(name)).unwrap();
    // So does a name outside the tier's directory.
    fs::hard_link(bench.path("b/large"), bench.path("outside")).unwrap();
    mount(&bench);
    bench.ok(&["import", "two", "m"]);
    assert!(fs::read(bench.path("m").join(name)).unwrap() == *data);
    open.write_all_at(b"late", 7).unwrap();
    let mut expected = data.clone();
    expected[7..11].copy_from_slice(b"late");
    assert!(read_anew(&bench.path("m").join(name)) == expected);
    let through = fs::File::options().write(true).open(bench.path("m").join(name)).unwrap();
    through.write_all_at(b"back", 100).unwrap();
    through.sync_all().unwrap();
    let mut back = [0; 4];
    open.read_exact_at(&mut back, 100).unwrap();
    assert_eq!(&back, b"back");
    assert!(fs::read(bench.path("outside")).unwrap() == files[3].1);
    drop((open, through));
    bench.unmount_clean();
}
