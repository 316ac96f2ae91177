//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the maximum allowed for the process, and
/// answers it.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Keeps programs started by this process from inheriting descriptors beyond
/// the standard ones, such as a lock of its parent. Best effort: before Linux
/// 5.11 this does nothing.
pub fn pass_on_no_files() {
    // SAFETY: no pointers are passed, and no descriptor is closed: each is
    // only marked to be closed by `exec`.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Size from which a block of memory gets a mapping of its own, in bytes:
/// smaller than the buffers of the front end's threads, larger than the usual
/// allocations of I/O.
const MAPPED_FROM: i32 = 4 << 20;

/// Makes the allocator map large blocks on their own, so that fresh ones take
/// no memory until they are written to, and freed ones none at all. By default,
/// it begins to reuse them after the first was freed, and clears those that
/// have to be zero. To be called before any is allocated.
pub fn map_large_blocks() {
    // SAFETY: the calls take no pointers, and change only how later requests
    // are met.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED_FROM);
    }
}

/// Returns freed memory to the kernel. The allocator otherwise keeps it for a
/// next use that may be far away.
pub fn release_free_memory() {
    // SAFETY: the call takes no pointers and is thread-safe.
    unsafe { libc::malloc_trim(0) };
}
