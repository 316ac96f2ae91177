//! The attacks that `docs/security.md` names, by users who pretend to be
//! others: on home's tree. Attacks on `.braid` are in `braid.rs`,
//! those at the mount, the control socket and the metrics port in
//! `doors.rs`. Needs root, /dev/fuse, `setpriv` and `python3`; skipped
//! without root.

use crate::common::Bench;
use crate::users::{ALICE, BIG, BOB, as_user, said, with_crc};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

impl Bench {
    /// Bob gives his file, natively, an attribute of his choice.
    fn forge(&self, value: &[u8]) {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.python_ok(BOB, &format!("os.setxattr('a/bob', 'user.braid.id', bytes.fromhex('{hex}'))"));
    }

    /// Whatever Bob does to his file, Alice's data stays unchanged and hers.
    #[track_caller]
    fn bob_gets_nothing(&self) {
        self.mount();
        for line in [
            "os.stat('m/bob')",
            "open('m/bob', 'rb').read()",
            "os.pwrite(os.open('m/bob', os.O_WRONLY), b'x', 0)",
            "os.truncate('m/bob', 0)",
            "os.open('m/bob', os.O_WRONLY | os.O_TRUNC)",
            "os.unlink('m/bob')",
            "open('m/mine', 'w'); os.rename('m/mine', 'm/bob')",
        ] {
            self.python_euclean(BOB, line);
        }
        self.python_ok(BOB, "sys.exit('bob' not in os.listdir('m'))");
        self.alice_has_her_data();
        self.ok(&["umount", "m"]);
        self.mount();
        self.alice_has_her_data();
        self.ok(&["umount", "m"]);
    }
}

fn sealed(value: Vec<u8>) -> Vec<u8> {
    with_crc(value, 4)
}

/// The attributes with which Bob, who knows all but the key, tries to get
/// Alice's data: her object's id, in either version and kind.
fn forgeries(bob: &[u8], alice: &[u8]) -> Vec<Vec<u8>> {
    let mut forged = Vec::new();
    for kind in [1, 2] {
        let mut two = bob.to_vec();
        two[1] = kind;
        two[8..24].copy_from_slice(&alice[8..24]);
        let mut one = two[..40].to_vec();
        one[0] = 1;
        forged.extend([sealed(two), sealed(one), alice.to_vec()]);
    }
    // An unchanged copy of Alice's names her inode, and is ignored.
    forged.retain(|value| value != alice);
    forged
}

#[test]
fn a_forged_id_is_not_believed() {
    let Some(bench) = Bench::shared() else { return };
    bench.made_by_a_user();
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    bench.big_file(BOB, "bob", 11);
    bench.ok(&["umount", "m"]);
    for value in forgeries(&bench.attribute("bob"), &bench.attribute("alice")) {
        bench.forge(&value);
        bench.bob_gets_nothing();
    }
}

#[test]
fn an_attribute_that_was_copied_is_ignored() {
    let Some(bench) = Bench::shared() else { return };
    bench.made_by_a_user();
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    bench.ok(&["umount", "m"]);
    bench.python_ok(BOB, "open('a/bob', 'w').write('his own')");
    bench.forge(&bench.attribute("alice"));
    bench.mount();
    bench.python_ok(BOB, "sys.exit(open('m/bob').read() != 'his own')");
    for line in ["open('m/bob', 'a').write(', still')", "os.truncate('m/bob', 3)", "os.unlink('m/bob')"] {
        bench.python_ok(BOB, line);
        bench.alice_has_her_data();
    }
    bench.ok(&["umount", "m"]);
}

#[test]
fn an_old_attribute_shows_nothing_of_others() {
    let Some(bench) = Bench::shared() else { return };
    bench.made_by_a_user();
    bench.mount();
    bench.open_to_all();
    bench.big_file(BOB, "bob", 11);
    bench.ok(&["umount", "m"]);
    let spread = bench.attribute("bob");
    bench.mount();
    bench.python_ok(BOB, "os.truncate('m/bob', 0)");
    bench.big_file(ALICE, "alice", 10);
    bench.ok(&["umount", "m"]);
    for gone in [&spread, &bench.attribute("alice")] {
        bench.forge(gone);
        bench.mount();
        // He gets his own data, old or new, or an error.
        bench.python_ok(
            BOB,
            "try: found = open('m/bob', 'rb').read()\nexcept OSError as e: sys.exit(e.errno != 117)\n\
             sys.exit(any(byte not in (0, 11) for byte in found))",
        );
        bench.python(BOB, "os.truncate('m/bob', 1 << 20)");
        bench.python(BOB, "open('m/bob', 'wb').write(b'\\x0b' * 1000000)");
        bench.alice_has_her_data();
        bench.ok(&["umount", "m"]);
    }
    bench.mount();
    bench.alice_has_her_data();
    bench.ok(&["umount", "m"]);
}

