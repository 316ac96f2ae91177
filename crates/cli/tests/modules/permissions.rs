//! The module `permissions`: users who try to get at data that rules deny them, in every mode of
//! the kernel's cache. Needs root, /dev/fuse, `setpriv` and Python; skipped without root.

use crate::common::{Bench, RANGE, drop_caches};
use crate::users::{ALICE, BOB, as_user, python, said};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

const EVE: u32 = 4803;
const TEAM: u32 = 4999;

/// Alice's island, that of the group, and a user who only reads.
const RULES: &str = "
      - { paths: [ 'island/**' ], uid: [ 4801 ], allow: [ read, write, list ] }
      - { paths: [ 'island/**' ], deny: [ read, write, list ] }
      - { paths: [ 'team/**' ], gid: [ 4999 ], allow: [ read, write, list ] }
      - { paths: [ 'team/**' ], deny: [ read, write, list ] }
      - { uid: [ 4803 ], read_only: yes }";

/// Helpers of the Python below. `no` is for calls that must be denied.
const PRELUDE: &str = "
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def no(what, *args):
    try: what(*args)
    except OSError as error:
        assert error.errno == errno.EACCES, (what, args, error)
        return
    raise AssertionError((what, args, 'was not denied'))
def opened(path, flags, mode=0o666): os.close(os.open(path, flags, mode))
def fd(number): return '/proc/self/fd/%d' % number
def call(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'failed')
    return result
def link_fd(number, to): call(libc.linkat(-100, fd(number).encode(), -100, to.encode(), 0x400))
def xchg(a, b): call(libc.renameat2(-100, a.encode(), -100, b.encode(), 2))
";

impl Bench {
    fn with_rules(&self, rules: &str, cache: &str) -> String {
        format!(
            "stack:\n  permissions:\n    rules:{rules}\n    volume:\n      home: fast\n      range: 64KiB\n      \
             policy: {{ weighted: {{ }} }}\n      tiers:\n        fast: {{ dir: a, weight: 1 }}\n        \
             slow: {{ dir: b, weight: 1 }}\nmount: {{ cache: {cache} }}\n"
        )
    }

    /// Runs lines of Python as a user in these groups.
    fn user(&self, uid: u32, groups: &[u32], lines: &str) -> Output {
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let groups = match groups.is_empty() {
            true => "--clear-groups".to_owned(),
            false => format!("--groups={}", groups.join(",")),
        };
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), groups]);
        command.arg(python()).args(["-c", &format!("{PRELUDE}\nos.umask(0)\n{lines}")]);
        command.current_dir(self.path(".")).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn user_ok(&self, uid: u32, lines: &str) {
        let output = self.user(uid, &[], lines);
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// All is open to all by its mode: only rules deny.
const MAKE: &str = "
for d in ['island', 'island/deep', 'open']: os.mkdir('m/' + d)
for f in ['island/f', 'island/deep/f', 'open/f']: open('m/' + f, 'wb').write(b'treasure' * 40000)
os.setxattr('m/island/f', 'user.secret', b'treasure')
";

/// Each way to the data of the island, or to change something of it.
const ATTACK: &str = "
f, g, here = 'm/island/f', 'm/island/deep/f', 'm/open/mine'
opened(here, os.O_CREAT | os.O_RDWR)
for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_DIRECT, os.O_WRONLY | os.O_TRUNC,
              os.O_CREAT | os.O_RDWR, os.O_WRONLY | os.O_APPEND]:
    no(opened, f, flags); no(opened, g, flags)
