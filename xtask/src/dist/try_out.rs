//! The package is tried by installing it: in an empty directory, or in a clean
//! Debian. Its contents are used; after a purge, nothing may be left.

use super::UNITS;
use super::files::entries;
use crate::setup;
use braid_tests_support::error::{Context, Result, ensure, fail};
use braid_tests_support::paths;
use braid_tests_support::sh::{cmd, exists, root_cmd};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that must exist when the package is installed.
const FILES: &[&str] = &[
    "usr/bin/braid",
    "usr/sbin/mount.fuse.braid",
    "usr/sbin/mount.braid",
    "usr/sbin/umount.fuse.braid",
    "usr/share/man/man1/braid.1.gz",
    "usr/share/man/man1/braid-mount.1.gz",
    "usr/share/man/man1/braid-tier-replace.1.gz",
    "usr/share/man/man5/braid.yaml.5.gz",
    "usr/share/man/man8/mount.fuse.braid.8.gz",
    "usr/share/bash-completion/completions/braid",
    "usr/share/zsh/vendor-completions/_braid",
    "usr/share/fish/vendor_completions.d/braid.fish",
    "usr/share/braid/rescue.py",
    "usr/lib/libbraid.so",
    "usr/include/braid.h",
    "usr/lib/python3/dist-packages/braid.py",
    "usr/share/doc/braid/copyright",
    "usr/share/doc/braid/changelog.gz",
    "usr/share/doc/braid/install.md",
    "usr/share/doc/braid/examples/two-tier.yaml",
    "etc/braid",
];

/// Installs it in an empty directory, which stands for `/`.
pub(super) fn in_directory(package: &Path) -> Result<()> {
    let root = paths::target().join("dist/root");
    if root.exists() {
        fs::remove_dir_all(&root).at(&root)?;
    }
    for dir in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(dir)).at(&root)?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |args: &[&str]| {
        let own = format!("--root={}", root.display());
        // The directory has none of its dependencies, and no shell for its
        // scripts.
        let forced = "--force-depends,script-chrootless,not-root";
        cmd("dpkg").args([&own, "--log=/dev/null", forced]).args(args).quiet()
    };
    let before = listing(&root)?;
    dpkg(&["--install", &package.display().to_string()])?;
    used(&root)?;
    // Leftovers of a daemon.
    fs::create_dir_all(root.join("var/log/braid")).at(&root)?;
    fs::write(root.join("var/log/braid/mnt.log"), "mounted\n")?;
    dpkg(&["--purge", "braid"])?;
    nothing_left(&before, &listing(&root)?)?;
    println!("installed, used and purged in {}", root.display());
    Ok(())
}

/// Uses the files installed below `root`.
fn used(root: &Path) -> Result<()> {
    for name in FILES {
        // Through the links, too.
        ensure(root.join(name).exists(), || format!("the package brings no /{name}"))?;
    }
    let told = cmd(root.join("usr/bin/braid")).arg("version").read()?;
    ensure(told.starts_with("braid "), || format!("braid version tells {told}"))?;
    let told = cmd(root.join("usr/sbin/mount.fuse.braid")).arg("--help").read()?;
    ensure(told.contains("mount -t fuse.braid"), || format!("the mount helper tells {told}"))?;
    cmd("python3").arg(root.join("usr/share/braid/rescue.py")).arg("--help").quiet()?;
    let completions = |place: &str| root.join("usr/share").join(place);
    cmd("bash").arg("-n").arg(completions("bash-completion/completions/braid")).quiet()?;
    for (shell, place) in
        [("zsh", "zsh/vendor-completions/_braid"), ("fish", "fish/vendor_completions.d/braid.fish")]
    {
        if exists(shell) {
            cmd(shell).arg("-n").arg(completions(place)).quiet()?;
        }
    }
    pages(root)?;
    units(root)
}

/// Every man page can be formatted, and without a complaint.
fn pages(root: &Path) -> Result<()> {
    if !exists("man") {
        println!("not looked at, there is no man here: the man pages");
        return Ok(());
    }
    let man = root.join("usr/share/man");
    for page in listing(&man)?.iter().filter(|page| page.to_string_lossy().ends_with(".gz")) {
        let formatted = cmd("man").args(["--warnings", "--encoding=UTF-8", "-l"]).arg(man.join(page));
        let output =
            formatted.env("MANROFFSEQ", "").env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8").output()?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure(output.status.success() && complaints.is_empty() && output.stdout.len() > 200, || {
            format!("{}: {complaints}", page.display())
        })?;
    }
    Ok(())
}

