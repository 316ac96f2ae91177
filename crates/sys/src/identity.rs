//! The identity under which a thread creates inodes.
//!
//! A new inode gets its owner, group and mode from the thread that creates it:
//! file-system uid and gid, umask. Assuming the caller's for one call lets the
//! native file system apply its own rules (set-group-id directories, default
//! ACLs, quotas) atomically, unlike a creation as root with a later change of
//! owner.

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

/// Groups for which there is room at first.
const GROUPS_FIRST: usize = 32;

thread_local! {
    /// Whether this thread has a umask of its own.
    static OWN_UMASK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the process may act for other users.
#[must_use]
pub fn is_privileged() -> bool {
    geteuid().is_root()
}

/// The supplementary groups of a thread or process; `None` if this id is not
/// visible.
#[must_use]
pub fn groups_of(tid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    groups.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// The supplementary groups of the process at the other end of a UNIX socket, as they were
/// when it connected.
///
/// # Errors
/// Those of the system call.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS_FIRST];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(&groups[..])).unwrap_or(libc::socklen_t::MAX);
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel writes at most `bytes` bytes, which the buffer has, and how
        // many there are; both outlive the call.
        let done = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // The kernel says how many there are.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// The time in which a thread acts for another user; ends when dropped.
#[must_use = "the identity lasts as long as this value"]
#[derive(Debug)]
pub struct Acting {
    switched: bool,
    /// The identity belongs to the thread, so the value must not leave it.
    not_send: PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        umask(Mode::from_raw_mode(0o077));
        if self.switched {
            set_file_system_ids(0, 0);
        }
    }
}

/// Makes the calling thread create inodes as `uid` and `gid` with the given
/// umask, until the result is dropped.
///
/// The thread keeps its capabilities: the front end's kernel has already
/// checked the caller's permissions, with supplementary groups that are unknown
/// here. In an unprivileged process only the umask is set, as there is one user
/// only.
///
/// # Errors
/// If the kernel refuses, which does not happen to root.
pub fn act_as(uid: u32, gid: u32, mask: u32) -> io::Result<Acting> {
    set_thread_umask(mask)?;
    let switch = is_privileged() && (uid != 0 || gid != 0);
    let acting = Acting { switched: switch, not_send: PhantomData };
    if switch {
        let sets: CapabilitySets = capabilities(None)?;
        set_file_system_ids(uid, gid);
        // Leaving uid 0 removed the file capabilities from the effective set.
        set_capabilities(None, sets)?;
    }
    Ok(acting)
}

/// Sets the umask of this thread alone.
fn set_thread_umask(mask: u32) -> io::Result<()> {
    if !OWN_UMASK.get() {
        // SAFETY: unsharing `CLONE_FS` gives this thread its own umask, root
        // and working directory. Nothing in Braid relies on their being shared:
        // the working directory is set before threads start.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
        OWN_UMASK.set(true);
    }
    umask(Mode::from_raw_mode(mask & 0o777));
    Ok(())
}

fn set_file_system_ids(uid: u32, gid: u32) {
    // SAFETY: plain system calls without pointers; they change the calling
    // thread only (glibc does not broadcast them) and can't fail for root.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn groups_are_those_of_the_kernel() {
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(rustix::process::Gid::as_raw).collect();
        let mut found = groups_of(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
        groups.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, groups);
        assert_eq!(groups_of(0), None);
    }

    #[test]
    fn groups_of_a_peer_are_those_of_its_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(rustix::process::Gid::as_raw).collect();
        let mut found = peer_groups(&one).unwrap();
        groups.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, groups);
        assert!(peer_groups(std::fs::File::open("/").unwrap()).is_err());
    }

    #[test]
    fn inodes_belong_to_whom_the_thread_acts_for() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let me = geteuid().as_raw();
        let (uid, gid) =
            if is_privileged() { (12345, 54321) } else { (me, rustix::process::getegid().as_raw()) };
        {
            let _acting = act_as(uid, gid, 0o027).unwrap();
            // The other user has no access to the directory: capabilities stay.
            std::fs::write(dir.path().join("theirs"), "").unwrap();
        }
        std::fs::write(dir.path().join("mine"), "").unwrap();
        let theirs = std::fs::metadata(dir.path().join("theirs")).unwrap();
        assert_eq!((theirs.uid(), theirs.gid(), theirs.mode() & 0o777), (uid, gid, 0o640));
        assert_eq!(std::fs::metadata(dir.path().join("mine")).unwrap().uid(), me);
    }
}
