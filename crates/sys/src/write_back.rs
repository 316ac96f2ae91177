//! Writing a file's data back without waiting for the file system's journal.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Writes all dirty data of the file to the device, and waits for that. Also
/// returns an error of earlier writeback that was not reported to this
/// descriptor yet. This makes nothing durable: that takes a sync.
///
/// # Errors
/// Those of `sync_file_range(2)`.
pub fn write_back(fd: impl AsFd) -> io::Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(fd, (0, 0), flags)
}

/// Begins to write part of the file's dirty data to the device. Does not wait
/// for the end, and returns no error of writeback, which the next sync does.
///
/// # Errors
/// Those of `sync_file_range(2)`.
pub fn start_write_back(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let signed = |number: u64| i64::try_from(number).map_err(|_| io::ErrorKind::InvalidInput);
    sync_file_range(fd, (signed(offset)?, signed(len)?), libc::SYNC_FILE_RANGE_WRITE)
}

/// All from the offset on, if the length is 0.
fn sync_file_range(fd: impl AsFd, (offset, len): (i64, i64), flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the call takes no pointers, and the descriptor is open while it
    // is borrowed.
    match unsafe { libc::sync_file_range(fd.as_fd().as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn what_is_written_back_has_blocks_on_the_device() {
        use std::os::unix::fs::MetadataExt;
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&[1; 65536]).unwrap();
        write_back(&file).unwrap();
        assert!(file.metadata().unwrap().blocks() >= 128);
    }

    #[test]
    fn what_has_no_data_is_refused() {
        let pipe = File::open("/dev/null").unwrap();
        assert_eq!(write_back(&pipe).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
        assert_eq!(start_write_back(&pipe, 0, 1).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
        assert_eq!(start_write_back(&pipe, u64::MAX, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