fn units(root: &Path) -> Result<()> {
    let (own, here) = (root.join("usr/lib/systemd/system"), paths::target().join("dist"));
    // They name the command where it is installed for good.
    let braid = root.join("usr/bin/braid").display().to_string();
    for unit in UNITS {
        let text = fs::read_to_string(own.join(unit)).at(&own.join(unit))?;
        fs::write(here.join(unit), text.replace("/usr/bin/braid", &braid)).at(&here.join(unit))?;
    }
    if !exists("systemd-analyze") {
        println!("not looked at, there is no systemd-analyze here: the units");
        return Ok(());
    }
    let files = UNITS.iter().map(|unit| here.join(unit));
    let output = cmd("systemd-analyze").args(["verify", "--man=no"]).args(files).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at units that are there besides.
    let about = said.lines().find(|line| line.contains("braid"));
    about.map_or(Ok(()), |line| fail(format!("the units: {line}")))
}

/// All files below a directory.
fn listing(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for path in entries(&dir)? {
            let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
            if path.is_dir() && !path.is_symlink() {
                left.push(path);
            }
            found.insert(below);
        }
    }
    Ok(found)
}

fn nothing_left(before: &BTreeSet<PathBuf>, after: &BTreeSet<PathBuf>) -> Result<()> {
    // Files that dpkg keeps for itself.
    let its_own = |path: &&PathBuf| path.starts_with("var/lib/dpkg");
    let left: Vec<String> = after
        .difference(before)
        .filter(|path| !its_own(path))
        // Directories that every Debian has.
        .filter(|path| !["var", "var/log", "run"].iter().any(|own| Path::new(own) == *path))
        .map(|path| path.display().to_string())
        .collect();
    ensure(left.is_empty(), || format!("purged, and these are left: {}", left.join(" ")))
}

/// The steps in a clean Debian, with its own tools.
const IN_DEBIAN: &str = r#"
set -eu
list() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/dpkg \
    -o -path /run/mount -o -path /var/lib/apt -o -path /var/cache -o -path /var/log/apt -o -path /var/log/dpkg.log \) -prune -o -print | sort; }
export DEBIAN_FRONTEND=noninteractive
touch /etc/fstab
list > /tmp/before
dpkg --install /tmp/braid.deb
braid version
man -w braid braid-mount 5 braid.yaml 8 mount.fuse.braid
mkdir /tmp/a /tmp/b /tmp/m
mount -t tmpfs tmpfs /tmp/a
mount -t tmpfs tmpfs /tmp/b
printf 'stack:\n  volume:\n    home: a\n    policy: { weighted: { } }\n    tiers: { a: { dir: /tmp/a }, b: { dir: /tmp/b } }\n' > /etc/braid/all.yaml
if [ -e /dev/fuse ]; then
    braid mount --help | grep -q -e --create && create=--create || create=
    braid mount $create /etc/braid/all.yaml /tmp/m && umount /tmp/m
    echo '/etc/braid/all.yaml /tmp/m fuse.braid nofail 0 0' >> /etc/fstab
    mount -a
    findmnt /tmp/m
    head -c 8M /dev/urandom > /tmp/m/file
    umount /tmp/m
    braid fsck /etc/braid/all.yaml
    sed -i '/fuse.braid/d' /etc/fstab
fi
umount /tmp/a /tmp/b
rm /etc/braid/all.yaml
dpkg --purge braid
list > /tmp/after
diff /tmp/before /tmp/after
"#;

/// Installs it in a clean Debian, which comes from the registry.
pub(super) fn in_debian(package: &Path) -> Result<()> {
    setup::dist_debian()?;
    let root = paths::target().join("dist/debian");
    root_cmd("rm").args(["-rf", "--one-file-system"]).arg(&root).run()?;
    let made = root_cmd("mmdebstrap").args(["--variant=minbase", "--include=fuse3,mount,man-db,libgcc-s1"]);
    made.arg("bookworm").arg(&root).quiet()?;
    root_cmd("cp").arg(package).arg(root.join("tmp/braid.deb")).run()?;
    // A namespace of its own: its mounts go with it.
    let enter =
        "mount --rbind /dev \"$0/dev\"; mount -t proc proc \"$0/proc\"; exec chroot \"$0\" sh -c \"$1\"";
    let tried = root_cmd("unshare").args(["--mount", "--propagation", "private", "sh", "-c", enter]);
    tried.arg(&root).arg(IN_DEBIAN).run()?;
    println!("installed, used and purged in a clean Debian, {}", root.display());
    root_cmd("rm").args(["-rf", "--one-file-system"]).arg(&root).run()
}
