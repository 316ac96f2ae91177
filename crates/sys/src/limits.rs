//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that the process may have open to what it is
/// allowed at most, and answers it.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Keeps programs that this process starts from inheriting any descriptor
/// beyond the standard ones, such as a lock of whoever started this process.
/// It is best effort: before Linux 5.11 nothing changes.
pub fn pass_on_no_files() {
    // SAFETY: no pointers are passed, and no descriptor is closed: each is
    // only marked to be closed by `exec`.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Size from which a block of memory is mapped by itself, in bytes: less than
/// the buffers of the front end's threads, more than what I/O takes and gives
/// back all the time.
const MAPPED_FROM: i32 = 4 << 20;

/// Keeps the allocator from keeping large blocks: they are mapped by
/// themselves, so that fresh ones take no memory until they are written to, and
/// freed ones none at all. Left to itself, it begins to reuse them after the
/// first was freed, and clears all of those that are to be zero. To be called
/// before there are any.
pub fn map_large_blocks() {
    // SAFETY: the calls take no pointers, and change only how later requests
    // are met.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED_FROM);
    }
}

/// Gives memory that was freed back to the kernel. The allocator keeps it
/// otherwise, for a next use that may be far away.
pub fn release_free_memory() {
    // SAFETY: the call takes no pointers and is thread-safe.
    unsafe { libc::malloc_trim(0) };
}
