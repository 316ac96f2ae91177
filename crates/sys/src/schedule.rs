//! How soon a thread gets a processor that others use.

use rustix::process::{getpid, getpriority_process, setpriority_process};
use std::io;

/// Time that a thread in a hurry asks for at once, in nanoseconds: the kernel's least. A thread
/// that asks for less may interrupt one that asked for more (Linux 6.12).
const SHORT_SLICE_NS: u64 = 100_000;

/// How much lower the nice value of a thread in a hurry is than that of the process.
const HURRIED: i32 = 10;
/// The lowest nice value.
const LOWEST: i32 = -20;

/// `struct sched_attr` of the kernel, in its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Has the calling thread get a processor soon when it is woken, or as any other again. Anything
/// that this process may not do, or the kernel can't, is left out.
pub fn hurry(hurry: bool) {
    let usual = getpriority_process(Some(getpid())).unwrap_or(0);
    // An older kernel takes no such wish, and the other may need a privilege.
    let _ = ask(if hurry { SHORT_SLICE_NS } else { 0 }, usual);
    let _ = setpriority_process(
        Some(rustix::thread::gettid()),
        if hurry { (usual - HURRIED).max(LOWEST) } else { usual },
    );
}

fn ask(runtime: u64, nice: i32) -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes at the pointer, during the call; thread 0 is the
    // calling one.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_hurries_and_goes_on_as_before() {
        std::thread::spawn(|| {
            let nice = || getpriority_process(Some(rustix::thread::gettid())).unwrap();
            let before = nice();
            hurry(true);
            assert!(nice() <= before);
            ask(SHORT_SLICE_NS, before).unwrap();
            hurry(false);
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
