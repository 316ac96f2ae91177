//! Mounting and unmounting: by system call where that is permitted, by the
//! set-user-id helper `fusermount3` otherwise. Used by `session`.
//!
//! The library could mount too, but it forgets how to unmount when the first
//! try finds the file system busy, and unmounts the path once more when a
//! session has ended, whatever is mounted there.

use braid_contract::{AccessTimes, Renewal, Shown};
use braid_sys::receive_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::{Errno as Os, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getgid, getuid};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const DEVICE: &str = "/dev/fuse";
const TYPE: &str = "fuse.braid";
const HELPER: &str = "fusermount3";

/// Names the descriptor that the helper answers on.
const HELPER_SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Options that mean the same for every mount: the flags that each sets, and
/// those that it clears.
const GENERIC: &[(&str, MountFlags, MountFlags)] = &[
    ("ro", MountFlags::RDONLY, MountFlags::empty()),
    ("rw", MountFlags::empty(), MountFlags::RDONLY),
    ("noexec", MountFlags::NOEXEC, MountFlags::empty()),
    ("exec", MountFlags::empty(), MountFlags::NOEXEC),
    ("nosuid", MountFlags::NOSUID, MountFlags::empty()),
    ("suid", MountFlags::empty(), MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV, MountFlags::empty()),
    ("dev", MountFlags::empty(), MountFlags::NODEV),
    ("noatime", MountFlags::NOATIME, ATIME.difference(MountFlags::NOATIME)),
    ("atime", MountFlags::empty(), MountFlags::NOATIME),
    ("relatime", MountFlags::RELATIME, ATIME.difference(MountFlags::RELATIME)),
    ("strictatime", MountFlags::STRICTATIME, ATIME.difference(MountFlags::STRICTATIME)),
    ("nodiratime", MountFlags::NODIRATIME, MountFlags::empty()),
    ("diratime", MountFlags::empty(), MountFlags::NODIRATIME),
    ("sync", MountFlags::SYNCHRONOUS, MountFlags::empty()),
    ("async", MountFlags::empty(), MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC, MountFlags::empty()),
];

/// The flags of which a mount has one.
const ATIME: MountFlags = MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

/// Data that the kernel reads ahead of a sequential reader: two ranges of the
/// usual size, so that two tiers work in parallel. The protocol can only lower
/// the kernel's default (128 KiB).
const READ_AHEAD_KIB: u32 = 4096;

/// A FUSE mount, from outside.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    /// Device number of the mounted file system. The kernel reuses it as soon
    /// as the session is over.
    device: (u32, u32),
    /// Shows whether the session is over. `None` when the session ended on this
    /// side, so that the kernel sees the last descriptor closed.
    session: Mutex<Option<OwnedFd>>,
}

/// The entry in the mount table, and access.
pub(crate) struct Options<'a> {
    pub(crate) fs_name: &'a str,
    pub(crate) allow_other: bool,
    /// Some of [`generic_options`]; the last one of conflicting options counts.
    pub(crate) generic: &'a [String],
}

/// The options that mean the same for every mount.
pub fn generic_options() -> impl Iterator<Item = &'static str> {
    GENERIC.iter().map(|(name, ..)| *name)
}

/// Changes the generic options of a mount, as `mount -o remount` does.
///
/// # Errors
/// Those of the system call.
pub fn remount(path: &Path, generic: &[String]) -> io::Result<()> {
    rustix::mount::mount_remount(path, flags(generic), c"")
        .map_err(|error| about(path, "can't be remounted", &error.into()))
}

