//! Commands that go to an NVMe device as they are (`linux/nvme_ioctl.h`), and the discard of a
//! block device's space (`linux/fs.h`).

use crate::aligned::AlignedBuf;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `_IO('N', 0x40)`: the namespace of a block device.
const NVME_IOCTL_ID: u32 = 0x4e40;
/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`.
const NVME_IOCTL_IO_CMD: u32 = 0xc048_4e43;
/// `_IO(0x12, 119)`.
const BLKDISCARD: u32 = 0x1277;

/// The queue that a command goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmeQueue {
    /// Commands about the device.
    Admin,
    /// Commands of a namespace.
    Io,
}

/// A command, but for its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NvmeCommand {
    /// The opcode.
    pub opcode: u8,
    /// The namespace; 0 for none.
    pub namespace: u32,
    /// Command dwords 10 to 15.
    pub words: [u32; 6],
}

impl NvmeCommand {
    /// A read or write of so many logical blocks of a namespace, from the `first` on.
    #[must_use]
    pub fn of_blocks(opcode: u8, namespace: u32, first: u64, count: u32) -> Self {
        let words = [first as u32, (first >> 32) as u32, count.saturating_sub(1), 0, 0, 0];
        Self { opcode, namespace, words }
    }
}

/// The data of a command.
#[derive(Debug)]
pub enum NvmeData<'a> {
    /// Nothing.
    None,
    /// The device fills it.
    In(&'a mut [u8]),
    /// The device takes it.
    Out(&'a [u8]),
}

impl NvmeData<'_> {
    /// Its address and length, if it goes the way of the opcode.
    pub(crate) fn place(self, opcode: u8) -> io::Result<(u64, u32)> {
        let takes = opcode & 1 == 1;
        let (addr, len, fits) = match self {
            NvmeData::None => (0, 0, true),
            NvmeData::In(buf) => (buf.as_mut_ptr().expose_provenance(), buf.len(), !takes),
            NvmeData::Out(buf) => (buf.as_ptr().expose_provenance(), buf.len(), takes),
        };
        let len = u32::try_from(len).ok().filter(|_| fits);
        Ok((addr as u64, len.ok_or_else(|| io::Error::from(rustix::io::Errno::INVAL))?))
    }
}

/// The kernel's `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Passthru {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    words: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// The number of the NVMe namespace that is a block device.
///
/// # Errors
/// Those of `ioctl(2)`; `ENOTTY` if it is none.
pub fn nvme_namespace(device: impl AsFd) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let id = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), NVME_IOCTL_ID as libc::Ioctl) };
    u32::try_from(id).map_err(|_| io::Error::last_os_error())
}

/// Has the device carry out a command; answers its result, which is dword 0 of the
/// completion. Memory is aligned for direct I/O, and not longer than one request.
///
/// # Errors
/// Those of `ioctl(2)`; one without a number, with the status, if the device refuses it;
/// `EINVAL` if the data goes the other way than that of the opcode.
pub fn nvme_command(
    device: impl AsFd,
    queue: NvmeQueue,
    command: NvmeCommand,
    data: NvmeData<'_>,
) -> io::Result<u32> {
    let NvmeCommand { opcode, namespace: nsid, words } = command;
    let (addr, data_len) = data.place(opcode)?;
    let mut asked = Passthru { opcode, nsid, words, addr, data_len, ..Passthru::default() };
    let request = match queue {
        NvmeQueue::Admin => NVME_IOCTL_ADMIN_CMD,
        NvmeQueue::Io => NVME_IOCTL_IO_CMD,
    };
    // SAFETY: `asked` has the kernel's layout. It lives across the call, as does the
    // memory that it leads to, whose length it has. The kernel writes there only for an
    // opcode with an even number, for which it was borrowed mutably.
    let status = unsafe {
        libc::ioctl(device.as_fd().as_raw_fd(), request as libc::Ioctl, (&raw mut asked).cast::<Passthru>())
    };
    match status {
        0 => Ok(asked.result),
        status if status > 0 => Err(refused(status)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of an Identify structure.
const IDENTIFY_LEN: usize = 4096;

/// An Identify structure: of `namespace` if `about` is 0, of the controller if it is 1.
///
/// # Errors
/// Those of [`nvme_command`].
pub fn nvme_identify(device: impl AsFd, namespace: u32, about: u32) -> io::Result<Vec<u8>> {
    const IDENTIFY: u8 = 0x06;
    let mut buf = AlignedBuf::new();
    let page = buf.bytes(IDENTIFY_LEN);
    let command = NvmeCommand { opcode: IDENTIFY, namespace, words: [about, 0, 0, 0, 0, 0] };
    nvme_command(device, NvmeQueue::Admin, command, NvmeData::In(&mut *page))?;
    Ok(page.to_vec())
}

/// The logical block of an Identify Namespace structure: bytes of its metadata, and its size as
/// a power of two; `None` if the structure is too short.
#[must_use]
pub fn nvme_block(namespace: &[u8]) -> Option<(u16, u32)> {
    let format = *namespace.get(26)?;
    let format = usize::from(format & 0xf | format >> 1 & 0x30);
    let found = namespace.get(128 + 4 * format..)?;
    Some((u16::from_le_bytes([*found.first()?, *found.get(1)?]), u32::from(*found.get(2)?)))
}

/// The error of a command that the device refuses.
pub(crate) fn refused(status: i32) -> io::Error {
    io::Error::other(format!("the device answers status {status:#x}"))
}

/// Discards these bytes of a block device; the device decides the contents of later reads.
///
/// # Errors
/// Those of `ioctl(2)`; `EOPNOTSUPP` where the device does not know of that.
pub fn discard(device: impl AsFd, from: u64, len: u64) -> io::Result<()> {
    let range = [from, len];
    // SAFETY: the kernel reads two `__u64`, which live across the call.
    let status = unsafe {
        libc::ioctl(
            device.as_fd().as_raw_fd(),
            BLKDISCARD as libc::Ioctl,
            (&raw const range).cast_mut().cast::<u64>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        for request in [NVME_IOCTL_ADMIN_CMD, NVME_IOCTL_IO_CMD] {
            assert_eq!((request >> 16 & 0x3fff) as usize, size_of::<Passthru>());
        }
        assert_eq!(std::mem::offset_of!(Passthru, addr), 24);
        assert_eq!(std::mem::offset_of!(Passthru, data_len), 36);
        assert_eq!(std::mem::offset_of!(Passthru, words), 40);
        assert_eq!(std::mem::offset_of!(Passthru, result), 68);
    }

    #[test]
    fn what_is_no_such_device_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        refused(nvme_namespace(&file).unwrap_err());
        let identify = NvmeCommand { opcode: 6, namespace: 1, words: [0; 6] };
        let mut buf = [0; 4096];
        refused(nvme_command(&file, NvmeQueue::Admin, identify, NvmeData::In(&mut buf)).unwrap_err());
        refused(discard(&file, 0, 4096).unwrap_err());
    }

    #[test]
    fn data_goes_where_the_opcode_has_it_go() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let command = |opcode| NvmeCommand { opcode, namespace: 1, words: [0; 6] };
        let mut buf = [0; 4096];
        let taken = nvme_command(&file, NvmeQueue::Io, command(2), NvmeData::Out(&buf)).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(libc::EINVAL));
        let filled = nvme_command(&file, NvmeQueue::Io, command(1), NvmeData::In(&mut buf)).unwrap_err();
        assert_eq!(filled.raw_os_error(), Some(libc::EINVAL));
    }
}
