//! The functions of the library for applications in C, `libbraid`: a directory as keys and
//! values. `crates/client/include/braid.h` declares and documents them.

use crate::module::Failure;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The operations that the library is made of.
pub trait DirectoryValues: Sized + Send + Sync + 'static {
    /// Opens a directory.
    ///
    /// # Errors
    /// The reason why it can't be opened.
    fn open(dir: &Path) -> Result<Self, Failure>;

    /// The value of a key.
    ///
    /// # Errors
    /// The reason why there is no answer; as for all methods that follow.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// How many bytes the value of a key has.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn len(&self, key: &[u8]) -> Result<Option<u64>, Failure>;

    /// Puts a value; returns whether it did. `when`: 0 always, 1 if the key is not there, 2
    /// if it is.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn put(&self, key: &[u8], value: &[u8], when: u32, mode: u32) -> Result<bool, Failure>;

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn delete(&self, key: &[u8]) -> Result<bool, Failure>;

    /// Hands keys that begin with `prefix` and follow `after` to `each`, in their order, with
    /// their values if those are wanted, until that returns `false`.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        values: bool,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure>;

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn sync(&self) -> Result<(), Failure>;
}

const TEXT: usize = 252;
/// Bytes with which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// `struct braid_error`.
#[repr(C)]
#[derive(Debug)]
pub struct RawError {
    number: c_int,
    text: [c_char; TEXT],
}

/// `struct braid_bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawBytes {
    data: *const c_void,
    len: usize,
}

/// `struct braid_values *`. This and the types below have fields that only a program in C can
/// fill, which has promised what the header requires: so functions that take them are safe.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct RawValues(*mut c_void);

/// A place for a result, or null where the header allows it.
#[repr(transparent)]
#[derive(Debug)]
pub struct RawPlace<T>(*mut T);

/// A string in C.
#[repr(transparent)]
#[derive(Debug)]
pub struct RawText(*const c_char);

/// `const struct braid_bytes *`, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct RawOptional(*const RawBytes);

/// `braid_each *`.
#[repr(transparent)]
#[derive(Debug)]
pub struct RawEach(unsafe extern "C" fn(*mut c_void, RawBytes, RawBytes) -> c_int);

/// The context that a `braid_each` gets.
#[repr(transparent)]
#[derive(Debug)]
pub struct RawContext(*mut c_void);

impl RawBytes {
    const NONE: Self = Self { data: std::ptr::null(), len: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// The bytes, which are there during the call.
    fn get<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: only a program in C makes one, and the header asks for readable bytes.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) }
    }
}

impl RawValues {
    /// The values that `braid_open` made.
    fn get<'a, V>(self) -> &'a V {
        // SAFETY: only `open` makes one, of this type: a library has one. The header asks
        // that it is not closed.
        unsafe { &*self.0.cast::<V>() }
    }
}

impl<T> RawPlace<T> {
    fn give(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the header asks for a place for it, or null.
            unsafe { self.0.write(value) };
        }
    }
}

impl RawPlace<RawBytes> {
    /// Gives bytes that [`free`] takes back: nothing if there is no place for them.
    fn give_owned(&self, bytes: Vec<u8>) {
        if !self.0.is_null() {
            let bytes = Box::into_raw(bytes.into_boxed_slice());
            self.give(RawBytes { data: bytes.cast_const().cast(), len: bytes.len() });
        }
    }
}

/// The result of a function: -1 if it failed, with the error filled in.
fn guarded(error: RawPlace<RawError>, work: impl FnOnce() -> Result<bool, Failure>) -> c_int {
    let panicked = |_| Err(Failure { errno: libc::EIO, why: "the library is broken".into() });
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
        Ok(done) => done.into(),
        Err(Failure { errno, why }) => {
            let mut text = [0; TEXT];
            // One zero stays at the end.
            for (to, from) in text[..TEXT - 1].iter_mut().zip(why.bytes().filter(|byte| *byte != 0)) {
                *to = from.cast_signed();
            }
            error.give(RawError { number: errno, text });
            -1
        }
    }
}

/// `braid_open`.
#[must_use]
pub fn open<V: DirectoryValues>(
    dir: RawText,
    values: RawPlace<RawValues>,
    error: RawPlace<RawError>,
) -> c_int {
    guarded(error, || {
        // SAFETY: the header asks for a string.
        let dir = unsafe { CStr::from_ptr(dir.0) };
        let made = V::open(Path::new(OsStr::from_bytes(dir.to_bytes())))?;
        values.give(RawValues(Box::into_raw(Box::new(made)).cast()));
        Ok(false)
    })
}

/// `braid_close`.
pub fn close<V: DirectoryValues>(values: RawValues) {
    if !values.0.is_null() {
        // SAFETY: `open` made it, and the header asks that it is not used any more.
        let values = unsafe { Box::from_raw(values.0.cast::<V>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(values)));
    }
}

/// `braid_get`.
#[must_use]
pub fn get<V: DirectoryValues>(
    values: RawValues,
    key: RawBytes,
    value: RawPlace<RawBytes>,
    error: RawPlace<RawError>,
) -> c_int {
    // The program frees the value after a failure too.
    value.give(RawBytes::NONE);
    guarded(error, || {
        let found = values.get::<V>().get(key.get())?;
        let is_there = found.is_some();
        value.give_owned(found.unwrap_or_default());
        Ok(is_there)
    })
}

