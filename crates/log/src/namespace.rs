//! An NVMe namespace by its generic character device (`/dev/ng0n1`): the file system's reads and
//! writes are commands to the device (LabStor §3.4, a driver module), without a page cache and the
//! kernel's block layer.

use crate::blocks;
use crate::device::{BLOCK, Device};
use crate::rings::Rings;
use braid_contract::{Context, Errno, Error, Result, Shown};
use braid_sys::{
    AlignedBuf, IdentifyController, IdentifyNamespace, LbaFormat, NvmeCommand, NvmeData, NvmeRing,
    identify_controller, identify_namespace, nvme_namespace,
};
use rustix::fs::{Mode, OFlags};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Most bytes of a command: what every device and its driver take as one.
const TRANSFER_MAX: usize = 128 << 10;
/// Commands of one read or write that are under way at a time.
const DEPTH: u32 = 32;
/// Bytes of a page of memory.
const PAGE: usize = 4096;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const DATASET_MANAGEMENT: u8 = 0x09;
/// The bit of a controller's optional commands that stands for dataset management.
const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
/// The attribute of dataset management by which ranges are deallocated.
const DEALLOCATE: u32 = 1 << 2;

/// An NVMe namespace, which no mount uses otherwise.
#[derive(Debug)]
pub(crate) struct Namespace {
    fd: OwnedFd,
    path: PathBuf,
    /// The block device of the same namespace: nothing else can use it meanwhile.
    _block_device: Option<OwnedFd>,
    shape: Shape,
    id: u32,
    rings: Rings<NvmeRing>,
}

/// What a namespace says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// In logical blocks.
    blocks: u64,
    /// Bytes of a logical block, as a power of two.
    shift: u32,
    /// Most bytes of a command.
    transfer: usize,
    /// It knows how to discard.
    discards: bool,
}

impl Shape {
    /// By the structures about its controller and about it.
    fn of(
        controller: &IdentifyController,
        namespace: &IdentifyNamespace,
    ) -> std::result::Result<Self, &'static str> {
        let LbaFormat { ms: metadata, lbads } = namespace.lba_format();
        if metadata != 0 {
            return Err("its blocks have metadata: format it without");
        }
        let shift = u32::from(lbads);
        if !(9..=BLOCK.ilog2()).contains(&shift) {
            return Err("its blocks are of another size than 512 to 4096 bytes");
        }
        let transfer = match controller.mdts() {
            0 => TRANSFER_MAX,
            power => TRANSFER_MAX.min(PAGE << power.min(16)),
        };
        let discards = controller.oncs() & ONCS_DATASET_MANAGEMENT != 0;
        Ok(Self { blocks: namespace.nsze(), shift, transfer, discards })
    }

    fn bytes(self) -> u64 {
        (self.blocks << self.shift) / BLOCK * BLOCK
    }
}

impl Namespace {
    /// The namespace behind an open character device.
    ///
    /// # Errors
    /// `ENODEV` if it is none that can be used, `EBUSY` if a mount or another program uses its
    /// block device, those of the device.
    pub(crate) fn new(fd: OwnedFd, path: &Path) -> Result<Self> {
        let shown = path.shown();
        let id = nvme_namespace(&fd);
        let id = id.map_err(|_| {
            Error::new(Errno::ENODEV, format!("{shown}: it is no NVMe namespace (such as /dev/ng0n1)"))
        })?;
        let block_device = hold_block_device(&fd, path)?;
        let asking = || format!("{shown}: asking it about itself");
        let controller = identify_controller(&fd).with_context(asking)?;
        let namespace = identify_namespace(&fd, id).with_context(asking)?;
        let shape = Shape::of(&controller, &namespace)
            .map_err(|why| Error::new(Errno::ENODEV, format!("{shown}: {why}")))?;
        let rings =
            Rings::new(|| NvmeRing::new(DEPTH), NvmeRing::is_usable).with_context(|| shown.to_string())?;
        Ok(Self { fd, path: path.to_owned(), _block_device: block_device, shape, id, rings })
    }

    fn command(&self, opcode: u8, words: [u32; 6]) -> NvmeCommand {
        NvmeCommand { opcode, namespace: self.id, words }
    }

    /// A read or write of whole blocks, from `offset` on.
    fn transfer(&self, opcode: u8, offset: u64, len: usize) -> NvmeCommand {
        let (first, count) = (offset >> self.shape.shift, (len >> self.shape.shift) as u32);
        NvmeCommand::of_blocks(opcode, self.id, first, count)
    }

    fn carry_out(&self, what: &str, offset: u64, commands: Vec<(NvmeCommand, NvmeData<'_>)>) -> Result<()> {
        let told = |error: io::Error| {
            let text = format!("{}: {what} at byte {offset}: {error}", self.path.shown());
            // That of a command which was cancelled is the device's.
            let errno = Error::from(error).errno();
            Error::new(if errno == Errno::EINTR || errno == Errno::EAGAIN { Errno::EIO } else { errno }, text)
        };
        self.rings.with(|ring| ring.carry_out(&self.fd, commands)).map_err(told)
    }

    fn within(&self, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.shape.blocks << self.shape.shift) {
            return Ok(());
        }
        Err(Error::new(Errno::EIO, format!("{}: byte {offset} is beyond its end", self.path.shown())))
    }