/// When reads are to update access times, by the generic options; `None` if
/// they do not say. The kernel does not do this by itself.
#[must_use]
pub fn access_times(generic: &[String]) -> Option<AccessTimes> {
    let says = |name: &String| {
        let known = GENERIC.iter().find(|(known, ..)| known == name);
        known.is_some_and(|(_, set, unset)| (*set | *unset).intersects(ATIME | MountFlags::NODIRATIME))
    };
    if !generic.iter().any(says) {
        return None;
    }
    let flags = flags(generic);
    let renewal = if flags.contains(MountFlags::NOATIME) {
        Renewal::Never
    } else if flags.contains(MountFlags::STRICTATIME) {
        Renewal::Always
    } else {
        Renewal::Relative
    };
    Some(AccessTimes { renewal, directories: !flags.contains(MountFlags::NODIRATIME) })
}

fn flags(generic: &[String]) -> MountFlags {
    let known = generic.iter().filter_map(|name| GENERIC.iter().find(|(known, ..)| known == name));
    known.fold(MountFlags::empty(), |flags, (_, set, unset)| flags.difference(*unset).union(*set))
}

/// Mounts at `path`; requests then arrive at the descriptor.
pub(crate) fn mount(path: &Path, options: &Options<'_>) -> io::Result<(OwnedFd, Mounted)> {
    clear_dead_mount(path)?;
    let path = path.canonicalize().map_err(|error| about(path, "can't be mounted on", &error))?;
    if !path.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a directory", path.shown()),
        ));
    }
    let fd = match mount_by_call(&path, options) {
        Err(error) if error.raw_os_error() == Some(Os::PERM.raw_os_error()) => {
            mount_by_helper(&path, options)?
        }
        result => result?,
    };
    let found = device_at(&path).and_then(|device| Ok((device, fd.try_clone()?)));
    match found {
        Ok((device, session)) => Ok((fd, Mounted { path, device, session: Mutex::new(Some(session)) })),
        Err(error) => {
            // Only its path is known; the session ends with `fd`.
            let _ = rustix::mount::unmount(&path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
            Err(about(&path, "was mounted on and can't be found", &error))
        }
    }
}

impl Mounted {
    /// The mount at `path`, of another process, whose session the descriptor is of. The
    /// file system is not asked: it is not served.
    pub(crate) fn resumed(path: &Path, session: OwnedFd) -> io::Result<Self> {
        let device = device_at(path).map_err(|error| about(path, "can't be found", &error))?;
        Ok(Self { path: path.to_owned(), device, session: Mutex::new(Some(session)) })
    }

