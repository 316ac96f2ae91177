//! The errno table: the errors that an application sees.

use std::fmt;

/// Declares the error numbers that Braid itself answers with, once.
macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// The symbolic name, if it is in Braid's table.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

/// A Linux error number, always positive. Numbers that come from a native file
/// system pass through unchanged, in the table or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address; no data or hole at or after the offset";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Out of memory";
    EACCES = 13, "Permission denied";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    ERANGE = 34, "Numerical result out of range; buffer too small";
    ENAMETOOLONG = 36, "File name too long";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available; no such extended attribute";
    EOVERFLOW = 75, "Value too large for defined data type";
    EUCLEAN = 117, "Structure needs cleaning; damaged metadata";
    EOPNOTSUPP = 95, "Operation not supported";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESTALE = 116, "Stale file handle";
    EDQUOT = 122, "Disk quota exceeded";
    ECANCELED = 125, "Operation canceled";
    ENOTRECOVERABLE = 131, "State not recoverable";
}

/// Whether, when and where a failed operation is worth a retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Nowhere: the same request gets the same answer.
    Never,
    /// Here, in a moment: the request was interrupted, or lacked a resource
    /// that others release by themselves.
    Soon,
    /// On another tier: this one has no room.
    Elsewhere,
    /// Here once the tier has recovered, and on another one until then: it is
    /// failing, read-only or gone.
    AfterRecovery,
}

impl Errno {
    /// Whether, when and where a retry makes sense. All of the methods below
    /// use this table.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self {
            Self::EINTR | Self::EAGAIN | Self::ENOMEM | Self::EMFILE | Self::ENFILE => Retry::Soon,
            Self::ENOSPC | Self::EDQUOT => Retry::Elsewhere,
            Self::EIO | Self::EROFS | Self::ESTALE | Self::ENODEV | Self::ENXIO | Self::ENOTCONN => {
                Retry::AfterRecovery
            }
            _ => Retry::Never,
        }
    }

    /// Whether a tier that answered this has no room, so that another tier may
    /// be tried in its place.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.retry() == Retry::Elsewhere
    }

    /// Whether a tier that answered this can't be relied on now: it is failing,
    /// read-only or gone.
    #[must_use]
    pub fn is_failing(self) -> bool {
        self.retry() == Retry::AfterRecovery
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