    /// Reads whole blocks.
    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut at = offset;
        let mut commands = Vec::new();
        for part in buf.chunks_mut(self.shape.transfer) {
            let len = part.len();
            commands.push((self.transfer(READ, at, len), NvmeData::In(part)));
            at += len as u64;
        }
        self.carry_out("reading", offset, commands)
    }
}

/// Keeps the block device of the namespace from all other users; `None` if it has none.
fn hold_block_device(fd: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>> {
    let shown = path.shown();
    let number = rustix::fs::fstat(fd).map_err(Error::from)?.st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    // By its number: the node may have any name.
    let found = std::fs::canonicalize(format!("/sys/dev/char/{major}:{minor}"));
    let found = found
        .map_err(|error| Error::from(error).context(format!("{shown}: looking for its block device")))?;
    let name = found.file_name().and_then(|name| name.to_str()?.strip_prefix("ng"));
    let Some(rest) = name else {
        return Err(Error::new(
            Errno::ENODEV,
            format!("{shown}: it is no generic device of an NVMe namespace"),
        ));
    };
    let block = Path::new("/dev").join(format!("nvme{rest}"));
    if !Path::new("/sys/class/block").join(format!("nvme{rest}")).exists() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::open(&block, flags, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => {
            let text = format!("{shown}: {} is in use, by a mount or another program", block.shown());
            Err(Error::new(Errno::EBUSY, text))
        }
        opened => opened.map(Some).map_err(|error| Error::from(error).context(block.shown().to_string())),
    }
}

impl Device for Namespace {
    fn size(&self) -> u64 {
        self.shape.bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.within(offset, buf.len())?;
        blocks::read(1 << self.shape.shift, offset, buf, |first, blocks| self.read_blocks(first, blocks))
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.within(offset, len)?;
        blocks::write(bufs, |data| {
            let mut at = offset;
            let mut commands = Vec::new();
            for part in data.chunks(self.shape.transfer) {
                commands.push((self.transfer(WRITE, at, part.len()), NvmeData::Out(part)));
                at += part.len() as u64;
            }
            self.carry_out("writing", offset, commands)
        })
    }

    fn flush(&self) -> Result<()> {
        self.carry_out("flushing", 0, vec![(self.command(FLUSH, [0; 6]), NvmeData::None)])
    }

    fn discard(&self, offset: u64, len: u64) {
        let (first, count) = (offset >> self.shape.shift, len >> self.shape.shift);
        let Ok(count) = u32::try_from(count) else { return };
        if !self.shape.discards || count == 0 {
            return;
        }
        let mut memory = AlignedBuf::new();
        let range = memory.bytes(PAGE);
        range.fill(0);
        range[4..8].copy_from_slice(&count.to_le_bytes());
        range[8..16].copy_from_slice(&first.to_le_bytes());
        // One range, of which there is one less in the command. It need not heed it.
        let command = self.command(DATASET_MANAGEMENT, [0, DEALLOCATE, 0, 0, 0, 0]);
        let _ = self.carry_out("discarding", offset, vec![(command, NvmeData::Out(&range[..16]))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_sys::IDENTIFY_LEN;

    #[test]
    fn what_a_device_says_of_itself_is_understood() {
        let (mut controller, mut namespace) = ([0; IDENTIFY_LEN], [0; IDENTIFY_LEN]);
        let shape_of = |controller, namespace| {
            Shape::of(&IdentifyController::new(controller), &IdentifyNamespace::new(namespace))
        };
        namespace[..8].copy_from_slice(&1_000_003_u64.to_le_bytes());
        namespace[26] = 1;
        namespace[128 + 4 + 2] = 9;
        (controller[77], controller[520]) = (3, 1 << 2);
        let shape = Shape { blocks: 1_000_003, shift: 9, transfer: 32 << 10, discards: true };
        assert_eq!(shape_of(controller, namespace), Ok(shape));
        assert_eq!(shape.bytes(), 512_000_000 / BLOCK * BLOCK);
        controller[77] = 0;
        assert_eq!(shape_of(controller, namespace).map(|shape| shape.transfer), Ok(TRANSFER_MAX));
        namespace[128 + 4 + 2] = 13;
        assert!(shape_of(controller, namespace).unwrap_err().contains("another size"));
        namespace[128 + 4] = 8;
        assert!(shape_of(controller, namespace).unwrap_err().contains("metadata"));
        // Formats beyond the sixteenth have their higher bits apart.
        (namespace[26], namespace[128 + 4 * 17 + 2]) = (0x21, 12);
        assert_eq!(shape_of(controller, namespace).map(|shape| shape.shift), Ok(12));
    }
}
