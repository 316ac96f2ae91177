//! One entry of a queue by which the kernel hands FUSE requests over through
//! io_uring (Linux 6.14).
//!
//! A queue belongs to a processor: requests of programs that run there come by
//! it, and the thread that serves it stays there too. A [`FuseRing`] is one
//! entry of a queue with an io_uring of its own, for one thread: a single system
//! call hands the reply over and waits for the next request.

use crate::ring_area::{RingArea, Slot};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;

/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;

/// `sizeof(struct fuse_in_header)`.
const IN_HEADER: usize = 40;

/// `sizeof(struct fuse_out_header)`.
const OUT_HEADER: usize = 16;

/// `FUSE_URING_IN_OUT_HEADER_SZ` and `FUSE_URING_OP_IN_OUT_SZ`: the sizes of the
/// parts that the kernel fills before the payload.
const HEADER_ROOM: usize = 128;

/// Requests up to this size are copied before they are served, which leaves
/// the payload's memory for a reply of any size. The reply to a larger one is
/// copied instead.
const COPIED_MAX: usize = 8 << 10;

/// A page before the payload, so that a request lies in one piece: header and
/// arguments directly before its data.
const ROOM_BEFORE: usize = 4096;

/// The kernel's `struct fuse_uring_req_header`.
#[repr(C)]
struct Headers {
    in_out: [u8; HEADER_ROOM],
    op_in: [u8; HEADER_ROOM],
    flags: u64,
    commit_id: u64,
    payload_size: u32,
    padding: u32,
    reserved: u64,
}

/// The kernel's `struct fuse_uring_cmd_req`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

/// Marks the completion that is no request.
const WAKE: u64 = 1;

/// The reason why there is no next request.
#[derive(Debug)]
pub enum RingEnd {
    /// The descriptor that wakes is readable. There may be a request later.
    Woken,
    /// The kernel does not take this entry.
    Refused(io::Error),
    /// The session is over, by this error.
    Over(io::Error),
}

/// Takes the replies of one [`FuseRing`], from any thread.
#[derive(Debug)]
pub struct RingReply {
    memory: Arc<Memory>,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug)]
enum State {
    /// The kernel has the entry.
    Idle,
    /// A request is served; whether its data is still in the payload's memory,
    /// and whether its thread waits for the reply.
    Served { in_place: bool, awaited: bool },
    /// The reply: header, size of the payload, and the payload itself if it is
    /// not in its memory yet.
    Filled { header: [u8; OUT_HEADER], size: u32, payload: Vec<u8> },
}

/// Memory that is shared with the kernel: [`Headers`] at the start of a page,
/// then [`ROOM_BEFORE`], then the payload.
#[derive(Debug)]
struct Memory(Slot);

/// One entry of a queue.
pub struct FuseRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: OwnedFd,
    queue: u16,
    memory: Arc<Memory>,
    reply: Arc<RingReply>,
    /// The kernel reads it while the entry is registered.
    vectors: Box<[libc::iovec; 2]>,
    registered: bool,
    /// The kernel has the entry.
    given: bool,
    request: Vec<u64>,
}

// SAFETY: the pointers of `vectors` lead to `memory`, which the ring owns too
// and which stays where it is.
unsafe impl Send for FuseRing {}

impl Memory {
    fn headers(&self) -> *mut Headers {
        self.0.start().cast()
    }

    fn payload(&self) -> *mut u8 {
        // SAFETY: a slot is longer than that.
        unsafe { self.0.start().add(2 * ROOM_BEFORE) }
    }

    /// Most bytes of a payload.
    fn room(&self) -> usize {
        self.0.len().saturating_sub(2 * ROOM_BEFORE)
    }
}

impl RingReply {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reply, with its header first.
    ///
    /// # Errors
    /// `EINVAL` if it is too short or too long, or if no request is served.
    pub fn fill(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let mut state = self.lock();
        let State::Served { in_place, awaited } = *state else { return Err(invalid()) };
        let (first, rest) = parts.split_first().ok_or_else(invalid)?;
        let (header, first) = first.split_first_chunk::<OUT_HEADER>().ok_or_else(invalid)?;
        let parts = || std::iter::once(first).chain(rest.iter().map(|part| &**part));
        let size: usize = parts().map(<[u8]>::len).sum();
        if size > self.memory.room() {
            return Err(invalid());
        }
        let mut payload = Vec::new();
        if in_place {
            payload.reserve_exact(size);
            parts().for_each(|part| payload.extend_from_slice(part));
        } else {
            let mut at = 0;
            for part in parts() {
                // SAFETY: `size` bytes fit. No reference leads to this memory
                // while a copied request is served, and only the holder of
                // the lock writes to it.
                unsafe { self.memory.payload().add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                at += part.len();
            }
        }
        *state = State::Filled { header: *header, size: size as u32, payload };
        // Most requests are answered by the thread that took them.
        if awaited {
            self.filled.notify_one();
        }
        Ok(())
    }
}

/// An io_uring for one entry, of the thread that calls this. A flag in its memory says that
/// something came.
fn make_ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(2)
}

