//! Buffers of one extent each, which objects hold: data that is not on the device
//! yet, and ends of objects that may go on. Their number is bounded, but for those
//! that threads are about to use.

use braid_sys::AlignedBuf;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The buffers of a store.
pub(super) struct Buffers<T> {
    extent: usize,
    most: usize,
    pool: Mutex<Pool<T>>,
}

struct Pool<T> {
    free: Vec<AlignedBuf>,
    /// Buffers that exist.
    made: usize,
    /// Their owners, each with its extent, the one that got it first at the front.
    held: VecDeque<(Weak<T>, u64)>,
}

/// A buffer, or whose is to be given back.
pub(super) enum Taken<T> {
    /// A buffer.
    Buffer(AlignedBuf),
    /// All are in use: that of this extent of an object was given out longest ago.
    Held(Arc<T>, u64),
}

impl<T> Buffers<T> {
    /// At most so many buffers, at least one, of `extent` bytes.
    pub(super) fn new(extent: usize, most: usize) -> Self {
        let pool = Pool { free: Vec::new(), made: 0, held: VecDeque::new() };
        Self { extent, most: most.max(1), pool: Mutex::new(pool) }
    }

    /// Most that objects hold.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes a buffer, with left-over contents.
    pub(super) fn take(&self) -> Taken<T> {
        let mut pool = self.pool.lock();
        if let Some(buf) = pool.free.pop() {
            return Taken::Buffer(buf);
        }
        while pool.made >= self.most
            && let Some((object, extent)) = pool.held.pop_front()
        {
            if let Some(object) = object.upgrade() {
                // It is the last one to be asked next time.
                pool.held.push_back((Arc::downgrade(&object), extent));
                return Taken::Held(object, extent);
            }
        }
        pool.made += 1;
        let mut buf = AlignedBuf::new();
        buf.bytes(self.extent);
        Taken::Buffer(buf)
    }

    /// An extent of an object has got a buffer.
    pub(super) fn note_held(&self, object: &Arc<T>, extent: u64) {
        self.pool.lock().held.push_back((Arc::downgrade(object), extent));
    }

    /// Gives back a buffer that no object holds.
    pub(super) fn put(&self, buf: AlignedBuf) {
        self.pool.lock().free.push(buf);
    }

    /// Gives back the buffer of an extent.
    pub(super) fn give_back(&self, object: &T, extent: u64, buf: AlignedBuf) {
        let mut pool = self.pool.lock();
        let is_it = |(holder, of): &(Weak<T>, u64)| *of == extent && std::ptr::eq(holder.as_ptr(), object);
        if let Some(at) = pool.held.iter().position(is_it) {
            pool.held.remove(at);
        }
        pool.free.push(buf);
    }

    /// Bytes of memory that the buffers take.
    pub(super) fn memory(&self) -> u64 {
        (self.pool.lock().made * self.extent) as u64
    }
}
