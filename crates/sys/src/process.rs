//! Whether another process is still running.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsRawFd, OwnedFd};

/// The start time of a process, in the clock ticks of `/proc`: together with
/// the process id, it is unique. `None` if there is no such process.
#[must_use]
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The names of a thread's process and of the thread, at most 15 bytes each; `None`
/// if there is no such thread.
#[must_use]
pub fn task_names(tid: u32) -> Option<(String, String)> {
    let name = |id: u32| {
        let name = std::fs::read(format!("/proc/{id}/comm")).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
    };
    let thread = name(tid)?;
    let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
    // The name comes first, and has no line breaks as they are.
    let process = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"))?;
    let process: u32 = std::str::from_utf8(process).ok()?.trim().parse().ok()?;
    let program = if process == tid { thread.clone() } else { name(process)? };
    Some((program, thread))
}

/// Whether the process with this start time still has a thread. An ended
/// process that its parent has not waited for has none. If unknown, it counts
/// as running.
#[must_use]
pub fn is_running(pid: u32, start: u64) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let process = match pidfd_open(id, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => return error != Errno::SRCH,
    };
    // Checked while the descriptor keeps the id from being reused.
    if process_start(pid).is_some_and(|now| now != start) {
        return false;
    }
    !has_ended(&process)
}

/// A process descriptor can be read when all threads of the process are gone.
fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel writes to the one entry, which lives beyond the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_thread_has_a_name_and_that_of_its_process() {
        let own = std::thread::Builder::new().name("named".to_owned());
        let tid = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let names = own.spawn(move || task_names(tid())).unwrap().join().unwrap();
        let program = task_names(std::process::id()).unwrap().0;
        assert_eq!(names, Some((program, "named".to_owned())));
        assert_eq!(task_names(u32::MAX), None);
    }

    #[test]
    fn a_process_runs_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (pid, start) = (child.id(), process_start(child.id()).unwrap());
        assert!(is_running(pid, start));
        assert!(!is_running(pid, start + 1), "another process had the id");
        child.kill().unwrap();
        // Its output ends with it; it has not been waited for so far.
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        while is_running(pid, start) {
            std::thread::yield_now();
        }
        assert!(process_start(pid).is_some(), "its parent has not asked for its end");
        child.wait().unwrap();
        assert!(!is_running(pid, start));
    }
}