/// Makes the volume one of version 1, which has no attributes yet.
fn downgrade(bench: &Bench) {
    for (name, key) in [("a/.braid/label", 88..105), ("b/.braid/label", 88..105), ("a/.braid/volume", 40..57)]
    {
        let path = bench.path(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 1;
        bytes[key].fill(0);
        fs::write(path, with_crc(bytes, 12)).unwrap();
    }
}

#[test]
fn on_a_volume_that_had_version_1_the_index_says_whose_it_is() {
    let Some(bench) = Bench::shared() else { return };
    bench.made_by_a_user();
    downgrade(&bench);
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    bench.big_file(BOB, "bob", 11);
    bench.ok(&["umount", "m"]);
    assert_eq!(fs::read(bench.path("a/.braid/volume")).unwrap()[56], 1, "it was one of version 1");
    let own = bench.attribute("bob");
    for value in forgeries(&own, &bench.attribute("alice")) {
        bench.forge(&value);
        bench.bob_gets_nothing();
    }
    // A correct attribute of version 1 is still valid.
    let mut old = own[..40].to_vec();
    old[0] = 1;
    bench.forge(&sealed(old));
    bench.mount();
    bench.python_ok(BOB, &format!("sys.exit(open('m/bob', 'rb').read() != b'\\x0b' * {BIG})"));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_forged_pin_keeps_no_file_where_it_is() {
    let Some(bench) = Bench::shared() else { return };
    bench.made_by_a_user();
    bench.mount();
    bench.open_to_all();
    bench.big_file(BOB, "bob", 11);
    bench.ok(&["pin", "m/bob"]);
    assert!(bench.json(&["explain", "m/bob", "--json"])["pin"].is_object());
    bench.ok(&["umount", "m"]);
    bench.python_ok(
        BOB,
        "v = bytearray(os.getxattr('a/bob', 'user.braid.pin'))\nv[32] ^= 1\n\
         os.setxattr('a/bob', 'user.braid.pin', bytes(v))",
    );
    bench.mount();
    assert!(bench.json(&["explain", "m/bob", "--json"])["pin"].is_null());
    bench.ok(&["umount", "m"]);
}

#[test]
fn users_are_told_of_their_own_files_only_and_change_nothing() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    let ask = |uid, words: &[&str]| as_user(uid, &bench.command(words));
    assert!(bench.ok(&["explain", "m/alice"]).contains("(object "));
    let own = ask(ALICE, &["explain", "m/alice"]);
    let text = String::from_utf8(own.stdout.clone()).unwrap();
    assert!(
        own.status.success() && text.contains("slow") && !text.contains("object"),
        "{text}{}",
        said(&own)
    );
    let others = ask(BOB, &["explain", "m/alice"]);
    assert!(
        said(&others).contains("only root, the user who mounted and the file's owner"),
        "{}",
        said(&others)
    );
    for words in [
        ["pin", "m/alice"].as_slice(),
        &["move", "m/alice", "--to", "slow"],
        &["tier", "set", "m", "slow", "weight=3"],
        &["tier", "remove", "m", "slow"],
        &["rebalance", "m"],
        &["job", "list"],
        &["fsck", "m"],
    ] {
        let refused = ask(BOB, words);
        assert!(!refused.status.success(), "{words:?} succeeded");
    }
    bench.unmount_clean();
}

#[test]
fn a_damaged_pin_pins_where_only_root_can_write_it() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(BOB, "bob", 11);
    bench.ok(&["pin", "m/bob", "--to", "slow"]);
    bench.ok(&["umount", "m"]);
    let write = "os.setxattr('a/bob', 'trusted.braid.pin', b'x')";
    assert!(said(&bench.python(BOB, write)).contains("[Errno 1]"));
    bench.python_ok(0, write);
    bench.mount();
    assert!(bench.json(&["explain", "m/bob", "--json"])["pin"].is_object());
    bench.refused(&["move", "m/bob", "--to", "fast"]);
    bench.ok(&["unpin", "m/bob"]);
    bench.unmount_clean();
}

#[test]
fn directories_that_others_can_write_to_are_refused() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.ok(&["umount", "m"]);
    for (name, bad, good, told) in [
        ("a/.braid", 0o755, 0o700, "others than its owner can get at it"),
        ("b/.braid", 0o702, 0o700, "others than its owner can get at it"),
        ("b", 0o777, 0o755, "every user can write to it"),
    ] {
        fs::set_permissions(bench.path(name), Permissions::from_mode(bad)).unwrap();
        let refused = bench.refused(&["mount", "s.yaml", "m"]);
        assert!(refused.contains(told) && refused.contains("help: "), "{refused}");
        fs::set_permissions(bench.path(name), Permissions::from_mode(good)).unwrap();
    }
    bench.mount();
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_file_moved_natively_is_still_its_owners() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    bench.big_file(ALICE, "alice", 10);
    bench.python_ok(BOB, "os.mkdir('m/of-bob', 0o755)");
    bench.ok(&["umount", "m"]);
    fs::rename(bench.path("a/alice"), bench.path("a/of-bob/loot")).unwrap();
    bench.mount();
    assert!(said(&bench.python(BOB, "open('m/of-bob/loot', 'rb')")).contains("[Errno 13]"));
    bench.python_ok(ALICE, &format!("sys.exit(open('m/of-bob/loot', 'rb').read() != b'\\x0a' * {BIG})"));
    bench.unmount_clean();
}

