//! Libraries with modules, on the side of the program that loads them.

use super::bridge::{self, Offered};
use super::message::{Answer, Failure, Message, Target};
use super::raw::{ABI, Capabilities, EXPORTS_IN_USE, HAS_REPAIR, RawCrash, RawModule, RawSink, RawSlice};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest name of a module.
const NAME_MAX: usize = 64;

/// A library with a module.
#[derive(Debug)]
pub struct ModuleLibrary {
    name: String,
    version: String,
    module: RawModule,
    /// Its code, until the last use of it; none if that is this program's own.
    _library: Option<Library>,
}

// SAFETY: the description does not change, and its functions may be called by all threads.
unsafe impl Send for ModuleLibrary {}
// SAFETY: as above.
unsafe impl Sync for ModuleLibrary {}

impl ModuleLibrary {
    /// Loads a library from its [image](module_image).
    ///
    /// The library's code runs with all rights of this process, and can do what no caller can rule
    /// out: so its trust is decided before. `braid-stack` calls this for libraries that only root or
    /// this user could have put there (its `trust`), and for others in a process that its `sandbox`
    /// has confined.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn load(memory: &File) -> Result<Self, String> {
        let path = unique(memory.as_raw_fd());
        // SAFETY: nothing here can prove what its constructors do. Their code has the trust of this
        // process, or the process has no rights: the caller decided that before, as said above.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| said(&error, &path))?;
        // SAFETY: the type of the function is that of the interface; the version is checked below.
        let describe =
            unsafe { library.get::<unsafe extern "C" fn() -> *const RawModule>(b"braid_module\0") };
        let describe = describe.map_err(|_| "it has no function 'braid_module'".to_owned())?;
        // SAFETY: it is code of the same trust, and keeps to the interface.
        let module = unsafe { describe() };
        if module.is_null() {
            return Err("it describes no module".into());
        }
        // SAFETY: the first member is the same in all versions.
        let abi = unsafe { ptr::addr_of!((*module).abi).read() };
        if abi != ABI {
            return Err(format!(
                "it was made for version {abi} of the interface, and this braid has version {ABI}: make it anew"
            ));
        }
        // SAFETY: the version is the right one, so that it is a whole description.
        let module = unsafe { copied(module) };
        // SAFETY: its texts are there as long as the library is.
        let (name, version) = unsafe { (text(module.name), text(module.version)) };
        let name = name.filter(|name| is_module_name(name)).ok_or("its name is not one of a module")?;
        Ok(Self { name, version: version.unwrap_or_default(), module, _library: Some(library) })
    }

    /// A module that is linked to this program.
    #[cfg(test)]
    pub(super) fn linked(module: *const RawModule) -> Self {
        // SAFETY: the tests give a whole description, or one of before `repair`.
        let module = unsafe { copied(module) };
        Self { name: String::new(), version: String::new(), module, _library: None }
    }

    fn module(&self) -> &RawModule {
        &self.module
    }

    /// Whether its modules' state may be asked for while operations are under way.
    #[must_use]
    pub fn exports_in_use(&self) -> bool {
        self.module.flags & EXPORTS_IN_USE != 0
    }

    /// The key in a stack file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version, for people.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether these settings, as JSON, are right.
    ///
    /// # Errors
    /// The error in the settings.
    pub fn check(&self, settings: &str) -> Result<(), String> {
        let Some(check) = self.module().check else { return Ok(()) };
        let mut why = Vec::new();
        let sink = RawSink::into(&mut why);
        // SAFETY: the arguments live during the call.
        match unsafe { check(RawSlice::of(settings.as_bytes()), &raw const sink) } {
            0 => Ok(()),
            errno => Err(words(errno, &why)),
        }
    }

    /// Makes a module on a child.
    ///
    /// # Errors
    /// The reason why it can't be there.
    pub fn create(self: &Arc<Self>, settings: &str, child: Box<dyn Target>) -> Result<LoadedModule, Failure> {
        let (child, mut why) = (Offered::new(child), Vec::new());
        let (sink, mut module) = (RawSink::into(&mut why), ptr::null_mut());
        let settings = RawSlice::of(settings.as_bytes());
        // SAFETY: the arguments live during the call, and the child as long as the module.
        let errno =
            unsafe { (self.module().create)(settings, child.raw(), &raw mut module, &raw const sink) };
        match errno {
            0 => Ok(LoadedModule { module, child, library: Arc::clone(self) }),
            errno => {
                Err(Failure { errno: errno.abs().max(1), why: String::from_utf8_lossy(&why).into_owned() })
            }
        }
    }
}

/// A module of a library, on its child.
pub struct LoadedModule {
    module: *mut c_void,
    child: Offered,
    library: Arc<ModuleLibrary>,
}

// SAFETY: the interface asks for modules that all threads may use.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

impl LoadedModule {
    /// Its library.
    #[must_use]
    pub fn library(&self) -> &Arc<ModuleLibrary> {
        &self.library
    }

    /// It will not be used any more.
    pub fn end(&self) {
        if let Some(end) = self.library.module().end {
            // SAFETY: the module is one of this library.
            unsafe { end(self.module) };
        }
    }