path = os.open(f, os.O_PATH)
for flags in [os.O_RDONLY, os.O_RDWR]: no(opened, fd(path), flags)
no(link_fd, path, 'm/open/linked'); no(os.setxattr, fd(path), 'user.x', b'')
island = os.open('m/island', os.O_PATH)
no(lambda: os.open('f', os.O_RDONLY, dir_fd=island)); no(os.listdir, fd(island))
os.chdir('m/island'); no(opened, 'f', os.O_RDONLY); no(os.listdir, '.'); os.chdir('../..')
for d in ['m/island', 'm/island/deep']: no(os.listdir, d)
no(os.getxattr, f, 'user.secret'); no(os.setxattr, f, 'user.x', b''); no(os.removexattr, f, 'user.secret')
no(os.truncate, f, 0)
if os.getuid() == 0: no(os.chmod, f, 0o600); no(os.chown, f, 4802, 4802)
no(os.utime, f); no(os.unlink, f); no(os.rmdir, 'm/island/deep')
# Names: out of the island, into it, and of what is above.
no(os.rename, f, 'm/open/f2'); no(os.rename, 'm/island/deep', 'm/open/deep'); no(os.rename, 'm/island', 'm/open/i')
no(os.rename, f, 'm/island/f3'); no(os.rename, here, f); no(os.rename, here, 'm/island/new')
no(xchg, f, here); no(xchg, here, f); no(xchg, 'm/open', 'm/island'); no(os.rename, 'm/open', 'm/island/open')
no(os.link, f, 'm/open/linked'); no(os.link, here, 'm/island/linked')
no(os.symlink, 'x', 'm/island/s'); no(os.mkdir, 'm/island/d'); no(os.mkfifo, 'm/island/p')
no(opened, 'm/island/new', os.O_CREAT | os.O_WRONLY)
os.symlink('../island/f', 'm/open/way'); no(opened, 'm/open/way', os.O_RDONLY); os.unlink('m/open/way')
# Files without a name.
no(opened, 'm/island', os.O_TMPFILE | os.O_RDWR)
t = os.open('m/open', os.O_TMPFILE | os.O_RDWR); os.write(t, b'mine')
no(link_fd, t, 'm/island/t')
link_fd(t, 'm/open/t'); os.unlink('m/open/t')
# What is known of names stays visible.
assert os.stat(f).st_size == 320000
os.unlink(here)
";

/// A user with all rights can do everything.
const OWNER: &str = "
f = 'm/island/f'
assert sorted(os.listdir('m/island')) == ['deep', 'f'] and open(f, 'rb').read() == b'treasure' * 40000
a = os.open(f, os.O_RDWR); os.ftruncate(a, 8); os.fsync(a); mmap.mmap(a, 8)[:4] = b'TREA'; os.close(a)
assert open(f, 'rb').read() == b'TREAsure' and os.getxattr(f, 'user.secret') == b'treasure'
os.chmod(f, 0o660); os.utime(f); os.rename(f, 'm/island/g'); os.rename('m/island/g', f); os.chmod(f, 0o666)
t = os.open('m/island', os.O_TMPFILE | os.O_RDWR); link_fd(t, 'm/island/t')
opened(fd(t), os.O_RDWR); os.unlink('m/island/t'); opened(fd(t), os.O_RDWR)
open(f, 'wb').write(b'treasure' * 40000)
";

/// A user who only reads changes nothing.
const READER: &str = "
f = 'm/open/f'
assert open(f, 'rb').read(8) == b'treasure' and 'f' in os.listdir('m/open')
r = os.open(f, os.O_RDONLY)
for flags in [os.O_WRONLY, os.O_RDWR]: no(opened, f, flags); no(opened, fd(r), flags)
no(opened, 'm/open', os.O_TMPFILE | os.O_RDWR); no(opened, 'm/open/new', os.O_CREAT)
no(os.truncate, f, 0); no(os.utime, f); no(os.utime, r); no(os.rename, f, f + '2'); no(os.link, f, f + '2')
no(os.unlink, f); no(os.mkdir, 'm/open/d')
if os.stat(f).st_uid == os.getuid(): no(os.chmod, f, 0o777)
no(os.setxattr, r, 'user.x', b''); no(os.rename, 'm/open', 'm/o')
try: mmap.mmap(r, 8)[:1] = b'x'
except PermissionError: pass
else: raise AssertionError('a mapping of what is open for reading was written')
";