/// No operation of programs shows the file as missing, or removes its name.
#[track_caller]
fn is_kept(bench: &Bench, name: &str) {
    let path = bench.path("m/d").join(name);
    let errno = |result: std::io::Result<()>| Errno::from_io_error(&result.unwrap_err()).unwrap();
    let listed = |dir: &str| {
        fs::read_dir(bench.path(dir)).unwrap().any(|entry| entry.unwrap().file_name() == Path::new(name))
    };
    assert!(listed("m/d") && listed("a/d"), "it is listed");
    assert_eq!(errno(fs::symlink_metadata(&path).map(drop)), Errno::UCLEAN);
    let other = bench.path("m/other");
    fs::write(&other, "other").unwrap();
    assert_eq!(errno(fs::rename(&other, &path)), Errno::UCLEAN);
    assert_eq!(errno(fs::rename(&path, bench.path("m/away"))), Errno::UCLEAN);
    assert_eq!(errno(fs::remove_file(&path)), Errno::UCLEAN);
    assert_eq!(errno(fs::File::create(&path).map(drop)), Errno::UCLEAN);
    assert!([Errno::UCLEAN, Errno::EXIST].contains(&errno(fs::File::create_new(&path).map(drop))));
    assert!([Errno::UCLEAN, Errno::EXIST].contains(&errno(fs::hard_link(&other, &path))));
    assert_eq!(errno(fs::hard_link(&path, bench.path("m/link"))), Errno::UCLEAN);
    assert_eq!(errno(fs::remove_dir(bench.path("m/d"))), Errno::NOTEMPTY);
    for command in [
        "cp -a m/d copy",
        "mv -f m/other m/d/$0",
        "rm -rf m/d",
        "mkdir -p empty && rsync -a --delete empty/ m/d/",
    ] {
        let output =
            Command::new("sh").args(["-c", command, name]).current_dir(bench.path(".")).output().unwrap();
        assert!(!output.status.success(), "{command}");
    }
    assert!(listed("a/d"), "it is there still");
    assert_eq!(fs::read_to_string(&other).unwrap(), "other");
}

#[test]
fn a_file_without_its_index_is_listed_and_kept() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    fs::create_dir(bench.path("m/d")).unwrap();
    for name in ["d/missing", "d/damaged", "d/whole"] {
        bench.big_file(0, name, 10);
    }
    bench.ok(&["umount", "m"]);
    fs::remove_file(bench.index_of("d/missing")).unwrap();
    fs::write(bench.index_of("d/damaged"), [0; 4096]).unwrap();
    bench.mount();
    is_kept(&bench, "missing");
    is_kept(&bench, "damaged");
    fs::remove_file(bench.path("m/other")).unwrap();
    assert_eq!(fs::metadata(bench.path("m/d")).unwrap().permissions().mode() & 0o7777, 0o755);
    bench.ok(&["umount", "m"]);
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let missing = log.lines().filter(|line| line.contains("WARN") && line.contains("is missing")).count();
    assert_eq!(missing, 1, "it is told once: {log}");
    let (_, told) = bench.fails(&["fsck", "s.yaml"]);
    let output = bench.braid(&["fsck", "s.yaml"]);
    let told = told + &String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("d/missing") && told.contains("d/damaged"), "{told}");
}

#[test]
fn a_new_volume_says_what_it_finds_of_another() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    fs::create_dir(bench.path("m/d")).unwrap();
    bench.big_file(0, "d/old", 10);
    bench.ok(&["umount", "m"]);
    let volume: String = bench.attribute("d/old")[40..48].iter().map(|byte| format!("{byte:02x}")).collect();
    fs::remove_dir_all(bench.path("a/.braid")).unwrap();
    fs::remove_dir_all(bench.path("b/.braid")).unwrap();
    let output = bench.braid(&["mount", "s.yaml", "m"]);
    let told = said(&output);
    assert!(output.status.success() && told.contains("1 files that are parts of another volume"), "{told}");
    assert!(told.contains(&volume) && told.contains("d/old"), "{told}");
    is_kept(&bench, "old");
    bench.ok(&["umount", "m"]);
    // The message appears when the volume is created, and not at each mount.
    bench.mount();
    bench.ok(&["umount", "m"]);
}

#[test]
fn an_unknown_attribute_keeps_its_file() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    fs::create_dir(bench.path("m/d")).unwrap();
    bench.big_file(0, "d/newer", 10);
    bench.ok(&["umount", "m"]);
    let mut value = bench.attribute("d/newer");
    value[0] = 9;
    let path = bench.path("a/d/newer");
    rustix::fs::setxattr(path, "trusted.braid.id", &sealed(value), rustix::fs::XattrFlags::empty()).unwrap();
    bench.mount();
    is_kept(&bench, "newer");
    bench.ok(&["umount", "m"]);
}
