//! Views: stacks over the file system of another mount. Needs root, /dev/fuse, `setpriv` and
//! Python; skipped without root.

use crate::common::{Bench, drop_caches, kill_and_wait, pattern, until};
use crate::crashing::crash_in_a_while;
use crate::users::{ALICE, BOB, python, said};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// A volume mounted at `m`, and mount points for views.
fn bench(flags: &[&str]) -> Option<Bench> {
    let bench = Bench::new()?;
    ["v", "w"].iter().for_each(|name| bench.make_dir(name));
    fs::set_permissions(bench.path(""), Permissions::from_mode(0o755)).unwrap();
    bench.ok(&[&["mount"], flags, &["s.yaml", "m"]].concat());
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o1777)).unwrap();
    Some(bench)
}

const RUNTIME: &[&str] = &["--runtime"];

impl Bench {
    /// Writes the stack file `name` of a view.
    fn write_view(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Mounts the stack file of a view.
    #[track_caller]
    fn view(&self, stack: &str, point: &str) {
        let log = self.path("log");
        let output = self.as_written(&["mount", "--log-file", log.to_str().unwrap(), stack, point]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// The message where it can't be mounted.
    #[track_caller]
    fn no_view(&self, flags: &[&str], stack: &str, point: &str) -> String {
        self.refused_as_written(&[&["mount"], flags, &[stack, point]].concat())
    }

    fn serves(&self, point: &str) -> i32 {
        let status = self.json(&["status", "--json", point]);
        i32::try_from(status["pid"].as_i64().unwrap()).unwrap()
    }
}

const PLAIN: &str = "stack: { view: { of: m } }\n";

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn two_views_of_one_volume_have_stacks_of_their_own() {
    let Some(bench) = bench(RUNTIME) else { return };
    let rules =
        |rules: &str| format!("stack: {{ permissions: {{ rules: [ {rules} ], view: {{ of: m }} }} }}\n");
    bench.write_view("ro.yaml", &rules("{ paths: [ '**' ], deny: [ write ] }"));
    bench
        .write_view("w.yaml", &rules("{ paths: [ 'kept/**' ], uid: [ 4801 ], deny: [ read, write, list ] }"));
    let checked = bench.ok(&["stack", "check", "ro.yaml"]);
    assert!(checked.contains("permissions over view of ") && checked.contains("no problems"), "{checked}");
    bench.view("ro.yaml", "v");
    bench.view("w.yaml", "w");
    let (m, v, w) = (bench.path("m"), bench.path("v"), bench.path("w"));

    // Each has its rules, the volume has none.
    fs::create_dir(m.join("kept")).unwrap();
    fs::write(m.join("kept/file"), "one").unwrap();
    assert_eq!(fs::read_to_string(v.join("kept/file")).unwrap(), "one");
    assert_eq!(errno(fs::write(v.join("kept/file"), "two")), Some(13));
    assert_eq!(errno(fs::create_dir(v.join("new"))), Some(13));
    fs::write(w.join("kept/file"), "three").unwrap();
    let denied = "try: open('w/kept/file'); sys.exit(1)\nexcept PermissionError: open('v/kept/file').read()";
    bench.python_ok(ALICE, denied);
    bench.python_ok(BOB, "open('w/kept/file').read()");

    // Changes on one side show on the others at once.
    for (round, (from, to)) in [(&m, &v), (&w, &m), (&w, &v), (&m, &w)].into_iter().enumerate() {
        let text = "x".repeat(3 + round);
        fs::write(from.join("kept/file"), &text).unwrap();
        assert_eq!(fs::read_to_string(to.join("kept/file")).unwrap(), text, "{round}");
        assert_eq!(fs::metadata(to.join("kept/file")).unwrap().len(), text.len() as u64, "{round}");
        fs::set_permissions(from.join("kept"), Permissions::from_mode(0o750 + round as u32)).unwrap();
        assert_eq!(fs::metadata(to.join("kept")).unwrap().mode() & 0o777, 0o750 + round as u32);
        fs::rename(from.join("kept/file"), from.join("kept/moved")).unwrap();
        assert_eq!(errno(fs::metadata(to.join("kept/file"))), Some(2), "{round}");
        fs::rename(from.join("kept/moved"), from.join("kept/file")).unwrap();
        assert!(to.join("kept/file").exists() && !to.join("kept/moved").exists(), "{round}");
    }

    // Commands know that it is a view.
    let status = bench.json(&["status", "--json", "v"]);
    assert_eq!(status["view"], m.canonicalize().unwrap().to_str().unwrap(), "{status}");
    assert_eq!((&status["cache"], status["tiers"].as_array().unwrap().len()), (&"direct".into(), 0));
    assert!(bench.ok(&["status", "v"]).contains("view of "));
    assert!(bench.ok(&["status", "--check", "v"]).starts_with("BRAID OK: "));
    assert!(bench.ok(&["stack", "list"]).contains("permissions, view"));
    for words in [&["tier", "list", "v"][..], &["top", "--once", "v"], &["explain", "v/kept/file"]] {
        let (code, said) = bench.fails(words);
        assert!(code == 1 && said.contains("view") && said.contains("help: "), "{words:?}: {said}");
    }

    // Its modules change while it is mounted.
    assert_eq!(bench.ok(&["reload", "v"]), "nothing changed\n");
    bench.write_view("ro.yaml", &rules("{ paths: [ 'kept/**' ], deny: [ write ] }"));
    assert_eq!(bench.ok(&["reload", "v"]), "module permissions: other settings\n");
    fs::write(v.join("free"), "yes").unwrap();
    bench.write_view("n.yaml", "stack: { noop: { view: { of: /nowhere } } }\n");
    bench.ok(&["stack", "modify", "v", "n.yaml"]);
    fs::write(v.join("kept/file"), "now").unwrap();
    let dump = bench.ok(&["stack", "dump", "v"]);
    assert!(dump.contains("noop:") && dump.contains(m.canonicalize().unwrap().to_str().unwrap()), "{dump}");
    bench.write_view("ro.yaml", "stack: { noop: { view: { of: w } } }\n");
    assert!(bench.refused(&["reload", "v"]).contains("of: this was changed since the mount"));
    ["v", "w"].iter().for_each(|view| _ = bench.ok(&["umount", view]));
    bench.unmount_clean();
}

/// Operations of users in a view `v`, and their results in the mount `m`.
const USERS: &str = r#"
import ctypes, errno, mmap, os, shutil, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def as_user(uid, groups, work):
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups); os.setgid(uid); os.setuid(uid)
            work(); os._exit(0)
        except BaseException as error:
            print(uid, groups, repr(error), file=sys.stderr); os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
def no(code, what, *args):
    try: what(*args)
    except OSError as error: assert error.errno == code, (args, error)
    else: raise AssertionError((args, 'was not refused'))
def put(name, text, mode=0o666):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, mode); os.write(fd, text); os.close(fd)
def get(name): return open(name, 'rb').read()
def owner(name): st = os.lstat(name); return st.st_uid, st.st_gid, st.st_mode & 0o7777
os.umask(0o022)

# What is made is its maker's.
put('v/root', b'x')
def make():
    put('v/file', b'x'); os.mkdir('v/dir'); os.symlink('x', 'v/link'); os.mkfifo('v/fifo')
    fd = os.open('v', os.O_TMPFILE | os.O_RDWR, 0o644); os.write(fd, b'unnamed')
    call(libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'v/named', 0x400))