#[test]
fn what_rules_deny_a_user_does_not_get_at() {
    let Some(bench) = Bench::shared() else { return };
    for cache in ["writeback", "passthrough", "direct"] {
        bench.write_stack(&bench.with_rules(RULES, cache));
        bench.mount();
        fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
        bench.user_ok(ALICE, MAKE);
        // The owner of the files, who may not change them; the kernel has all in its cache.
        bench.user_ok(BOB, ATTACK);
        bench.user_ok(ALICE, OWNER);
        bench.user_ok(BOB, ATTACK);
        drop_caches();
        bench.user_ok(BOB, ATTACK);
        bench.user_ok(EVE, READER);
        // A reader's own files, and root.
        let all = "for f in ['island/f', 'island/deep/f', 'open/f']: os.unlink('m/' + f)\n\
                   for d in ['island/deep', 'island', 'open']: os.rmdir('m/' + d)\n";
        let root = format!("{ATTACK}\nos.chown('m/open/f', {EVE}, {EVE})");
        bench.user_ok(0, &root);
        bench.user_ok(EVE, READER);
        bench.user_ok(ALICE, all);
        bench.unmount_clean();
    }
}

#[test]
fn a_group_counts_as_long_as_a_user_is_in_it() {
    let Some(bench) = Bench::shared() else { return };
    bench.write_stack(&bench.with_rules(RULES, "writeback"));
    bench.mount();
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    let member = bench.user(ALICE, &[3, TEAM], "os.mkdir('m/team'); open('m/team/f', 'w').write('ours')");
    assert!(member.status.success(), "{}", said(&member));
    let member =
        bench.user(BOB, &[TEAM], "assert open('m/team/f').read() == 'ours' and os.listdir('m/team')");
    assert!(member.status.success(), "{}", said(&member));
    bench.user_ok(BOB, "no(opened, 'm/team/f', os.O_RDONLY); no(os.listdir, 'm/team')");
    bench.user_ok(ALICE, "no(os.unlink, 'm/team/f')");
    // Other rules count from the next open on; a group that is denied is so as a further one too.
    let denying = "\n      - { paths: [ 'team/**' ], gid: [ 4999 ], deny: [ read ] }";
    bench.write_stack(&bench.with_rules(denying, "writeback"));
    assert_eq!(bench.ok(&["reload", "m"]), "module permissions: other settings\n");
    bench.user_ok(BOB, "opened('m/team/f', os.O_RDONLY)");
    let member = bench.user(BOB, &[3, TEAM], "no(opened, 'm/team/f', os.O_RDONLY)");
    assert!(member.status.success(), "{}", said(&member));
    bench.unmount_clean();
}

/// A file handle leads past all names; only root may use one.
#[test]
fn a_file_handle_is_no_way_around_a_rule() {
    let Some(bench) = Bench::shared() else { return };
    bench.write_stack(&bench.with_rules(RULES, "writeback"));
    bench.mount();
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    bench.user_ok(ALICE, MAKE);
    let handle = "
def handle(path):
    b, m = ctypes.create_string_buffer(b'\\x80' + bytes(135), 136), ctypes.c_int()
    call(libc.name_to_handle_at(-100, path.encode(), b, ctypes.byref(m), 0))
    return b
def by(b, flags): os.close(call(libc.open_by_handle_at(mount, b, flags)))
mount = os.open('m', os.O_RDONLY)
b, o = handle('m/island/f'), handle('m/open/f')
# A file that is open stays known, whatever other tests have the kernel forget.
known = os.open('m/open/f', os.O_RDONLY)
for flags in [os.O_RDONLY, os.O_RDWR]: no(by, b, flags); by(o, flags)
os.close(known)
open('/proc/sys/vm/drop_caches', 'w').write('3')
try: by(o, os.O_RDONLY)
except OSError as error:
    # Handles do not last on every home.
    if error.errno == errno.ESTALE: sys.exit()
    # Without a path, a file counts as denied.
    assert error.errno == errno.EACCES
for flags in [os.O_RDONLY, os.O_RDWR]: no(by, b, flags)
";
    bench.user_ok(0, handle);
    bench.unmount_clean();
}

