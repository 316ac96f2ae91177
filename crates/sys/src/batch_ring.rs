//! An io_uring whose entries are submitted together and awaited together, as those of
//! [commands](crate::nvme_ring) and [transfers](crate::file_ring) are.

use io_uring::{IoUring, cqueue, squeue};
use std::io;
use std::time::Duration;

/// How often entries are tried that the kernel does not take or get to, as when it is short of
/// memory.
pub(crate) const ATTEMPTS_MAX: usize = 1000;
/// The time until the next attempt.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(2);

/// A ring that one thread uses at a time.
pub(crate) struct BatchRing<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    ring: IoUring<S, C>,
    depth: usize,
    /// Entries of a failed call may still be in it.
    has_failed: bool,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> std::fmt::Debug for BatchRing<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchRing").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker + Into<cqueue::Entry>> BatchRing<S, C> {
    /// A ring for up to `depth` entries at a time.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no memory for it.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        let ring = IoUring::<S, C>::builder().build(depth)?;
        Ok(Self { ring, depth: depth as usize, has_failed: false })
    }

    /// How many entries it has.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether it can be used: no call has failed as a whole.
    pub(crate) fn is_usable(&self) -> bool {
        !self.has_failed
    }

    /// Submits entries, at most as many as the ring has, and waits for all; returns the number
    /// (`user_data`) and the result of each.
    ///
    /// # Safety
    /// The memory and the descriptors that the entries lead to stay, and are the kernel's, until
    /// this returns. Then the kernel has none of the entries any more.
    ///
    /// # Errors
    /// The kernel could not take them, and the ring can't be used again.
    pub(crate) unsafe fn submit(&mut self, entries: &[S]) -> io::Result<Vec<(u64, i32)>> {
        if std::mem::replace(&mut self.has_failed, true) {
            return Err(rustix::io::Errno::BADFD.into());
        }
        // SAFETY: the caller's promise; this returns when all are done.
        let pushed = unsafe { self.ring.submission().push_multiple(entries) };
        pushed.map_err(|_| io::Error::from(rustix::io::Errno::BUSY))?;
        let (mut results, mut attempts) = (Vec::new(), 0);
        while results.len() < entries.len() {
            let left = entries.len() - results.len();
            let waited = self.ring.submit_and_wait(left);
            let done = self.ring.completion().map(Into::into);
            results.extend(done.map(|entry: cqueue::Entry| (entry.user_data(), entry.result())));
            let Err(error) = waited else { continue };
            attempts += 1;
            let may_pass = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY));
            // Unless the kernel has some of them, none will be done: the ring is not used again.
            if self.ring.submission().len() == left && !(may_pass && attempts < ATTEMPTS_MAX) {
                return Err(error);
            }
            if error.kind() != io::ErrorKind::Interrupted {
                std::thread::sleep(RETRY_DELAY);
            }
        }
        self.has_failed = false;
        Ok(results)
    }

    /// Whether nothing is in it.
    #[cfg(test)]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.ring.completion().is_empty() && self.ring.submission().is_empty()
    }
}
