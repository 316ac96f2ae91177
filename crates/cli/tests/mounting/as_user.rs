//! A user who mounts: the daemon is hers, and it gives her no more rights than
//! the kernel does natively (`docs/security.md`). Needs root, /dev/fuse,
//! `setpriv`, `unshare` and `fusermount3`; skipped without root.

use crate::common::Bench;
use crate::users::said;

/// Run in a mount namespace of its own, in which every user may open /dev/fuse.
const SCRIPT: &str = r#"
mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse
{ cat /etc/passwd; for user in 4711 4802; do echo "user$user:x:$user:$user::/:/bin/sh"; done; } >passwd
mount --bind passwd /etc/passwd
as() { user=$1; shift; setpriv --reuid=$user --regid=$user --clear-groups env -u XDG_RUNTIME_DIR HOME=/ "$@"; }
fails() { if "$@" >out 2>&1; then echo "succeeded: $*" >&2; cat out >&2; exit 1; fi; }
has() { grep -q "$1" out || { echo "not said: $1" >&2; cat out >&2; exit 1; }; }
mount_as() { as "$1" "$BRAID" mount --create --log-file /dev/null s.yaml m >out 2>&1; }
trap 'as 4711 "$BRAID" umount --lazy m 2>&1 | cat >/dev/null; rm -rf /tmp/braid-4711' EXIT
set -e

# The owner of the tiers mounts; others, who can't write to them, do not.
fails mount_as 4802
mount_as 4711 || { cat out >&2; exit 1; }
pid=$(as 4711 "$BRAID" status m --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
grep -q "^Uid:	4711	4711	4711	4711$" "/proc/$pid/status"

# What is natively not hers is not hers through the mount.
echo secret >a/roots && chmod 600 a/roots
fails as 4711 cat m/roots
has "Permission denied"
fails as 4711 sh -c 'echo x >m/roots'
fails as 4711 chmod 666 m/roots
fails as 4711 chown 4711 m/roots
fails as 4711 sh -c 'echo x >m/own && chown 0 m/own'
fails as 4711 mknod m/device c 1 3
as 4711 cp /bin/true m/program
fails as 4711 chown 0:0 m/program
grep -q secret a/roots

# Her volume has its attributes in `user.`, and she alone is in her mount.
as 4711 dd if=/dev/urandom of=m/big bs=64k count=12 oflag=dsync status=none
as 4711 python3 -c 'import os; assert "user.braid.id" in os.listxattr("a/big"), os.listxattr("a/big")'
fails as 4802 ls m
fails as 4802 "$BRAID" status m

# Her sockets are for her alone, in a directory that is.
socket=$(ls /tmp/braid-4711/*.sock)
[ "$(stat -c '%u %a' /tmp/braid-4711)" = "4711 700" ]
[ "$(stat -c '%u %a' "$socket" | head -n 1)" = "4711 600" ]
as 4711 "$BRAID" umount m
# She gets no priority that is not hers.
fails as 4711 "$BRAID" mount --log-file /dev/null --nice -5 s.yaml m
has "nice -5: -5: Permission denied"
as 4711 "$BRAID" mount --log-file /dev/null s.yaml m --metrics "unix:$PWD/a/metrics.sock"
[ "$(stat -c '%u %a' a/metrics.sock)" = "4711 600" ]
as 4711 "$BRAID" umount m

# A place for her socket that somebody else made is not used.
rm -rf /tmp/braid-4711
as 4802 mkdir -m 777 /tmp/braid-4711
fails mount_as 4711
has "not a directory that only user 4711 can write"
rmdir /tmp/braid-4711
as 4802 mkdir -m 700 "$PWD/theirs"
as 4802 ln -s "$PWD/theirs" /tmp/braid-4711
fails mount_as 4711
[ -z "$(ls theirs)" ]
rm /tmp/braid-4711
"#;

#[test]
fn who_mounts_as_a_user_gets_what_she_has_natively() {
    let Some(bench) = Bench::shared() else { return };
    std::fs::set_permissions(bench.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let script = bench.in_namespace(SCRIPT);
    assert!(script.status.success(), "{}", said(&script));
}
