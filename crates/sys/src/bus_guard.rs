//! Access to mapped memory of devices that may fail.
//!
//! The kernel answers an access to a page that it can't read, or has no block
//! for, with `SIGBUS`, which would end the process and take every file with it.
//! Here such an access becomes an error of its mapping: the handler marks the
//! mapping as failed, replaces the missing page by one of zeros, and lets the
//! access continue; the caller checks the mark before it trusts the result.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

const PAGE: usize = 4096;

type Touched = (*const AtomicU64, *const AtomicU64, *const AtomicBool);

thread_local! {
    /// The current access of this thread: the first word, the last one, and the mark for a
    /// failure.
    static TOUCHED: Cell<Touched> = const { Cell::new((ptr::null(), ptr::null(), ptr::null())) };
}

/// Done when the handler is installed.
static INSTALL: Once = Once::new();

/// Runs `access` on a word of a mapping, as [`touch_all`].
pub(crate) fn touch<T>(
    word: &AtomicU64,
    failed: &AtomicBool,
    access: impl FnOnce(&AtomicU64) -> T,
) -> Option<T> {
    touch_all(std::slice::from_ref(word), failed, |words| access(&words[0]))
}

/// Runs `access` on words of a mapping; returns `None` if a page of the
/// mapping could not be loaded, now or before, which `failed` records for good.
pub(crate) fn touch_all<T>(
    words: &[AtomicU64],
    failed: &AtomicBool,
    access: impl FnOnce(&[AtomicU64]) -> T,
) -> Option<T> {
    install();
    let places = words.first().zip(words.last());
    let (first, last) =
        places.map_or((ptr::null(), ptr::null()), |(first, last)| (&raw const *first, &raw const *last));
    TOUCHED.set((first, last, failed));
    // The handler runs in this thread: its input must be stored before the
    // access, and not be overwritten before the end of it.
    compiler_fence(Ordering::SeqCst);
    let result = access(words);
    compiler_fence(Ordering::SeqCst);
    TOUCHED.set((ptr::null(), ptr::null(), ptr::null()));
    // A read from a page of zeros happens after the mark was set.
    if failed.load(Ordering::Acquire) { None } else { Some(result) }
}

/// Installs the handler, once for the process.
fn install() {
    INSTALL.call_once(|| {
        // SAFETY: an all-zero `sigaction` is a valid value of that C struct.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the action is initialised, and its handler does only what a
        // signal handler may: read thread-local cells without destructors,
        // store to an atomic, and make system calls.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    });
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`.
    let fault = unsafe { (*info).si_addr() } as usize / PAGE * PAGE;
    let (first, last, failed) = TOUCHED.get();
    let is_ours = first as usize / PAGE * PAGE <= fault && fault <= last as usize;
    if first.is_null() || !is_ours {
        // Not from our access: it ends the process, as it would have without us,
        // when the access is tried again.
        // SAFETY: resetting a signal's action takes no pointers of ours.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    }
    // SAFETY: the pointer was made from a reference that outlives the access
    // which is under way in this very thread.
    unsafe { &*failed }.store(true, Ordering::Release);
    // SAFETY: the page is part of a mapping that this crate made and that is
    // borrowed for the access under way; replacing it changes no other memory.
    let placed = unsafe {
        libc::mmap(
            fault as *mut libc::c_void,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if placed == libc::MAP_FAILED {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}
