//! From messages to the binary interface, and back.

use super::message::{Answer, Entries, Failure, Listed, Message, Target};
use super::raw::{
    AddFn, Answers, CallFn, Capabilities, CapabilitiesFn, PASSTHROUGH, RawDirEntry, RawFileSystem, RawReply,
    RawRequest, RawSink, RawSlice,
};
use std::ffi::c_void;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The error number of a panic.
const EIO: i32 = libc::EIO;

impl RawSlice {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// The bytes are there for `'a`, if there are any, and do not change.
    pub(super) unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { slice(self.data, self.len) }
    }
}

/// # Safety
/// `len` items are there for `'a`, if there are any, and do not change.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; a length beyond all memory is the other side's breach of it.
    unsafe { std::slice::from_raw_parts(data, len) }
}

impl RawSink {
    /// A sink into `bytes`, which is to stay where it is while the sink is used.
    pub(super) fn into(bytes: &mut Vec<u8>) -> Self {
        Self { context: ptr::from_mut(bytes).cast(), put }
    }

    /// # Safety
    /// The sink is one that is in use.
    pub(super) unsafe fn give(&self, bytes: &[u8]) {
        // SAFETY: the caller's promise; the bytes are copied.
        unsafe { (self.put)(self.context, bytes.as_ptr(), bytes.len()) };
    }
}

unsafe extern "C" fn put(context: *mut c_void, data: *const u8, len: usize) {
    // SAFETY: the context is that of `RawSink::into`, whose bytes are not used elsewhere meanwhile.
    let bytes = unsafe { &mut *context.cast::<Vec<u8>>() };
    bytes.clear();
    // SAFETY: the interface asks for bytes that are there during the call.
    bytes.extend_from_slice(unsafe { slice(data, len) });
}

unsafe extern "C" fn add(context: *mut c_void, entry: *const RawDirEntry) -> i32 {
    // SAFETY: the context is that of `call`, which waits meanwhile.
    let entries = unsafe { &mut *context.cast::<&mut dyn Entries>() };
    // SAFETY: the interface asks for an entry that is there during the call.
    let entry = unsafe { &*entry };
    let listed = Listed {
        ino: entry.ino,
        next_offset: entry.next_offset,
        // SAFETY: as above.
        name: unsafe { entry.name.get() },
        kind: entry.kind,
        attributes: (entry.has_attributes != 0).then_some(entry.attributes),
        damaged: entry.damaged != 0,
    };
    i32::from(catch_unwind(AssertUnwindSafe(|| entries.add(&listed))).unwrap_or(false))
}

/// Entries at the other side of the interface.
struct RawEntries {
    context: *mut c_void,
    add: AddFn,
}

impl Entries for RawEntries {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        let raw = RawDirEntry {
            ino: entry.ino,
            next_offset: entry.next_offset,
            name: RawSlice::of(entry.name),
            kind: entry.kind,
            has_attributes: u32::from(entry.attributes.is_some()),
            damaged: u32::from(entry.damaged),
            padding: 0,
            attributes: entry.attributes.unwrap_or_default(),
        };
        // SAFETY: the request that they came with is not over.
        unsafe { (self.add)(self.context, &raw const raw) != 0 }
    }
}

/// Has a function of the interface carry out an operation.
///
/// # Safety
/// `function` and `context` belong together, and are in use.
pub(super) unsafe fn call(
    (function, context): (CallFn, *mut c_void),
    message: Message<'_>,
) -> Result<Answer, Failure> {
    let (mut bytes, mut why) = (Vec::new(), Vec::new());
    let mut entries = message.entries;
    let mut request = RawRequest {
        numbers: message.numbers,
        groups: message.groups.as_ptr(),
        group_count: message.groups.len(),
        name: RawSlice::of(message.name),
        new_name: RawSlice::of(message.new_name),
        data: RawSlice::of(message.data),
        buffer: message.buffer.as_mut_ptr(),
        buffer_len: message.buffer.len(),
        entries: entries.as_mut().map_or(ptr::null_mut(), |entries| ptr::from_mut(entries).cast()),
        add_entry: Some(add),
    };
    if request.entries.is_null() {
        request.add_entry = None;
    }
    let mut reply = RawReply {
        answers: Answers { descriptor: -1, ..Answers::default() },
        bytes: RawSink::into(&mut bytes),
        why: RawSink::into(&mut why),
    };
    // SAFETY: all pointers lead to values that live until the end of this function.
    let errno = unsafe { function(context, &raw mut request, &raw mut reply) };
    // A reply that was filled with zeros names no descriptor.
    let is_passed = reply.answers.io_mode == PASSTHROUGH && reply.answers.descriptor >= 0;
    // SAFETY: the interface says that it belongs to the receiver of the reply.
    let descriptor = is_passed.then(|| unsafe { OwnedFd::from_raw_fd(reply.answers.descriptor) });
    match errno {
        0 => Ok(Answer { answers: reply.answers, descriptor, bytes }),
        errno => {
            // Numbers of the kernel are below 4096.
            let errno = if (1..4096).contains(&errno) { errno } else { EIO };
            Err(Failure { errno, why: String::from_utf8_lossy(&why).into_owned() })
        }
    }
}