as_user(4801, [], make)
assert owner('m/root') == (0, 0, 0o644)
assert [owner('m/' + name) for name in ['file', 'dir', 'fifo', 'named']] == \
    [(4801, 4801, mode) for mode in [0o644, 0o755, 0o644, 0o644]] and owner('m/link')[:2] == (4801, 4801)
assert get('m/named') == b'unnamed'
os.umask(0); put('v/open', b''); os.umask(0o022); assert owner('m/open')[2] == 0o666

# Supplementary groups count, and set-group-id directories hand theirs on.
os.mkdir('m/team'); os.chown('m/team', 0, 4999); os.chmod('m/team', 0o2770)
put('m/team/file', b'team'); os.chmod('m/team/file', 0o660)
def member():
    assert get('v/team/file') == b'team' and os.listdir('v/team') == ['file']
    put('v/team/new', b'x'); os.mkdir('v/team/sub')
    os.close(os.open('v/team/prog', os.O_CREAT | os.O_WRONLY, 0o2775))
    os.rename('v/team/new', 'v/team/newer'); os.chmod('v/team/sub', 0o2750)
as_user(4801, [4998, 4999], member)
assert [owner('m/team/' + name) for name in ['newer', 'sub', 'prog']] == \
    [(4801, 4999, mode) for mode in [0o644, 0o2750, 0o2755]]