    /// Unmounts. `ResourceBusy` if files are in use.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        self.unmount_with(UnmountFlags::NOFOLLOW, &["-u"])
    }

    /// Detaches the mount from its path at once; it ends when the last file in
    /// use is closed.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.unmount_with(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-z"])
    }

    fn unmount_with(&self, flags: UnmountFlags, helper_arguments: &[&str]) -> io::Result<()> {
        if !self.is_in_place()? {
            return Ok(());
        }
        match rustix::mount::unmount(&self.path, flags) {
            Ok(()) => Ok(()),
            Err(Os::PERM) => unmount_by_helper(&self.path, helper_arguments),
            Err(error) => Err(about(&self.path, "can't be unmounted", &error.into())),
        }
    }

    /// To be called when the session ended: a later mount at the path is not
    /// its own.
    pub(crate) fn session_ended(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Device number of the file system, as `st_dev`.
    pub(crate) fn device_number(&self) -> u64 {
        rustix::fs::makedev(self.device.0, self.device.1)
    }

    /// Whether the session is over, on this side or the kernel's.
    pub(crate) fn is_over(&self) -> io::Result<bool> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = &*session else { return Ok(true) };
        is_hung_up(session, Timespec::default())
    }

    /// Waits for the end of the session; answers whether it came in time.
    pub(crate) fn wait(&self, patience: Timespec) -> io::Result<bool> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        // The original is closed when the session ends on this side; the copy
        // for waiting must not keep the session alive, so it is closed as soon
        // as the kernel hangs up.
        let Some(copy) = session.as_ref().map(OwnedFd::try_clone).transpose()? else { return Ok(true) };
        drop(session);
        is_hung_up(&copy, patience)
    }

    /// Whether the mount is there to be unmounted: not if another process did
    /// so already, and maybe mounted something else there.
    fn is_in_place(&self) -> io::Result<bool> {
        if self.is_over()? {
            return Ok(false);
        }
        if device_at(&self.path).is_ok_and(|device| device == self.device) {
            return Ok(true);
        }
        if !self.is_in_mount_table()? {
            return Ok(false);
        }
        let text = format!("{} is covered by another mount: unmount that first", self.path.shown());
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    /// Whether the mount is at its path, and nothing covers it.
    pub(crate) fn is_on_top(&self) -> bool {
        device_at(&self.path).is_ok_and(|device| device == self.device)
    }

    fn is_in_mount_table(&self) -> io::Result<bool> {
        let device = format!("{}:{}", self.device.0, self.device.1);
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(table.lines().any(|line| line.split(' ').nth(2) == Some(device.as_str())))
    }

    /// Raises the kernel's read-ahead, where privileges allow.
    pub(crate) fn set_read_ahead(&self) {
        self.set_bdi("read_ahead_kb", READ_AHEAD_KIB.into());
    }

    /// Sets the most bytes that the kernel's cache keeps without writing them
    /// back, where privileges allow. The kernel's default is a hundredth of the
    /// limit of all file systems together.
    pub(crate) fn set_dirty_max(&self, bytes: u64) {
        self.set_bdi("max_bytes", bytes);
    }

    fn set_bdi(&self, key: &str, value: u64) {
        let file = format!("/sys/class/bdi/{}:{}/{key}", self.device.0, self.device.1);
        if let Err(error) = std::fs::write(&file, value.to_string()) {
            tracing::debug!("the kernel's default stays, {file}: {error}");
        }
    }
}

/// Whether the kernel ends a session within this time. The device reports the
/// end as an error, the only event that is waited for.
fn is_hung_up(session: &OwnedFd, patience: Timespec) -> io::Result<bool> {
    let mut fds = [PollFd::new(session, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&patience)))?;
    Ok(fds[0].revents().contains(PollFlags::ERR))
}

/// Device number of the mount at `path`, without asking the file system itself:
/// it may not be served yet, or any more.
fn device_at(path: &Path) -> io::Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Removes the mount of a dead daemon: access to it only fails, and the path
/// can't be mounted on.
fn clear_dead_mount(path: &Path) -> io::Result<()> {
    let Err(error) = path.metadata() else { return Ok(()) };
    if error.raw_os_error() != Some(Os::NOTCONN.raw_os_error()) {
        return Ok(());
    }
    tracing::warn!("{} is left over from a daemon that died: unmounting it first", path.shown());
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(Os::PERM) => unmount_by_helper(path, &["-u", "-z"]),
        result => {
            result.map_err(|error| about(path, "is a dead mount and can't be unmounted", &error.into()))
        }
    }
}

fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Mounts by system call. As root, device files and set-id programs work as on
/// a native file system; in a user namespace the kernel prevents that.
fn mount_by_call(path: &Path, options: &Options<'_>) -> io::Result<OwnedFd> {
    let device = match open_device() {
        Ok(device) => device,
        // The helper may have privileges that this process lacks.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !getuid().is_root() => {
            return Err(Os::PERM.into());
        }
        Err(error) => return Err(device_error(&error)),
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    match rustix::mount::mount(options.fs_name, path, TYPE, flags(options.generic), data.as_c_str()) {
        Ok(()) => Ok(device.into()),
        Err(Os::PERM) => Err(Os::PERM.into()),
        Err(error) => Err(about(path, "can't be mounted on", &error.into())),
    }
}

fn device_error(error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            "load the kernel module (modprobe fuse), or pass the device to the container"
        }
        _ => "check its permissions; a container has to be allowed to use it",
    };
    io::Error::new(error.kind(), format!("{DEVICE} can't be opened: {error}; {advice}"))
}