/// Has `target` carry out a request of the interface.
///
/// # Safety
/// The two pointers are to a request and a reply as the interface describes them.
pub(super) unsafe fn serve(target: &dyn Target, request: *mut RawRequest, reply: *mut RawReply) -> i32 {
    // SAFETY: the caller's promise.
    let (request, reply) = unsafe { (&mut *request, &mut *reply) };
    let mut entries = request.add_entry.map(|add| RawEntries { context: request.entries, add });
    let buffer: &mut [u8] = if request.buffer.is_null() {
        &mut []
    } else {
        // SAFETY: the interface asks for that many bytes, which only the receiver uses meanwhile.
        unsafe { std::slice::from_raw_parts_mut(request.buffer, request.buffer_len) }
    };
    // SAFETY: the interface asks for arguments that are there during the call.
    let message = unsafe {
        Message {
            numbers: request.numbers,
            groups: slice(request.groups, request.group_count),
            name: request.name.get(),
            new_name: request.new_name.get(),
            data: request.data.get(),
            buffer,
            entries: entries.as_mut().map(|entries| entries as &mut dyn Entries),
        }
    };
    let panicked = |_| Err(Failure { errno: EIO, why: "a panic".into() });
    match catch_unwind(AssertUnwindSafe(|| target.call(message))).unwrap_or_else(panicked) {
        Ok(Answer { answers, descriptor, bytes }) => {
            reply.answers = answers;
            reply.answers.descriptor = descriptor.map_or(-1, IntoRawFd::into_raw_fd);
            // SAFETY: the sink is the reply's.
            unsafe { reply.bytes.give(&bytes) };
            0
        }
        Err(Failure { errno, why }) => {
            if !why.is_empty() {
                // SAFETY: as above.
                unsafe { reply.why.give(why.as_bytes()) };
            }
            if errno == 0 { EIO } else { errno }
        }
    }
}

/// Asks a function of the interface for the capabilities of a file system, which has those `below`
/// without it.
///
/// # Safety
/// As for [`call`].
pub(super) unsafe fn capabilities(
    (function, context): (CapabilitiesFn, *mut c_void),
    below: Capabilities,
) -> Capabilities {
    let mut capabilities = below;
    // SAFETY: the caller's promise.
    unsafe { function(context, &raw mut capabilities) };
    capabilities
}

/// A file system of this side, for the other one.
pub(super) struct Offered {
    raw: Box<RawFileSystem>,
    target: *mut Box<dyn Target>,
}

// SAFETY: a target may be used by all threads; the pointers are only read until the end.
unsafe impl Send for Offered {}
// SAFETY: as above.
unsafe impl Sync for Offered {}

impl Offered {
    pub(super) fn new(target: Box<dyn Target>) -> Self {
        let target = Box::into_raw(Box::new(target));
        let raw =
            RawFileSystem { context: target.cast(), call: offered_call, capabilities: offered_capabilities };
        Self { raw: Box::new(raw), target }
    }

    pub(super) fn raw(&self) -> *const RawFileSystem {
        &raw const *self.raw
    }

    /// The same on this side.
    pub(super) fn target(&self) -> &dyn Target {
        // SAFETY: it lives as long as this does.
        unsafe { &**self.target }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        // SAFETY: it comes from `Box::into_raw`, and the other side does not use it any more.
        drop(unsafe { Box::from_raw(self.target) });
    }
}

unsafe extern "C" fn offered_call(
    context: *mut c_void,
    request: *mut RawRequest,
    reply: *mut RawReply,
) -> i32 {
    // SAFETY: the context is that of an `Offered`, which the other side may use; the rest is the interface's.
    unsafe { serve(&**context.cast::<Box<dyn Target>>(), request, reply) }
}

unsafe extern "C" fn offered_capabilities(context: *mut c_void, capabilities: *mut Capabilities) {
    // SAFETY: as above.
    let target = unsafe { &**context.cast::<Box<dyn Target>>() };
    if let Ok(told) = catch_unwind(AssertUnwindSafe(|| target.capabilities())) {
        // SAFETY: the interface asks for a place for them.
        unsafe { *capabilities = told };
    }
}

/// The file system below a module, on the module's side.
#[derive(Clone, Copy)]
pub struct Child(pub(super) *const RawFileSystem);

// SAFETY: the interface says that all threads may use it, as long as the module lives.
unsafe impl Send for Child {}
// SAFETY: as above.
unsafe impl Sync for Child {}

impl Child {
    fn raw(&self) -> &RawFileSystem {
        // SAFETY: only a module that is being made or in use has one.
        unsafe { &*self.0 }
    }
}

impl Target for Child {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let raw = self.raw();
        // SAFETY: both come from one file system, which is in use.
        unsafe { call((raw.call, raw.context), message) }
    }

    fn capabilities(&self) -> Capabilities {
        let raw = self.raw();
        // SAFETY: as above.
        unsafe { capabilities((raw.capabilities, raw.context), Capabilities::default()) }
    }
}
