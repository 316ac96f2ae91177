//! Calls by which a process gives up rights.

use std::io;

/// Ends this process without running anything else, such as exit handlers of a library.
pub fn exit_at_once() -> ! {
    // SAFETY: it does not come back.
    unsafe { libc::_exit(0) }
}

/// Makes this process another user's, for good, with no further groups. It has one thread.
///
/// # Errors
/// If it may not.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: no memory is passed but an empty list.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: no memory is passed.
    done(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(uid, uid, uid) })
}