    /// Its state and the version of that, for its successor; no call is under way.
    ///
    /// # Errors
    /// If it can't say.
    pub fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        let Some(export) = self.library.module().export_state else { return Ok((0, Vec::new())) };
        let (mut version, mut state) = (0, Vec::new());
        let sink = RawSink::into(&mut state);
        // SAFETY: the module is one of this library, and the arguments live during the call.
        match unsafe { export(self.module, &raw mut version, &raw const sink) } {
            0 => Ok((version, state)),
            errno => Err(Failure { errno: errno.abs(), why: "its state can't be exported".into() }),
        }
    }

    /// Takes over the state of a module of the same name.
    ///
    /// # Errors
    /// If it can't; nothing has changed then.
    pub fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        let Some(import) = self.library.module().import_state else {
            let why = "it takes no state over, and its predecessor has some".to_owned();
            return if version == 0 && state.is_empty() {
                Ok(())
            } else {
                Err(Failure { errno: libc::EINVAL, why })
            };
        };
        let mut why = Vec::new();
        let sink = RawSink::into(&mut why);
        // SAFETY: as above.
        match unsafe { import(self.module, version, RawSlice::of(state), &raw const sink) } {
            0 => Ok(()),
            errno => Err(Failure { errno: errno.abs(), why: words(errno, &why) }),
        }
    }

    /// Repairs the leftovers of a crash, before the first operation. One without a function
    /// for that has nothing to do.
    ///
    /// # Errors
    /// If it can't.
    pub fn repair(&self, crash: &RawCrash) -> Result<(), Failure> {
        let Some(repair) = self.library.module().repair else { return Ok(()) };
        let mut why = Vec::new();
        let sink = RawSink::into(&mut why);
        // SAFETY: as above.
        match unsafe { repair(self.module, crash, &raw const sink) } {
            0 => Ok(()),
            errno => Err(Failure { errno: errno.abs(), why: words(errno, &why) }),
        }
    }
}

impl Target for LoadedModule {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        // A module may count bytes that it has not read: they are not to be those of an
        // earlier read, perhaps for another user.
        message.buffer.fill(0);
        // SAFETY: the module is one of this library, and is in use.
        unsafe { bridge::call((self.library.module().call, self.module), message) }
    }

    fn capabilities(&self) -> Capabilities {
        let below = self.child.target().capabilities();
        match self.library.module().capabilities {
            // SAFETY: as above.
            Some(function) => unsafe { bridge::capabilities((function, self.module), below) },
            None => below,
        }
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // SAFETY: the module is one of this library, and nothing uses it any more. Its child goes after it.
        unsafe { (self.library.module().destroy)(self.module) };
    }
}

/// A copy of a library in memory, which nothing can change: its file may change or go, and
/// other code under the same path is another library.
///
/// # Errors
/// If it can't be read, has more than `longest` bytes, or there is no memory.
pub fn module_image(file: &File, longest: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(memfd_create(c"module", flags)?);
    // It may grow meanwhile.
    if io::copy(&mut file.take(longest.saturating_add(1)), &mut memory)? > longest {
        return Err(io::Error::other(format!("it is longer than {longest} bytes")));
    }
    fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    // Not by the descriptor that could have written it.
    File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))
}

/// A description, which ends before `repair` in libraries that were made when there was none.
///
/// # Safety
/// It is a whole description of this version of the interface, or of before `repair`.
unsafe fn copied(module: *const RawModule) -> RawModule {
    // SAFETY: the caller's promise: all of them begin with this member.
    let flags = unsafe { ptr::addr_of!((*module).flags).read() };
    let len = if flags & HAS_REPAIR != 0 { size_of::<RawModule>() } else { offset_of!(RawModule, repair) };
    let mut copy = MaybeUninit::<RawModule>::zeroed();
    // SAFETY: `len` bytes are there. Zeros in place of the rest are a function that is not there.
    unsafe {
        ptr::copy_nonoverlapping(module.cast::<u8>(), copy.as_mut_ptr().cast(), len);
        copy.assume_init()
    }
}

/// A path of a descriptor that no library was loaded by before. The loader takes a library
/// for the one that it has under the same path, which may not be gone although it was
/// closed. So the path has a number in it, in steps that lead nowhere.
fn unique(descriptor: RawFd) -> String {
    static LOADED: AtomicU64 = AtomicU64::new(0);
    let number = LOADED.fetch_add(1, Ordering::Relaxed);
    let digits =
        (0..u64::BITS - number.leading_zeros()).map(|bit| if number >> bit & 1 == 1 { "/." } else { "/" });
    format!("/proc/self/fd{}/{descriptor}", digits.collect::<String>())
}

/// # Safety
/// The text is NULL, or ended by NUL.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Whether a stack file can name a module so.
#[must_use]
pub fn is_module_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && name.as_bytes()[0] != b'-'
}

fn words(errno: i32, why: &[u8]) -> String {
    match why {
        [] => io::Error::from_raw_os_error(errno.abs()).to_string(),
        why => String::from_utf8_lossy(why).into_owned(),
    }
}

/// The loader's message, without the path of the copy.
fn said(error: &libloading::Error, path: &str) -> String {
    error.to_string().replace(&format!("{path}: "), "").replace(path, "it")
}
