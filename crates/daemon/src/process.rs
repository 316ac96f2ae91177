//! Processes in `/proc`: the daemon itself, for metrics, and the programs of
//! the busiest threads.

use rustix::process::{Resource, getrlimit};
use std::fs;

/// The daemon.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    /// Since 1970.
    pub(crate) start_time_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) open_fds: u64,
    pub(crate) max_fds: u64,
    pub(crate) threads: u64,
}

impl Process {
    /// Its current state; `None` if unknown.
    pub(crate) fn look() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok()?;
        let limit = getrlimit(Resource::Nofile).current;
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        // The descriptor of the listing is included.
        let process = Self { open_fds: open_fds.saturating_sub(1), ..parse(&stat, boot)? };
        Some(Self { max_fds: limit.unwrap_or(u64::MAX), ..process })
    }
}

/// Parses the kernel's `stat` of a process (`proc_pid_stat(5)`), on a machine
/// booted at this time.
fn parse(stat: &str, boot: u64) -> Option<Process> {
    // The name may contain blanks and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // The first remaining field is the third in the manual.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Some(Process {
        cpu_seconds: seconds(field(14)?.checked_add(field(15)?)?),
        start_time_seconds: boot as f64 + seconds(field(22)?),
        resident_bytes: field(24)?.saturating_mul(rustix::param::page_size() as u64),
        virtual_bytes: field(23)?,
        open_fds: 0,
        max_fds: 0,
        threads: field(20)?,
    })
}

/// The kernel's name for the process of a thread; `None` if the thread is gone,
/// or can't be looked up.
pub(crate) fn program_of(thread: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim();
    let name = fs::read(format!("/proc/{process}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read_whatever_the_name_is() {
        let line = "7 (a) S 1 (b) R 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 12 0 400 8192000 300 18446744073709551615";
        let process = parse(line, 1_000_000).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert!((process.cpu_seconds - 300.0 / ticks).abs() < 1e-9);
        assert!((process.start_time_seconds - (1_000_000.0 + 400.0 / ticks)).abs() < 1e-9);
        let page = rustix::param::page_size() as u64;
        assert_eq!(
            (process.virtual_bytes, process.resident_bytes, process.threads),
            (8_192_000, 300 * page, 12)
        );
        assert!(parse("7 (a", 0).is_none());
    }

    #[test]
    fn this_process_and_its_threads_are_found() {
        let process = Process::look().unwrap();
        assert!(process.resident_bytes > 0 && process.open_fds > 2 && process.max_fds >= process.open_fds);
        let this = fs::read_to_string("/proc/self/comm").unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(program_of(thread).as_deref(), Some(this.trim_end()));
        assert_eq!(program_of(u32::MAX), None);
    }
}
