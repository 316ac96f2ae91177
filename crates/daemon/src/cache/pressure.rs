//! The cache gives memory back when the machine, or the daemon's cgroup, is short of it.
//! The kernel reports it (PSI); while it stays silent, the cache takes memory again.

use braid_stores::cache::CacheMemory;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Some task waited for memory for 100 of 2,000 ms. Shorter windows are for root only; the kernel
/// takes the last byte as the end.
const TRIGGER: &[u8] = b"some 100000 2000000\0";
/// The cache keeps one byte in this many, however short memory is.
const FLOOR: u64 = 16;
/// Seconds of silence after which the cache takes some memory again.
const SILENCE_S: i64 = 10;

/// Watches the kernel's reports as long as it exists.
pub(super) struct Watch {
    over: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins; `None` if the kernel has no such reports.
    pub(super) fn begin(memory: &Arc<CacheMemory>, budget: u64) -> Option<Self> {
        let trigger = open_trigger()?;
        let over = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).ok()?);
        let (memory, stop) = (Arc::clone(memory), Arc::clone(&over));
        let thread = std::thread::Builder::new().name("cache".into());
        let thread = thread.spawn(move || watch(&memory, budget, &trigger, &stop));
        Some(Self { over, thread: Some(thread.ok()?) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.over, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && told.is_ok()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the pressure on memory panicked");
        }
    }
}

/// The kernel's reports on the daemon's cgroup, or else on the machine.
fn open_trigger() -> Option<File> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let of_group = group.filter(|group| !group.is_empty());
    let of_group = of_group.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.pressure"));
    let places = of_group.into_iter().chain([Path::new("/proc/pressure/memory").to_owned()]);
    let armed = |path: &std::path::PathBuf| {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(TRIGGER).map(|()| file)
    };
    let opened = places.map(|path| armed(&path)).find_map(|file| {
        file.inspect_err(|error| tracing::debug!(%error, "the kernel does not tell of pressure on memory"))
            .ok()
    });
    if opened.is_none() {
        tracing::info!("the cache keeps its memory: the kernel does not tell when it is short");
    }
    opened
}

fn watch(memory: &CacheMemory, budget: u64, trigger: &File, over: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(trigger, PollFlags::PRI), PollFd::new(over, PollFlags::IN)];
        let silence = Timespec { tv_sec: SILENCE_S, tv_nsec: 0 };
        let is_less = memory.budget() < budget;
        match poll(&mut fds, is_less.then_some(&silence)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return tracing::warn!(%error, "pressure on memory is not watched any more"),
            Ok(_) if !fds[1].revents().is_empty() => return,
            Ok(0) => memory.set_budget(after_silence(memory.budget(), budget)),
            // The group is gone.
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => return,
            Ok(_) => {
                let less = under_pressure(memory.budget(), budget);
                tracing::info!(bytes = less, "memory is short: the cache gives some back");
                memory.set_budget(less);
            }
        }
    }
}

fn under_pressure(now: u64, budget: u64) -> u64 {
    (now / 2).max(budget / FLOOR).max(1)
}

fn after_silence(now: u64, budget: u64) -> u64 {
    (now + budget / 8).min(budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_by_halves_and_comes_again() {
        let mut now = 1 << 30;
        let given: Vec<u64> = (0..6)
            .map(|_| {
                now = under_pressure(now, 1 << 30);
                now >> 20
            })
            .collect();
        assert_eq!(given, [512, 256, 128, 64, 64, 64]);
        for _ in 0..8 {
            now = after_silence(now, 1 << 30);
        }
        assert_eq!(now, 1 << 30);
        assert_eq!(under_pressure(1, 1), 1, "0 would be off");
    }

    #[test]
    fn the_watch_ends_when_it_is_dropped() {
        let memory = CacheMemory::new(4096);
        memory.set_budget(1 << 20);
        drop(Watch::begin(&memory, 1 << 20));
        assert_eq!(memory.budget(), 1 << 20);
    }
}
