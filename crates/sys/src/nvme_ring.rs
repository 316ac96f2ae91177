//! Commands to an NVMe namespace through io_uring (`IORING_OP_URING_CMD` on its generic
//! character device, Linux 5.19): several are under way at a time, and none passes the kernel's
//! block layer.

use crate::batch_ring::BatchRing;
use crate::nvme::{NvmeCommand, NvmeData, RawCommand, refused};
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// The bit of a status that says that the command fails each time.
const DO_NOT_RETRY: i32 = 0x4000;
/// How often a command is tried at most: the kernel tries none of these again by itself.
const ATTEMPTS_MAX: usize = 20;
/// The time until the next attempt.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bytes of a command in an entry of the queue.
const COMMAND: usize = 80;

/// A ring for commands, used by one thread at a time.
#[derive(Debug)]
pub struct NvmeRing(BatchRing<squeue::Entry128, cqueue::Entry32>);

impl NvmeRing {
    /// A ring for up to `depth` commands at a time.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no memory for it.
    pub fn new(depth: u32) -> io::Result<Self> {
        BatchRing::new(depth).map(Self)
    }

    /// Has the device carry commands out, in any order; returns when all are done. Their data
    /// is not longer than the device takes at once.
    ///
    /// # Errors
    /// The first one: `EOPNOTSUPP` where the kernel can't do so, `EINVAL` if data goes the other
    /// way than that of the opcode; one without a number, with the status, if the device refuses a
    /// command. The others may be done, or not.
    pub fn carry_out(
        &mut self,
        device: impl AsFd,
        commands: Vec<(NvmeCommand, NvmeData<'_>)>,
    ) -> io::Result<()> {
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let batch = (0..).zip(commands.by_ref().take(self.0.depth()));
            let entries: io::Result<Vec<_>> =
                batch.map(|(number, command)| Ok(entry(&device, command)?.user_data(number))).collect();
            // SAFETY: the memory and the device are borrowed until this returns.
            unsafe { complete(&mut self.0, entries?) }?;
        }
        Ok(())
    }

    /// Whether it can be used again.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.is_usable()
    }
}

/// Submits numbered entries, at most as many as the ring has, and waits for all; tries those
/// again that the device did not get to, as while it is reset.
///
/// # Safety
/// As [`BatchRing::submit`].
unsafe fn complete(
    ring: &mut BatchRing<squeue::Entry128, cqueue::Entry32>,
    mut entries: Vec<squeue::Entry128>,
) -> io::Result<()> {
    for attempt in 1.. {
        // SAFETY: the caller's promise.
        let statuses = unsafe { ring.submit(&entries) }?;
        let failed = || statuses.iter().filter(|(_, status)| *status != 0);
        let lasting = failed().find(|(_, status)| attempt == ATTEMPTS_MAX || !is_passing(*status));
        if let Some((_, status)) = lasting {
            return told(*status);
        }
        let again: Vec<u64> = failed().map(|(number, _)| *number).collect();
        if again.is_empty() {
            break;
        }
        entries.retain(|entry| again.contains(&entry.get_user_data()));
        std::thread::sleep(RETRY_DELAY);
    }
    Ok(())
}

/// Whether a command may be done if it is tried again.
fn is_passing(status: i32) -> bool {
    match status {
        status if status > 0 => status & DO_NOT_RETRY == 0,
        errno => [libc::EINTR, libc::EAGAIN].contains(&-errno),
    }
}

fn told(status: i32) -> io::Result<()> {
    match status {
        0 => Ok(()),
        status if status > 0 => Err(refused(status)),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

fn entry(device: &impl AsFd, (command, data): (NvmeCommand, NvmeData<'_>)) -> io::Result<squeue::Entry128> {
    let raw = RawCommand::new(command, data)?;
    let mut bytes = [0; COMMAND];
    bytes[..size_of::<RawCommand>()].copy_from_slice(bytemuck::bytes_of(&raw));
    let device = types::Fd(device.as_fd().as_raw_fd());
    Ok(opcode::UringCmd80::new(device, NVME_URING_CMD_IO).cmd(bytes).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        for (status, passes) in
            [(0x4002, false), (0x2, true), (-libc::EINTR, true), (-libc::EOPNOTSUPP, false)]
        {
            assert_eq!(is_passing(status), passes, "{status:#x}");
        }
    }

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!((NVME_URING_CMD_IO >> 16 & 0x3fff) as usize, size_of::<RawCommand>());
    }

    #[test]
    fn what_takes_no_commands_fails_them_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Ok(mut ring) = NvmeRing::new(2) else { return };
        let mut memory = vec![[0; 512]; 5];
        let read = NvmeCommand { opcode: 2, namespace: 1, ..NvmeCommand::default() };
        let commands = memory.iter_mut().map(|memory| (read, NvmeData::In(memory))).collect();
        let refused = ring.carry_out(&file, commands).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
        // The kernel has nothing of it any more.
        assert!(ring.0.is_empty() && ring.is_usable());
        let wrong_way = vec![(read, NvmeData::Out(&[0; 512]))];
        assert_eq!(ring.carry_out(&file, wrong_way).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
