//! Volumes that are still served though not mounted where they were: found by
//! the daemon's process id, the volume's id, or the former mount point.

use braid_contract::Shown;
use braid_ipc::daemons::{self, Daemon};
use braid_ipc::holders::{self, Holder};
use braid_ipc::mounts::{self, Mount};
use braid_ipc::protocol::Hello;
use std::path::Path;

/// Digits of a volume's id that are enough to name it.
const ID_DIGITS_MIN: usize = 8;

/// The daemon that `target` names.
pub(crate) fn find(target: &Path) -> Option<Daemon> {
    let mut daemons = daemons::list();
    let path = std::fs::canonicalize(target).or_else(|_| std::path::absolute(target)).ok();
    let was_at = |daemon: &Daemon| path.as_deref() == Some(Path::new(&daemon.hello.mountpoint));
    let text = target.to_str().unwrap_or_default();
    let pid = text.parse::<u32>().ok();
    let by_place = daemons.iter().position(|daemon| was_at(daemon) || Some(daemon.hello.pid) == pid);
    let at = by_place.or_else(|| {
        let is_id =
            text.len() >= ID_DIGITS_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let mut daemons = daemons.iter_mut();
        daemons
            .position(|daemon| is_id && daemon.status().is_some_and(|status| status.volume.starts_with(text)))
    })?;
    Some(daemons.swap_remove(at))
}

/// Whether the kernel still has the file system that daemon `pid` serves as
/// device `dev`.
pub(crate) fn is_served(dev: u64, pid: u32) -> bool {
    daemons::list().iter().any(|daemon| serves(daemon.dev, &daemon.hello, dev, pid))
}

/// The kernel gives the number of a device that is gone to the next mount, so
/// it does not distinguish daemons.
fn serves(as_dev: u64, daemon: &Hello, dev: u64, pid: u32) -> bool {
    as_dev == dev && daemon.pid == pid && daemon.serving
}

/// The users of a volume that is not mounted at `point` any more, by daemon
/// `pid`.
pub(crate) fn notice(point: &Path, dev: u64, pid: u32) -> String {
    let users = holders::list(dev);
    let point = point.shown();
    if let Some(Holder::Mount(other)) = users.iter().find(|user| matches!(user, Holder::Mount(_))) {
        let other = other.shown();
        return format!("{point} is unmounted; the volume is mounted at {other} still\n");
    }
    format!(
        "{point} is unmounted; the volume is served by daemon {pid} as long as it is used:{}\n\
         end it for them: braid umount --force {pid}\n",
        holders::lines(&users)
    )
}

/// A line for a volume without a mount that this process could use.
pub(crate) fn unmounted(mount: &Mount) -> Option<String> {
    let mounted = mounts::list().ok()?.iter().any(|other| other.dev == mount.dev);
    let users = || holders::lines(&holders::list(mount.dev));
    (!mounted).then(|| format!("not mounted at {} any more; used by:{}\n", mount.point.shown(), users()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_mount_with_the_same_device_number_is_another() {
        let hello = |pid, serving| Hello {
            version: String::new(),
            pid,
            mountpoint: String::new(),
            serving,
            upgrade: None,
        };
        assert!(serves(0x37, &hello(7, true), 0x37, 7));
        assert!(!serves(0x37, &hello(8, true), 0x37, 7));
        assert!(!serves(0x37, &hello(7, false), 0x37, 7));
        assert!(!serves(0x38, &hello(7, true), 0x37, 7));
    }
}
