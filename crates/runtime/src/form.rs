//! Refuses malformed requests of any user: the kernel refuses such calls before a file system sees
//! them, so no file system expects them.

use braid_contract::{Errno, FileKind, Request, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// End of the longest file: `loff_t` has a sign.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Bytes of the target of a symbolic link, at most.
const TARGET_MAX: usize = 4095;
/// Bytes of the value of an extended attribute, at most.
const VALUE_MAX: usize = 64 << 10;
const TOO_LONG_VALUE: Errno = Errno(rustix::io::Errno::TOOBIG.raw_os_error());

/// Refuses a request that the kernel would not pass on.
pub(crate) fn check_form(request: &Request<'_>) -> Result<()> {
    match *request {
        Request::Mknod { name, mode, .. } => {
            check_made(name)?;
            match FileKind::from_mode(mode) {
                Some(FileKind::Directory) => Err(Errno::EPERM.into()),
                Some(FileKind::Symlink) | None => Err(Errno::EINVAL.into()),
                Some(_) => Ok(()),
            }
        }
        Request::Mkdir { name, .. } | Request::Create { name, .. } | Request::Link { name, .. } => {
            check_made(name)
        }
        Request::Symlink { name, target, .. } => {
            check_made(name)?;
            check_target(target.as_bytes())
        }
        Request::Unlink { name, .. } => check_dots(name, Errno::EISDIR, Errno::EISDIR),
        Request::Rmdir { name, .. } => check_dots(name, Errno::EINVAL, Errno::ENOTEMPTY),
        Request::Rename { name, new_name, .. } => {
            check_dots(name, Errno::EBUSY, Errno::EBUSY)?;
            check_dots(new_name, Errno::EBUSY, Errno::EBUSY)
        }
        Request::Setattr { changes, .. } if changes.size.is_some_and(|size| size > OFFSET_MAX) => {
            Err(Errno::EINVAL.into())
        }
        Request::Read { offset, ref buf, .. } => check_end(offset, buf.len() as u64, Errno::EINVAL),
        Request::Write { offset, data, .. } => check_end(offset, data.len() as u64, Errno::EFBIG),
        Request::Fallocate { len: 0, .. } => Err(Errno::EINVAL.into()),
        Request::Fallocate { offset, len, .. } => check_end(offset, len, Errno::EFBIG),
        Request::CopyRange { from_offset, to_offset, len, .. } => {
            check_end(from_offset, len, Errno::EOVERFLOW)?;
            check_end(to_offset, len, Errno::EFBIG)
        }
        Request::Seek { offset, .. } => check_end(offset, 0, Errno::ENXIO),
        Request::Setxattr { value, .. } if value.len() > VALUE_MAX => Err(TOO_LONG_VALUE.into()),
        _ => Ok(()),
    }
}

/// A name that is to be made. These are there always.
fn check_made(name: &OsStr) -> Result<()> {
    check_dots(name, Errno::EEXIST, Errno::EEXIST)
}

fn check_dots(name: &OsStr, of_itself: Errno, of_above: Errno) -> Result<()> {
    match name.as_bytes() {
        b"." => Err(of_itself.into()),
        b".." => Err(of_above.into()),
        _ => Ok(()),
    }
}

fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(Errno::ENOENT.into()),
        len if len > TARGET_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ if target.contains(&0) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}

fn check_end(offset: u64, len: u64, beyond: Errno) -> Result<()> {
    let end = offset.checked_add(len).filter(|end| *end <= OFFSET_MAX);
    end.map(drop).ok_or_else(|| beyond.into())
}