#[test]
fn rules_hold_for_files_of_any_size_and_contradictions_are_refused() {
    let Some(bench) = Bench::shared() else { return };
    bench.write_stack(&bench.with_rules(RULES, "auto"));
    bench.mount();
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    bench.user_ok(ALICE, MAKE);
    // A spread file, written back and copied by the kernel.
    let spread = format!(
        "d = os.urandom({RANGE} * 9 + 5)\na = os.open('m/island/big', os.O_CREAT | os.O_RDWR)\nos.write(a, d)\n\
         b = os.open('m/open/big', os.O_CREAT | os.O_RDWR)\nos.fsync(a)\nos.copy_file_range(a, b, len(d), 0, 0)\n\
         os.posix_fallocate(b, 0, len(d) + 4096)\nos.fsync(b)\nassert os.pread(b, len(d), 0) == d"
    );
    bench.user_ok(ALICE, &spread);
    bench.user_ok(
        BOB,
        "no(opened, 'm/island/big', os.O_RDONLY); assert len(open('m/open/big', 'rb').read()) > 9",
    );
    for (rules, problem) in [
        (
            "\n      - { deny: [ read ], allow: [ read ] }",
            "s.yaml:4: stack.permissions.rules: the rule allows",
        ),
        ("\n      - { uid: [ bob ], deny: [ read ] }", "s.yaml:4: stack.permissions.rules.uid: found 'bob'"),
        ("\n      - { deny: [ read ] }\n      - { uid: [ 5 ], allow: [ read ] }", "rule 2 never counts"),
    ] {
        bench.write_stack(&bench.with_rules(rules, "auto"));
        for words in [&["reload", "m"][..], &["stack", "check", "s.yaml"]] {
            let said = bench.refused(words);
            assert!(said.contains(problem) && said.contains("help: "), "{said}");
        }
    }
    bench.user_ok(BOB, "no(opened, 'm/island/big', os.O_RDONLY)");
    bench.write_stack(&bench.with_rules(RULES, "auto"));
    bench.unmount_clean();
}

/// The island denies root, too; only what the stack does by itself for Alice is not judged.
#[test]
fn modules_above_and_values_work_for_a_user_who_may() {
    let rules = "rules: [ { paths: [ 'island/**' ], uid: [ 4801 ], allow: [ read, write, list ] }, \
                 { paths: [ 'island/**' ], deny: [ read, write, list ] } ]";
    let volume = "volume: { home: fast, tiers: { fast: { dir: a }, slow: { dir: b } } }";
    for above in ["noop: {", "checksum: {", "consistency: { mode: relaxed,"] {
        let Some(bench) = Bench::shared() else { return };
        bench.write_stack(&format!("stack: {{ {above} permissions: {{ {rules}, {volume} }} }} }}\n"));
        bench.mount();
        fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
        bench.user_ok(
            ALICE,
            "os.mkdir('m/island')\n\
             for text in [b'first' * 9000, b'second']:\n\
             \x20   new = os.open('m/island/new', os.O_CREAT | os.O_RDWR); os.write(new, text); os.fsync(new)\n\
             \x20   os.rename('m/island/new', 'm/island/f')\n\
             assert open('m/island/f', 'rb').read() == b'second'",
        );
        let kv = |uid: u32, words: &[&str]| as_user(uid, &bench.command(&[&["kv"][..], words].concat()));
        for value in ["one", "two"] {
            let put = kv(ALICE, &["put", "m/island", "key", value]);
            assert!(put.status.success(), "{above} {}", said(&put));
        }
        let scan = kv(ALICE, &["scan", "m/island"]);
        assert_eq!(String::from_utf8_lossy(&scan.stdout), "f\nkey\n", "{above} {}", said(&scan));
        bench.user_ok(ALICE, "assert sorted(os.listdir('m/island')) == ['f', 'key'], os.listdir('m/island')");
        for uid in [0, BOB] {
            for words in
                [&["get", "m/island", "key"][..], &["scan", "m/island"], &["put", "m/island", "x", "y"]]
            {
                assert!(said(&kv(uid, words)).contains("ermission denied"), "{uid} {words:?}");
            }
        }
        bench.user_ok(ALICE, "os.unlink('m/island/f'); os.unlink('m/island/key'); os.rmdir('m/island')");
        bench.unmount_clean();
    }
}
