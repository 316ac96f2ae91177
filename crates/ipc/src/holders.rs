//! The holders of a file system: processes that use its files, and its mounts
//! in every visible mount namespace. Root sees all processes, a user only her
//! own.

use crate::mounts::{self, Mount};
use braid_contract::Shown;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A holder of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A mount, in this process's mount namespace.
    Mount(PathBuf),
    /// A mount in another mount namespace, which this process is in.
    Elsewhere {
        /// Its mount point there.
        point: PathBuf,
        /// A process in it.
        pid: u32,
        /// The process's name.
        name: String,
    },
    /// A process uses it.
    Process {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// How it uses the file system.
        how: &'static str,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(point) => write!(f, "it is mounted at {}", point.shown()),
            Self::Elsewhere { point, pid, name } => {
                let point = point.shown();
                write!(f, "it is mounted at {point} in the mount namespace of process {pid} ({name})")
            }
            Self::Process { pid, name, how } => write!(f, "process {pid} ({name}) {how}"),
        }
    }
}

/// All visible holders of the file system `dev`. The file system itself is not
/// accessed.
#[must_use]
pub fn list(dev: u64) -> Vec<Holder> {
    let here = mounts::list().unwrap_or_default();
    let of_it = |mount: &Mount| mount.dev == dev;
    let mut holders: Vec<Holder> =
        here.into_iter().filter(of_it).map(|mount| Holder::Mount(mount.point)).collect();
    let mut namespaces: BTreeSet<OsString> = BTreeSet::new();
    namespaces.extend(namespace("self"));
    for pid in pids() {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let name = || std::fs::read_to_string(dir.join("comm")).unwrap_or_default().trim_end().to_owned();
        if let Some(how) = use_of(&dir, dev) {
            holders.push(Holder::Process { pid, name: name(), how });
        }
        if namespace(&pid.to_string()).is_none_or(|namespace| !namespaces.insert(namespace)) {
            continue;
        }
        let there = mounts::list_of(&dir.join("mountinfo")).unwrap_or_default();
        holders.extend(there.into_iter().filter(of_it).map(|mount| Holder::Elsewhere {
            point: mount.point,
            pid,
            name: name(),
        }));
    }
    holders
}

/// One indented line for each, to follow a message. Without visible holders,
/// the possible ones.
#[must_use]
pub fn lines(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "\n  a user that is not seen from here: a process of another user, or a mount that was detached".into();
    }
    holders.iter().map(|holder| format!("\n  {holder}")).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != std::process::id())
}

/// The mount namespace of a process.
fn namespace(pid: &str) -> Option<OsString> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok().map(PathBuf::into_os_string)
}

/// How the process uses the file system `dev`.
fn use_of(process: &Path, dev: u64) -> Option<&'static str> {
    let on = |what: &str| is_on(&process.join(what), dev);
    if on("cwd") || on("root") {
        return Some("works in it");
    }
    let mut open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    if open.any(|fd| is_on(&fd.path(), dev)) {
        return Some("has files of it open");
    }
    (on("exe") || maps(process, dev)).then_some("runs or maps a file of it")
}

/// Whether a link of the kernel leads into the file system `dev`, without
/// accessing that.
fn is_on(link: &Path, dev: u64) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, link, flags, StatxFlags::empty());
    found.is_ok_and(|found| makedev(found.stx_dev_major, found.stx_dev_minor) == dev)
}

/// Whether a process maps a file of the file system `dev`.
fn maps(process: &Path, dev: u64) -> bool {
    let number = format!("{:02x}:{:02x}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n').any(|line| {
        let device = line.split(|byte| *byte == b' ').nth(3);
        device == Some(number.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_process_that_works_somewhere_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dev = std::fs::metadata(dir.path()).unwrap().dev();
        let mut child =
            std::process::Command::new("sleep").arg("1000").current_dir(dir.path()).spawn().unwrap();
        let found = use_of(Path::new(&format!("/proc/{}", child.id())), dev);
        let none = use_of(Path::new(&format!("/proc/{}", child.id())), u64::MAX);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, none), (Some("works in it"), None));
    }

    #[test]
    fn what_is_told_of_nobody() {
        assert!(lines(&[]).contains("not seen from here"));
        let process = Holder::Process { pid: 7, name: "sh".into(), how: "works in it" };
        assert_eq!(lines(&[process]), "\n  process 7 (sh) works in it");
    }
}