def stranger():
    no(errno.EACCES, get, 'v/team/file'); no(errno.EACCES, os.stat, 'v/team/file'); no(errno.EACCES, os.listdir, 'v/team')
as_user(4802, [4998], stranger)

# Sticky directories, modes, owners and times are those of others.
def others():
    no(errno.EPERM, os.unlink, 'v/file'); no(errno.EPERM, os.rename, 'v/file', 'v/mine')
    no(errno.EPERM, os.chmod, 'v/file', 0o666); no(errno.EPERM, os.chown, 'v/file', 4802, -1)
    no(errno.EACCES, os.truncate, 'v/file', 0); no(errno.EACCES, os.utime, 'v/file'); no(errno.EPERM, os.utime, 'v/file', (1, 1))
as_user(4802, [], others)
def own():
    os.chmod('v/file', 0o640); os.chown('v/file', -1, 4999); os.utime('v/file', (1, 2)); no(errno.EPERM, os.chown, 'v/file', -1, 4998)
as_user(4801, [4999], own)
assert owner('m/file') == (4801, 4999, 0o640) and os.stat('m/file').st_mtime == 2

# ACLs.
def acl(tag): return bytes([2,0,0,0]) + b''.join(bytes([t,0,p,0]) + i.to_bytes(4, 'little') for t, p, i in tag)
NONE = 0xffffffff
put('m/acl', b'acl', 0o600)
os.setxattr('v/acl', 'system.posix_acl_access', acl([(1,6,NONE), (2,4,4802), (4,0,NONE), (16,4,NONE), (32,0,NONE)]))
for top in ['v', 'm']:
    as_user(4802, [], lambda: get(top + '/acl')); as_user(4803, [], lambda: no(errno.EACCES, get, top + '/acl'))
os.removexattr('m/acl', 'system.posix_acl_access'); os.chmod('m/acl', 0o600)
as_user(4802, [], lambda: no(errno.EACCES, get, 'v/acl'))
as_user(4803, [], lambda: no(errno.EPERM, os.setxattr, 'v/open', 'system.posix_acl_access', acl([(1,6,NONE), (4,6,NONE), (32,6,NONE)])))

# Names, attributes, mappings, programs.
put('v/a', b'1111'); put('v/b', b'2222'); call(libc.renameat2(-100, b'v/a', -100, b'v/b', 2)); assert get('m/a') == b'2222'
os.link('v/a', 'v/hard'); assert os.stat('m/hard').st_nlink == os.stat('v/a').st_nlink == 2
os.setxattr('v/a', 'user.x', b'y' * 1000); assert os.getxattr('m/a', 'user.x') == b'y' * 1000 and 'user.x' in os.listxattr('v/a')
os.removexattr('m/a', 'user.x'); no(errno.ENODATA, os.getxattr, 'v/a', 'user.x')
one, other = os.open('m/a', os.O_RDWR), os.open('v/a', os.O_RDWR)
os.pwrite(other, b'VIEW', 0); assert os.pread(one, 9, 0) == b'VIEW'
os.pwrite(one, b'BELO', 0); os.fsync(one); assert os.pread(other, 9, 0) == b'BELO'
mapped = mmap.mmap(other, 4); assert mapped[:] == b'BELO'; mapped[:2] = b'mm'; mapped.flush(); mapped.close()
assert os.pread(one, 9, 0) == b'mmLO'
os.unlink('m/a'); os.unlink('m/hard'); no(errno.ENOENT, os.stat, 'v/a'); assert os.pread(other, 9, 0) == b'mmLO'
shutil.copy('/bin/true', 'v/program'); assert subprocess.run(['v/program']).returncode == 0
os.mkdir('m/many')
for number in range(3000): os.close(os.open('m/many/%d' % number, os.O_CREAT | os.O_WRONLY))
assert sorted(os.listdir('v/many')) == sorted(map(str, range(3000))) and all(e.stat().st_size == 0 for e in os.scandir('v/many'))
below, view = os.statvfs('m'), os.statvfs('v'); assert (below.f_blocks, below.f_bsize) == (view.f_blocks, view.f_bsize)
"#;

