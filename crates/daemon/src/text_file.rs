//! Files of settings, as text.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file of settings.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file of settings, up to the limit.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    read_open(open(path)?)
}

/// Opens a file of settings.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Opening a FIFO would wait for a writer.
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Reads a file of settings that is open, up to the limit.
pub(crate) fn read_open(file: File) -> io::Result<String> {
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}