/// Mounts by the helper, which passes the session's descriptor back.
fn mount_by_helper(path: &Path, options: &Options<'_>) -> io::Result<OwnedFd> {
    let mut text = format!(
        "fsname={},subtype=braid,default_permissions",
        options.fs_name.replace('\\', "\\\\").replace(',', "\\,")
    );
    if options.allow_other {
        text.push_str(",allow_other");
    }
    for name in options.generic {
        text.push(',');
        text.push_str(name);
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let child = Command::new(HELPER)
        .args(["-o", &text, "--"])
        .arg(path)
        .env(HELPER_SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| helper_error(&error))?;
    drop(theirs);
    let received = receive_descriptors(&ours, 1);
    drop(ours);
    let output = child.wait_with_output()?;
    match received.ok().and_then(|mut received| received.pop()) {
        Some(fd) if output.status.success() => Ok(fd),
        _ => Err(helper_failed(&output.stderr)),
    }
}

fn helper_error(error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "install the package fuse3, or run as root",
        _ => "check that it can be executed",
    };
    io::Error::new(error.kind(), format!("mounting without privileges needs {HELPER}: {error}; {advice}"))
}

fn helper_failed(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    let advice = if text.contains("user_allow_other") {
        "; add the line user_allow_other to /etc/fuse.conf, or mount for yourself only"
    } else if text.contains("failed to open") {
        "; the device has to be readable and writable for users (chmod 666)"
    } else if text.contains("peration not permitted") {
        "; check that it is set-user-id root, and that the mount point is yours"
    } else {
        ""
    };
    let text = if text.is_empty() { format!("{HELPER} failed without a message") } else { text.to_owned() };
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{text}{advice}"))
}

fn unmount_by_helper(path: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(HELPER)
        .args(arguments)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| helper_error(&error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let kind =
        if text.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, text.trim().to_owned()))
}

fn about(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} {what}: {error}", path.shown()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_helper_messages_advise() {
        let text = helper_failed(
            b"fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n",
        )
        .to_string();
        assert!(text.contains("add the line user_allow_other to /etc/fuse.conf"), "{text}");
        assert!(helper_failed(b"").to_string().contains("without a message"));
        let text = helper_error(&io::ErrorKind::NotFound.into()).to_string();
        assert!(text.contains("install the package fuse3"), "{text}");
    }

    #[test]
    fn of_options_the_last_that_says_something_of_a_matter_counts() {
        let of = |text: &str| flags(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("ro,noexec,nosuid,rw"), MountFlags::NOEXEC | MountFlags::NOSUID);
        assert_eq!(of("noatime,relatime"), MountFlags::RELATIME);
        assert_eq!(of("strictatime,noatime,sync"), MountFlags::NOATIME | MountFlags::SYNCHRONOUS);
        assert_eq!(of("what"), MountFlags::empty());
    }

    #[test]
    fn options_say_when_access_times_are_renewed() {
        let of = |options: &str| access_times(&options.split(',').map(str::to_owned).collect::<Vec<_>>());
        let times = |renewal, directories| Some(AccessTimes { renewal, directories });
        assert_eq!(of("ro,noexec"), None);
        assert_eq!(of("noatime,ro"), times(Renewal::Never, true));
        assert_eq!(of("noatime,strictatime"), times(Renewal::Always, true));
        assert_eq!(of("noatime,atime"), times(Renewal::Relative, true));
        assert_eq!(of("nodiratime"), times(Renewal::Relative, false));
    }

    #[test]
    fn a_place_that_is_no_directory_is_refused() {
        let options = Options { fs_name: "test", allow_other: false, generic: &[] };
        let missing = mount(Path::new("/nonexistent/place"), &options).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("/nonexistent/place"), "{missing}");
        let file = mount(Path::new("/proc/self/exe"), &options).unwrap_err();
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    }
}
