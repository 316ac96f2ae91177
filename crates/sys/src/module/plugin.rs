//! The other side: the answers of a library with a module.

use super::bridge::{Child, serve};
use super::message::{Failure, Target};
use super::raw::{
    ABI, Capabilities, EXPORTS_IN_USE, HAS_REPAIR, RawCrash, RawFileSystem, RawModule, RawReply, RawRequest,
    RawSink, RawSlice,
};
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A module that a library offers. Its [capabilities](Target::capabilities) are asked for together
/// with its child's.
pub trait Plugin: Target + Sized + 'static {
    /// The key in a stack file.
    const NAME: &'static CStr;
    /// The version, for people.
    const VERSION: &'static CStr;

    /// Whether [`export`](Self::export) may be called while operations are under way.
    const EXPORTS_IN_USE: bool;

    /// Whether these settings, as JSON, are right.
    ///
    /// # Errors
    /// The error in the settings.
    fn check(settings: &[u8]) -> Result<(), Failure>;

    /// Makes one.
    ///
    /// # Errors
    /// The reason why it can't be on this child.
    fn create(settings: &[u8], child: Child) -> Result<Self, Failure>;

    /// It will not be used any more.
    fn end(&self);

    /// Its state, with a version.
    fn export(&self) -> (u32, Vec<u8>);

    /// Takes over a state.
    ///
    /// # Errors
    /// If it can't; nothing has changed then.
    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure>;

    /// Repairs the leftovers of a crash, before the first operation.
    ///
    /// # Errors
    /// If it can't.
    fn repair(&self, crash: &RawCrash) -> Result<(), Failure>;
}

struct Described<P>(PhantomData<P>);

impl<P: Plugin> Described<P> {
    const MODULE: RawModule = RawModule {
        abi: ABI,
        flags: HAS_REPAIR | if P::EXPORTS_IN_USE { EXPORTS_IN_USE } else { 0 },
        name: P::NAME.as_ptr(),
        version: P::VERSION.as_ptr(),
        check: Some(check::<P>),
        create: create::<P>,
        end: Some(end::<P>),
        destroy: destroy::<P>,
        call: call::<P>,
        capabilities: Some(capabilities::<P>),
        export_state: Some(export::<P>),
        import_state: Some(import::<P>),
        repair: Some(repair::<P>),
    };
}

/// The description of a module, for the function `braid_module` of a library.
#[must_use]
pub fn describe<P: Plugin>() -> *const RawModule {
    let described: &'static RawModule = &Described::<P>::MODULE;
    described
}

/// The result of a function; a panic is an error.
fn guarded(why: *const RawSink, work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let panicked = |_| Err(Failure { errno: libc::EIO, why: "a panic".into() });
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
        Ok(()) => 0,
        Err(failure) => {
            if !why.is_null() {
                // SAFETY: the interface gives a sink that is in use.
                unsafe { (*why).give(failure.why.as_bytes()) };
            }
            failure.errno.max(1)
        }
    }
}

unsafe extern "C" fn check<P: Plugin>(settings: RawSlice, why: *const RawSink) -> i32 {
    // SAFETY: the interface gives settings that are there during the call.
    guarded(why, || P::check(unsafe { settings.get() }))
}

unsafe extern "C" fn create<P: Plugin>(
    settings: RawSlice,
    child: *const RawFileSystem,
    module: *mut *mut c_void,
    why: *const RawSink,
) -> i32 {
    guarded(why, || {
        // SAFETY: as above; the child lives longer than the module.
        let made = P::create(unsafe { settings.get() }, Child(child))?;
        // SAFETY: the interface gives a place for it.
        unsafe { *module = Box::into_raw(Box::new(made)).cast() };
        Ok(())
    })
}

/// # Safety
/// The module is one of [`create`], and in use.
unsafe fn of<'a, P>(module: *mut c_void) -> &'a P {
    // SAFETY: the caller's promise.
    unsafe { &*module.cast::<P>() }
}

unsafe extern "C" fn end<P: Plugin>(module: *mut c_void) {
    // SAFETY: the interface gives a module that is in use.
    let module = unsafe { of::<P>(module) };
    // The hook has reported a panic.
    let _ = catch_unwind(AssertUnwindSafe(|| module.end()));
}

unsafe extern "C" fn destroy<P: Plugin>(module: *mut c_void) {
    // SAFETY: the interface gives a module of `create` for the last time.
    let module = unsafe { Box::from_raw(module.cast::<P>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(module)));
}

unsafe extern "C" fn call<P: Plugin>(
    module: *mut c_void,
    request: *mut RawRequest,
    reply: *mut RawReply,
) -> i32 {
    // SAFETY: the interface gives a module that is in use, a request and a reply.
    unsafe { serve(of::<P>(module), request, reply) }
}

unsafe extern "C" fn capabilities<P: Plugin>(module: *mut c_void, capabilities: *mut Capabilities) {
    // SAFETY: as above.
    let module = unsafe { of::<P>(module) };
    if let Ok(told) = catch_unwind(AssertUnwindSafe(|| module.capabilities())) {
        // SAFETY: the interface gives a place for them.
        unsafe { *capabilities = told };
    }
}

unsafe extern "C" fn export<P: Plugin>(module: *mut c_void, version: *mut u32, state: *const RawSink) -> i32 {
    // SAFETY: as above.
    let module = unsafe { of::<P>(module) };
    guarded(std::ptr::null(), || {
        let (number, bytes) = module.export();
        // SAFETY: the interface gives a place for the version, and a sink.
        unsafe {
            *version = number;
            (*state).give(&bytes);
        }
        Ok(())
    })
}

unsafe extern "C" fn import<P: Plugin>(
    module: *mut c_void,
    version: u32,
    state: RawSlice,
    why: *const RawSink,
) -> i32 {
    // SAFETY: as above; the state is there during the call.
    let (module, state) = unsafe { (of::<P>(module), state.get()) };
    guarded(why, || module.import(version, state))
}

unsafe extern "C" fn repair<P: Plugin>(
    module: *mut c_void,
    crash: *const RawCrash,
    why: *const RawSink,
) -> i32 {
    // SAFETY: as above; the crash is described during the call.
    let (module, crash) = unsafe { (of::<P>(module), &*crash) };
    guarded(why, || module.repair(crash))
}

/// Makes the function of a library that describes a [`Plugin`].
#[macro_export]
macro_rules! export_module {
    ($plugin:ty) => {
        /// The function that the loading program asks for.
        // SAFETY: a library has one module, and nothing else of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn braid_module() -> *const $crate::module::RawModule {
            $crate::module::describe::<$plugin>()
        }
    };
}