/// `braid_len`.
#[must_use]
pub fn len<V: DirectoryValues>(
    values: RawValues,
    key: RawBytes,
    len: RawPlace<u64>,
    error: RawPlace<RawError>,
) -> c_int {
    guarded(error, || {
        let found = values.get::<V>().len(key.get())?;
        len.give(found.unwrap_or_default());
        Ok(found.is_some())
    })
}

/// `braid_free`.
pub fn free(value: RawBytes) {
    if !value.data.is_null() {
        let bytes = std::ptr::slice_from_raw_parts_mut(value.data.cast_mut().cast::<u8>(), value.len);
        // SAFETY: this is how `get` made it, and the header asks that it is not used any more.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// `braid_put`.
#[must_use]
pub fn put<V: DirectoryValues>(
    values: RawValues,
    (key, value): (RawBytes, RawBytes),
    (when, mode): (u32, u32),
    error: RawPlace<RawError>,
) -> c_int {
    guarded(error, || values.get::<V>().put(key.get(), value.get(), when, mode))
}

/// `braid_delete`.
#[must_use]
pub fn delete<V: DirectoryValues>(values: RawValues, key: RawBytes, error: RawPlace<RawError>) -> c_int {
    guarded(error, || values.get::<V>().delete(key.get()))
}

/// `braid_scan`.
#[must_use]
pub fn scan<V: DirectoryValues>(
    values: RawValues,
    (prefix, after, wants_values): (RawBytes, RawOptional, c_int),
    (RawEach(each), RawContext(context)): (RawEach, RawContext),
    error: RawPlace<RawError>,
) -> c_int {
    guarded(error, || {
        // SAFETY: the header asks for a place with bytes, or null.
        let after = unsafe { after.0.as_ref() }.map(|after| after.get());
        let mut each = |key: &[u8], value: &[u8]| {
            // SAFETY: the header asks for a function that takes these; both are there during
            // the call.
            unsafe { each(context, RawBytes::of(key), RawBytes::of(value)) == 0 }
        };
        values.get::<V>().scan(prefix.get(), after, wants_values != 0, &mut each).map(|()| false)
    })
}

/// `braid_page`.
#[must_use]
pub fn page<V: DirectoryValues>(
    values: RawValues,
    (prefix, after, wants_values, count): (RawBytes, RawOptional, c_int, usize),
    page: RawPlace<RawBytes>,
    error: RawPlace<RawError>,
) -> c_int {
    page.give(RawBytes::NONE);
    guarded(error, || {
        // SAFETY: as in `scan`.
        let after = unsafe { after.0.as_ref() }.map(|after| after.get());
        let (mut bytes, mut left, mut goes_on) = (Vec::new(), count, true);
        let scanned = values.get::<V>().scan(prefix.get(), after, wants_values != 0, &mut |key, value| {
            for part in [key, value] {
                bytes.extend_from_slice(&(part.len() as u64).to_ne_bytes());
                bytes.extend_from_slice(part);
            }
            left = left.saturating_sub(1);
            goes_on = left > 0 && bytes.len() < PAGE_BYTES;
            goes_on
        });
        match scanned {
            // The next page fails; this one has the keys found before the error.
            Err(_) if !bytes.is_empty() => goes_on = false,
            scanned => scanned?,
        }
        page.give_owned(bytes);
        Ok(!goes_on)
    })
}

/// `braid_sync`.
#[must_use]
pub fn sync<V: DirectoryValues>(values: RawValues, error: RawPlace<RawError>) -> c_int {
    guarded(error, || values.get::<V>().sync().map(|()| false))
}

/// Makes the functions of the library of a [`DirectoryValues`].
#[macro_export]
macro_rules! export_values {
    ($values:ty) => {
        mod exported {
            use super::*;
            use std::ffi::c_int;
            use $crate::values::{
                self, RawBytes, RawContext, RawEach, RawError, RawOptional, RawPlace, RawText, RawValues,
            };

            // SAFETY: the library has nothing else of these names.
            #[unsafe(no_mangle)]
            extern "C" fn braid_open(
                dir: RawText,
                opened: RawPlace<RawValues>,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::open::<$values>(dir, opened, error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_close(opened: RawValues) {
                values::close::<$values>(opened)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_get(
                opened: RawValues,
                key: RawBytes,
                value: RawPlace<RawBytes>,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::get::<$values>(opened, key, value, error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_len(
                opened: RawValues,
                key: RawBytes,
                len: RawPlace<u64>,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::len::<$values>(opened, key, len, error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_free(value: RawBytes) {
                values::free(value)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_put(
                opened: RawValues,
                key: RawBytes,
                value: RawBytes,
                when: u32,
                mode: u32,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::put::<$values>(opened, (key, value), (when, mode), error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_delete(opened: RawValues, key: RawBytes, error: RawPlace<RawError>) -> c_int {
                values::delete::<$values>(opened, key, error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_scan(
                opened: RawValues,
                prefix: RawBytes,
                after: RawOptional,
                wants_values: c_int,
                each: RawEach,
                context: RawContext,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::scan::<$values>(opened, (prefix, after, wants_values), (each, context), error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_page(
                opened: RawValues,
                prefix: RawBytes,
                after: RawOptional,
                wants_values: c_int,
                count: usize,
                page: RawPlace<RawBytes>,
                error: RawPlace<RawError>,
            ) -> c_int {
                values::page::<$values>(opened, (prefix, after, wants_values, count), page, error)
            }

            #[unsafe(no_mangle)]
            extern "C" fn braid_sync(opened: RawValues, error: RawPlace<RawError>) -> c_int {
                values::sync::<$values>(opened, error)
            }
        }
    };
}
