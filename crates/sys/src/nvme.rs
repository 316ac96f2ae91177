//! Commands that go to an NVMe device as they are (`linux/nvme_ioctl.h`), and the discard of a
//! block device's space (`linux/fs.h`).

use crate::aligned::AlignedBuf;
use bytemuck::{Pod, Zeroable};
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
    /// A read or write of `count` logical blocks of a namespace, from the `first` on.
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
    fn place(self, opcode: u8) -> io::Result<(u64, u32)> {
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

/// The kernel's `struct nvme_passthru_cmd`, which is its `struct nvme_uring_cmd` too.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct RawCommand {
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
    /// Dword 0 of the completion; reserved in `struct nvme_uring_cmd`, whose completion has it.
    result: u32,
}

impl RawCommand {
    /// A command with its data, which the kernel uses until the command is done.
    ///
    /// # Errors
    /// `EINVAL` if the data goes the other way than that of the opcode.
    pub(crate) fn new(command: NvmeCommand, data: NvmeData<'_>) -> io::Result<Self> {
        let NvmeCommand { opcode, namespace: nsid, words } = command;
        let (addr, data_len) = data.place(opcode)?;
        Ok(Self { opcode, nsid, words, addr, data_len, ..Self::default() })
    }
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

/// Has the device carry out a command; returns its result, which is dword 0 of the
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
    let mut raw = RawCommand::new(command, data)?;
    let request = match queue {
        NvmeQueue::Admin => NVME_IOCTL_ADMIN_CMD,
        NvmeQueue::Io => NVME_IOCTL_IO_CMD,
    };
    // SAFETY: `raw` has the kernel's layout. It lives across the call, as does the
    // memory that it leads to, whose length it has. The kernel writes there only for an
    // opcode with an even number, for which it was borrowed mutably.
    let status = unsafe {
        libc::ioctl(device.as_fd().as_raw_fd(), request as libc::Ioctl, (&raw mut raw).cast::<RawCommand>())
    };
    match status {
        0 => Ok(raw.result),
        status if status > 0 => Err(refused(status)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of an Identify structure.
pub const IDENTIFY_LEN: usize = 4096;

/// The structure that an Identify command asks for, as the specification numbers them (CNS).
#[derive(Clone, Copy)]
enum IdentifyStructure {
    Namespace = 0,
    Controller = 1,
}

fn identify(
    device: impl AsFd,
    namespace: u32,
    structure: IdentifyStructure,
) -> io::Result<Box<[u8; IDENTIFY_LEN]>> {
    const IDENTIFY: u8 = 0x06;
    let mut buf = AlignedBuf::new();
    let page = buf.bytes(IDENTIFY_LEN);
    let command = NvmeCommand { opcode: IDENTIFY, namespace, words: [structure as u32, 0, 0, 0, 0, 0] };
    nvme_command(device, NvmeQueue::Admin, command, NvmeData::In(&mut *page))?;
    let mut structure = Box::new([0; IDENTIFY_LEN]);
    structure.copy_from_slice(page);
    Ok(structure)
}

/// Asks a device about its controller.
///
/// # Errors
/// Those of [`nvme_command`].
pub fn identify_controller(device: impl AsFd) -> io::Result<IdentifyController> {
    identify(device, 0, IdentifyStructure::Controller).map(IdentifyController)
}

/// Asks a device about one of its namespaces.
///
/// # Errors
/// Those of [`nvme_command`].
pub fn identify_namespace(device: impl AsFd, namespace: u32) -> io::Result<IdentifyNamespace> {
    identify(device, namespace, IdentifyStructure::Namespace).map(IdentifyNamespace)
}

/// The bytes of a field.
fn field<const LEN: usize>(structure: &[u8; IDENTIFY_LEN], at: usize) -> [u8; LEN] {
    std::array::from_fn(|byte| structure[at + byte])
}

/// An Identify Controller structure; its fields have the names of the specification.
#[derive(Clone, Debug)]
pub struct IdentifyController(Box<[u8; IDENTIFY_LEN]>);

impl IdentifyController {
    /// The structure with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; IDENTIFY_LEN]) -> Self {
        Self(Box::new(bytes))
    }

    /// Maximum Data Transfer Size: in pages of memory as a power of two; 0 is no bound.
    #[must_use]
    pub fn mdts(&self) -> u8 {
        self.0[77]
    }

    /// Controller Attributes, as bits.
    #[must_use]
    pub fn ctratt(&self) -> u32 {
        u32::from_le_bytes(field(&self.0, 96))
    }

    /// Optional NVM Command Support, as bits.
    #[must_use]
    pub fn oncs(&self) -> u16 {
        u16::from_le_bytes(field(&self.0, 520))
    }
}

/// An Identify Namespace structure; its fields have the names of the specification.
#[derive(Clone, Debug)]
pub struct IdentifyNamespace(Box<[u8; IDENTIFY_LEN]>);

impl IdentifyNamespace {
    /// The structure with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; IDENTIFY_LEN]) -> Self {
        Self(Box::new(bytes))
    }

    /// Namespace Size, in logical blocks.
    #[must_use]
    pub fn nsze(&self) -> u64 {
        u64::from_le_bytes(field(&self.0, 0))
    }

    /// Formatted LBA Size: the number of the format in use, in two parts, and a bit about its
    /// metadata.
    #[must_use]
    pub fn flbas(&self) -> u8 {
        self.0[26]
    }

    /// Endurance Group Identifier; 0 if there is none.
    #[must_use]
    pub fn endgid(&self) -> u16 {
        u16::from_le_bytes(field(&self.0, 102))
    }

    /// The LBA Format in use.
    #[must_use]
    pub fn lba_format(&self) -> LbaFormat {
        let flbas = usize::from(self.flbas());
        let at = 128 + 4 * (flbas & 0xf | flbas >> 1 & 0x30);
        LbaFormat { ms: u16::from_le_bytes(field(&self.0, at)), lbads: self.0[at + 2] }
    }
}

/// An LBA Format data structure: the shape of a logical block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LbaFormat {
    /// Metadata Size, in bytes.
    pub ms: u16,
    /// LBA Data Size, in bytes as a power of two.
    pub lbads: u8,
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
            assert_eq!((request >> 16 & 0x3fff) as usize, size_of::<RawCommand>());
        }
        assert_eq!(std::mem::offset_of!(RawCommand, addr), 24);
        assert_eq!(std::mem::offset_of!(RawCommand, data_len), 36);
        assert_eq!(std::mem::offset_of!(RawCommand, words), 40);
        assert_eq!(std::mem::offset_of!(RawCommand, result), 68);
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
    fn fields_are_where_the_specification_has_them() {
        let (mut controller, mut namespace) = ([0; IDENTIFY_LEN], [0; IDENTIFY_LEN]);
        controller[77] = 5;
        controller[96..100].copy_from_slice(&0x0008_8010_u32.to_le_bytes());
        controller[520..522].copy_from_slice(&0x015f_u16.to_le_bytes());
        let controller = IdentifyController::new(controller);
        assert_eq!((controller.mdts(), controller.ctratt(), controller.oncs()), (5, 0x0008_8010, 0x015f));
        namespace[..8].copy_from_slice(&1_000_003_u64.to_le_bytes());
        namespace[26] = 0x61;
        namespace[102..104].copy_from_slice(&0x0102_u16.to_le_bytes());
        // Formats beyond the sixteenth have the higher bits of their numbers apart.
        namespace[128 + 4 * 49..][..3].copy_from_slice(&[8, 1, 12]);
        let namespace = IdentifyNamespace::new(namespace);
        assert_eq!((namespace.nsze(), namespace.flbas(), namespace.endgid()), (1_000_003, 0x61, 0x0102));
        assert_eq!(namespace.lba_format(), LbaFormat { ms: 0x0108, lbads: 12 });
        let mut last = [0; IDENTIFY_LEN];
        last[26] = 0xff;
        assert_eq!(IdentifyNamespace::new(last).lba_format(), LbaFormat { ms: 0, lbads: 0 });
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