#[test]
fn a_view_acts_for_each_of_its_users() {
    let Some(bench) = bench(RUNTIME) else { return };
    bench.write_view("v.yaml", PLAIN);
    bench.view("v.yaml", "v");
    let output = Command::new(python()).args(["-c", USERS]).current_dir(bench.path("")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // Names that a listing looked up beyond the room of its reader are forgotten, too.
    let known = || bench.json(&["status", "--json", "m"])["known_inodes"].as_u64().unwrap();
    // Another test may have the kernel forget them at any time.
    until("a listing is known", || {
        let listing = fs::read_dir(bench.path("v/many")).unwrap();
        assert!(listing.map(|entry| entry.unwrap().metadata().unwrap().len()).all(|len| len == 0));
        known() > 3000
    });
    until("inodes are forgotten", || {
        drop_caches();
        known() < 1000
    });
    let data = pattern(3, 2_500_000);
    fs::write(bench.path("v/data"), &data).unwrap();
    assert!(
        fs::read(bench.path("m/data")).unwrap() == data && fs::read(bench.path("v/data")).unwrap() == data
    );
    bench.ok(&["umount", "v"]);
    bench.unmount_clean();
}

#[test]
fn a_view_may_be_of_a_directory_and_of_another_view() {
    let Some(bench) = bench(RUNTIME) else { return };
    fs::create_dir_all(bench.path("m/projects/secret")).unwrap();
    fs::write(bench.path("m/projects/secret/file"), "hidden").unwrap();
    fs::write(bench.path("m/outside"), "outside").unwrap();
    // Paths of its rules begin at the directory, also where no program looked the names up.
    bench.write_view(
        "v.yaml",
        "stack:\n  permissions:\n    rules: [ { paths: [ 'secret/**' ], deny: [ read, write, list ] } ]\n    \
         view: { of: m/projects }\nmount: { runtime: true }\n",
    );
    bench.write_view("w.yaml", "stack: { noop: { view: { of: v } } }\n");
    bench.view("v.yaml", "v");
    bench.view("w.yaml", "w");
    for view in ["v", "w"] {
        let at = |name: &str| bench.path(view).join(name);
        assert_eq!(fs::metadata(bench.path(view)).unwrap().ino(), 1);
        assert!(!at("outside").exists() && !at("../m/projects/outside").exists());
        assert_eq!(errno(fs::read(at("secret/file"))), Some(13), "{view}");
        assert_eq!(errno(fs::read_dir(at("secret"))), Some(13), "{view}");
        fs::write(at("new"), view).unwrap();
        assert_eq!(fs::read_to_string(bench.path("m/projects/new")).unwrap(), view);
        fs::write(bench.path("m/projects/new"), "below").unwrap();
        assert_eq!(fs::read_to_string(at("new")).unwrap(), "below");
    }
    // A user of both has her own rights.
    bench.python_ok(ALICE, "assert not os.access('w/new', os.W_OK) and open('w/new').read() == 'below'");
    fs::set_permissions(bench.path("m/projects"), Permissions::from_mode(0o777)).unwrap();
    bench.python_ok(ALICE, "open('w/hers', 'w')");
    assert_eq!(fs::metadata(bench.path("m/projects/hers")).unwrap().uid(), ALICE);
    // A mount in use can't be unmounted.
    for below in ["m", "v"] {
        let (code, said) = bench.fails(&["umount", below]);
        assert!(code == 1 && said.contains("is busy") && said.contains("(braid)"), "{said}");
    }
    ["w", "v"].iter().for_each(|view| _ = bench.ok(&["umount", view]));
    bench.unmount_clean();
}

#[test]
fn frames_of_a_view_are_read_through_it_alone() {
    let Some(bench) = bench(RUNTIME) else { return };
    fs::create_dir(bench.path("m/packed")).unwrap();
    bench.write_view("v.yaml", "stack: { compress: { view: { of: m/packed } } }\n");
    bench.view("v.yaml", "v");
    let data = b"the same again and again, ".repeat(40_000);
    fs::write(bench.path("v/file"), &data).unwrap();
    assert!(fs::read(bench.path("v/file")).unwrap() == data);
    let below = fs::read(bench.path("m/packed/file")).unwrap();
    assert!(below.starts_with(b"BRAIDFRM") && !below.windows(60).any(|part| part == &data[..60]));
    bench.ok(&["umount", "v"]);
    bench.view("v.yaml", "v");
    assert!(fs::read(bench.path("v/file")).unwrap() == data);
    bench.ok(&["umount", "v"]);
    bench.unmount_clean();
}

#[test]
fn a_view_goes_on_over_an_upgrade_and_ends_with_what_is_below() {
    let Some(bench) = bench(RUNTIME) else { return };
    bench.write_view("v.yaml", PLAIN);
    bench.view("v.yaml", "v");
    let file = fs::File::create(bench.path("v/file")).unwrap();
    bench.ok(&["upgrade", "m"]);
    file.write_all_at(b"after", 0).unwrap();
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"after");

    // The end of a view changes nothing below.
    kill_and_wait(bench.serves("v"));
    // The kernel has its requests canceled first.
    until("an end", || errno(fs::metadata(bench.path("v/file"))) == Some(107));
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"after");
    drop(file);
    bench.ok(&["umount", "v"]);
    bench.view("v.yaml", "v");
    assert_eq!(fs::read(bench.path("v/file")).unwrap(), b"after");

    // The end of the mount below is that of the view.
    kill_and_wait(bench.serves("m"));
    assert_eq!(errno(fs::read(bench.path("v/file"))), Some(107));
    let (code, _) = bench.fails(&["status", "--check", "v"]);
    assert_eq!(code, 2);
    bench.ok(&["umount", "v"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_view_outlives_crashes_below_where_the_mount_does() {
    let Some(bench) = bench(&["--runtime", "--restart"]) else { return };
    bench.write_view("v.yaml", PLAIN);
    bench.view("v.yaml", "v");
    let at = |name: &str| bench.path("v").join(name);
    let log = fs::File::create(at("log")).unwrap();
    let mut lines = 0_u64;
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let killed = scope.spawn(|| crash_in_a_while(&bench));
            while !killed.is_finished() || !lines.is_multiple_of(50) {
                log.write_all_at(format!("{lines:07}\n").as_bytes(), lines * 8).unwrap();
                fs::write(at("one"), lines.to_string()).unwrap();
                fs::rename(at("one"), at("other")).unwrap();
                assert_eq!(fs::read_to_string(at("other")).unwrap(), lines.to_string());
                fs::remove_file(at("other")).unwrap();
                lines += 1;
            }
        });
    }
    drop(log);
    let written = fs::read_to_string(bench.path("m/log")).unwrap();
    assert!(written.lines().eq((0..lines).map(|line| format!("{line:07}"))));
    assert_eq!(bench.json(&["status", "--json", "m"])["restarts"]["count"], 3);
    bench.ok(&["umount", "v"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn views_that_can_not_be_are_refused() {
    let Some(bench) = bench(&[]) else { return };
    bench.write_view("v.yaml", PLAIN);
    let refused = |flags: &[&str], text: &str, parts: &[&str]| {
        bench.write_view("n.yaml", text);
        let said = bench.no_view(flags, "n.yaml", "v");
        for part in parts.iter().chain(&["help: "]) {
            assert!(said.contains(part), "{text}: {said}");
        }
    };
    refused(&[], PLAIN, &["n.yaml:1: stack.view.of: ", "has no runtime", "runtime: true"]);
    assert!(bench.refused(&["stack", "check", "v.yaml"]).contains("has no runtime"));
    bench.ok(&["umount", "m"]);
    refused(&[], PLAIN, &["in no mounted Braid file system"]);
    refused(&[], "stack: { view: { of: /etc } }\n", &["/etc is in no mounted Braid file system"]);
    refused(&[], "stack: { view: { of: nowhere } }\n", &["No such file"]);
    bench.ok(&["mount", "--runtime", "s.yaml", "m"]);
    fs::write(bench.path("m/file"), "").unwrap();
    fs::create_dir(bench.path("m/in")).unwrap();
    refused(&[], "stack: { view: { of: m/file } }\n", &["is not a directory"]);
    refused(&[], "stack: { view: { } }\n", &["'of' is missing"]);
    refused(&[], "stack: { view: { of: m, to: n } }\n", &["unknown key"]);
    refused(&["--create"], PLAIN, &["--create: a view has no volume"]);
    for (keys, why) in [
        ("cache: writeback", "would be old"),
        ("inodes: 5000", "how many inodes are known"),
        ("options: [ strictatime ]", "renews access times"),
    ] {
        refused(&[], &format!("{PLAIN}mount: {{ {keys} }}\n"), &[why]);
    }
    // A loop, also by a view of a view.
    assert!(bench.no_view(&[], "v.yaml", "m/in").contains("which this is a view of"));
    bench.write_view("v.yaml", &format!("{PLAIN}mount: {{ runtime: true }}\n"));
    bench.view("v.yaml", "v");
    bench.write_view("w.yaml", "stack: { view: { of: v } }\n");
    assert!(bench.no_view(&[], "w.yaml", "m/in").contains("which this is a view of"));
    assert!(!Path::new(&bench.path("m/in/file")).exists());
    bench.ok(&["umount", "v"]);
    bench.unmount_clean();
}

/// Run in a mount namespace of its own, in which every user may open /dev/fuse.
const OF_A_USER: &str = r#"
mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse
{ cat /etc/passwd; for user in 4801 4802; do echo "user$user:x:$user:$user::/:/bin/sh"; done; } >passwd
mount --bind passwd /etc/passwd
echo user_allow_other >conf && mount --bind conf /etc/fuse.conf
as() { user=$1; shift; setpriv --reuid=$user --regid=$user --clear-groups env -u XDG_RUNTIME_DIR HOME=/ "$@"; }
fails() { if "$@" >out 2>&1; then echo "succeeded: $*" >&2; cat out >&2; exit 1; fi; }
trap 'as 4801 "$BRAID" umount --lazy v 2>&1 | cat >/dev/null; rm -rf /tmp/braid-4801' EXIT
set -e
chown 4801 v
echo secret >m/roots && chmod 600 m/roots
mkdir m/listed && echo x >m/listed/name && chmod 744 m/listed

# It is hers alone, and lets nobody in.
fails as 4801 "$BRAID" mount --log-file /dev/null o.yaml v
grep -q "can't let others in" out
as 4801 "$BRAID" mount --log-file /dev/null v.yaml v
fails as 4802 ls v
fails as 4801 cat v/roots
grep -q "Permission denied" out
fails as 4801 chown 4802 v
# What she may list and not search has names, and no more.
[ "$(as 4801 ls v/listed 2>out)" = name ]
fails as 4801 cat v/listed/name
as 4801 sh -c 'echo hers >v/hers'
[ "$(stat -c '%u %g' m/hers)" = "4801 4801" ]
fails as 4801 chown 0 v/hers
as 4801 "$BRAID" umount v
"#;

#[test]
fn a_view_of_a_user_acts_as_that_user() {
    let Some(bench) = bench(RUNTIME) else { return };
    bench.write_view("v.yaml", PLAIN);
    bench.write_view("o.yaml", &format!("{PLAIN}mount: {{ allow-other: true }}\n"));
    let output = bench.in_namespace(OF_A_USER);
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
    bench.unmount_clean();
}