impl FuseRing {
    /// A ring for an entry of the queue of processor `queue`, whose memory is slot
    /// `slot` of the area. The thread that makes it is the one that uses it.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no memory for it. `EINVAL` if there is no such slot,
    /// or it is in use.
    pub fn new(device: impl AsFd, queue: u16, area: &Arc<RingArea>, slot: usize) -> io::Result<Self> {
        let ring = make_ring()?;
        let slot = area.take(slot).filter(|slot| slot.len() > 2 * ROOM_BEFORE);
        let slot = slot.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let memory = Arc::new(Memory(slot));
        let state = Mutex::new(State::Idle);
        let reply = Arc::new(RingReply { memory: Arc::clone(&memory), state, filled: Condvar::new() });
        let vectors = Box::new([
            libc::iovec { iov_base: memory.headers().cast(), iov_len: size_of::<Headers>() },
            libc::iovec { iov_base: memory.payload().cast(), iov_len: memory.room() },
        ]);
        let device = device.as_fd().try_clone_to_owned()?;
        let request = Vec::new();
        Ok(Self { ring, device, queue, memory, reply, vectors, registered: false, given: false, request })
    }

    /// Has a thread that waits for a request wake when `descriptor`, which outlives the
    /// ring, gets readable.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn wake_by(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(descriptor.as_raw_fd()), libc::POLLIN as u32);
        let entry: squeue::Entry128 = poll.multi(true).build().user_data(WAKE).into();
        // SAFETY: nothing is read or written by it; a descriptor that is closed is no
        // matter of memory.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.ring.submit().map(drop)
    }

    /// The length of a slot for payloads up to `payload` bytes.
    #[must_use]
    pub fn slot_len(payload: usize) -> usize {
        2 * ROOM_BEFORE + payload
    }

    /// The entry was another process's, which got a request and left it: the kernel waits
    /// for the reply. Returns that request.
    pub fn adopt(&mut self) -> &[u8] {
        self.registered = true;
        self.request()
    }

    /// The last request, to be served. It begins with its header and is aligned to 8
    /// bytes.
    pub fn last_request(&mut self) -> &[u8] {
        self.request()
    }

    /// Whether the kernel lets this process make such rings.
    #[must_use]
    pub fn can_be_made() -> bool {
        make_ring().is_ok()
    }

    /// The place for replies.
    #[must_use]
    pub fn reply(&self) -> Arc<RingReply> {
        Arc::clone(&self.reply)
    }

    /// Hands over the reply to the last request, once it is there, and waits for
    /// the next, which is the [last](Self::last_request) then.
    ///
    /// # Errors
    /// There is no next request.
    pub fn next_request(&mut self) -> Result<(), RingEnd> {
        self.give_reply()?;
        match self.wait() {
            Ok(true) => {
                self.registered = true;
                Ok(())
            }
            Ok(false) => Err(RingEnd::Woken),
            Err(error) if self.registered => Err(RingEnd::Over(error)),
            Err(error) => Err(RingEnd::Refused(error)),
        }
    }

    /// Hands over the reply to the last request, once it is there, and does not wait for the
    /// next.
    ///
    /// # Errors
    /// The entry can't be given to the kernel, and there is no next request. What the kernel
    /// says of an entry, [`next_request`](Self::next_request) says.
    pub fn hand_over(&mut self) -> Result<(), RingEnd> {
        self.give_reply()?;
        // If there is no memory at present, the next call does it.
        let _ = self.ring.submit();
        Ok(())
    }

    /// Whether [`next_request`](Self::next_request) would not wait.
    pub fn is_ready(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Gives the entry to the kernel, with the reply to the last request if there was one,
    /// unless the kernel has it.
    fn give_reply(&mut self) -> Result<(), RingEnd> {
        if self.given {
            return Ok(());
        }
        if self.registered {
            self.take_reply();
        }
        self.give(if self.registered { COMMIT_AND_FETCH } else { REGISTER }).map_err(RingEnd::Over)
    }

    /// Has the kernel do without rings: it holds requests back until each
    /// processor's queue has an entry.
    pub fn refuse(mut self) {
        self.queue = u16::MAX;
        let _ = self.give(REGISTER).and_then(|()| self.wait());
    }

    /// Waits for the reply, and puts it where the kernel looks for it.
    fn take_reply(&self) {
        let mut state = self.reply.lock();
        let (header, size, payload) = loop {
            match std::mem::replace(&mut *state, State::Idle) {
                State::Filled { header, size, payload } => break (header, size, payload),
                State::Served { in_place, .. } => *state = State::Served { in_place, awaited: true },
                State::Idle => {}
            }
            state = self.reply.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        // SAFETY: nothing else uses the memory until the entry is handed over;
        // `fill` saw that the payload fits.
        unsafe {
            let headers = self.memory.headers();
            (&raw mut (*headers).in_out).cast::<[u8; OUT_HEADER]>().write(header);
            (&raw mut (*headers).payload_size).write(size);
            self.memory.payload().copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
    }

    /// Gives the entry to the kernel.
    fn give(&mut self, operation: u32) -> io::Result<()> {
        // SAFETY: the entry is not the kernel's at present.
        let commit_id = unsafe { (&raw const (*self.memory.headers()).commit_id).read() };
        let command = Command { flags: 0, commit_id, queue: self.queue, padding: [0; 6] };
        let mut bytes = [0; 80];
        // SAFETY: a plain value of 24 bytes, at the start of 80.
        unsafe { bytes.as_mut_ptr().cast::<Command>().write_unaligned(command) };
        let device = types::Fd(self.device.as_raw_fd());
        let mut entry = opcode::UringCmd80::new(device, operation).cmd(bytes).build();
        // The library has no setter for `addr` and `len`, which lead to the
        // two parts of the entry's memory.
        // SAFETY: it is the kernel's `struct io_uring_sqe` and the 64 bytes after
        // it, where they are at these places.
        unsafe {
            let raw = (&raw mut entry).cast::<u8>();
            raw.add(16).cast::<u64>().write_unaligned(self.vectors.as_ptr().addr() as u64);
            raw.add(24).cast::<u32>().write_unaligned(self.vectors.len() as u32);
        }
        // SAFETY: device, vectors and memory outlive the ring, which is dropped
        // first: the kernel then gives the entry up.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.given = true;
        Ok(())
    }

    /// Waits until the entry comes back with a request; returns `false` if this was woken
    /// before.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.ring.submit_and_wait(1) {
                // Without memory at present: there is nothing to wait for but
                // the next try.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) =>
                {
                    std::thread::yield_now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => drop(result?),
            }
            let mut woken = false;
            for done in self.ring.completion() {
                if done.user_data() == WAKE {
                    woken = true;
                    continue;
                }
                self.given = false;
                return match done.result() {
                    0.. => Ok(true),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
            }
            if woken {
                return Ok(false);
            }
        }
    }

    /// The request that came, in one piece.
    fn request(&mut self) -> &[u8] {
        // SAFETY: the entry is ours until it is handed over.
        let (in_header, op_in, op_size, size) = unsafe {
            let headers = self.memory.headers();
            let len = (&raw const (*headers).in_out).cast::<u32>().read();
            let size = ((&raw const (*headers).payload_size).read() as usize).min(self.memory.room());
            let op_size = (len as usize).saturating_sub(IN_HEADER + size).min(HEADER_ROOM);
            (
                (&raw const (*headers).in_out).cast::<u8>(),
                (&raw const (*headers).op_in).cast::<u8>(),
                op_size,
                size,
            )
        };
        let len = IN_HEADER + op_size + size;
        let in_place = len > COPIED_MAX;
        *self.reply.lock() = State::Served { in_place, awaited: false };
        let start: *mut u8 = if in_place {
            // SAFETY: there is a page before the payload, which nothing uses.
            unsafe { self.memory.payload().sub(IN_HEADER + op_size) }
        } else {
            self.request.resize(COPIED_MAX / 8, 0);
            self.request.as_mut_ptr().cast()
        };
        // SAFETY: the parts were written by the kernel and lie apart from their
        // targets, of which there are `len` bytes. The result borrows `self`, which hands the
        // memory over only when it is borrowed anew; a reply does not use the payload's memory
        // while the request is in it.
        unsafe {
            start.copy_from_nonoverlapping(in_header, IN_HEADER);
            start.add(IN_HEADER).copy_from_nonoverlapping(op_in, op_size);
            if !in_place {
                start.add(IN_HEADER + op_size).copy_from_nonoverlapping(self.memory.payload(), size);
            }
            std::slice::from_raw_parts(start, len)
        }
    }
}
