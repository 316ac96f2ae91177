//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the maximum allowed for the process, and
/// returns it.
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

/// Sets the allocator up for a daemon of many threads; to be called before
/// others are started.
///
/// It maps large blocks on their own, so that fresh ones take no memory until
/// they are written to, and freed ones none at all: by default, it begins to
/// reuse them after the first was freed, and clears those that have to be zero.
///
/// It has no more arenas than processors, and eight at most. By default there
/// are eight for each processor, and memory that one thread allocates and
/// another frees, as with inodes, leaves holes in all of them.
pub fn set_up_allocator() {
    let processors = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    // SAFETY: the calls take no pointers, and change only how later requests
    // are met.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, processors as i32);
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
