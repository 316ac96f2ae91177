//! Flexible Data Placement of NVMe devices (NVM Express Base 2.1, "Flexible Data
//! Placement"): a write names a placement, and the device keeps the data of each in
//! reclaim units of its own.

use crate::native::device_dir;
use braid_contract::{Context, Error, Result};
use braid_sys::{
    AlignedBuf, IdentifyController, IdentifyNamespace, LbaFormat, NvmeCommand, NvmeData, NvmeQueue,
    identify_controller, identify_namespace, nvme_command, nvme_namespace,
};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that are asked for at a time: a page of memory. The device gets the length of
/// a buffer of several pages, and some refuse one that is longer than their answer.
const PAGE: usize = 4096;
/// That as commands count it: in words of four bytes, less one.
const DWORDS: u32 = (PAGE / 4 - 1) as u32;

/// The data placement of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fdp {
    namespace: u32,
    /// Bytes of a logical block, as a power of two.
    shift: u32,
    ids: Vec<u16>,
    unit: u64,
}

impl Fdp {
    /// That of the block device of this number; `None` if it has none, or this process
    /// may not use it.
    pub(super) fn of(device: impl AsFd, number: u64) -> Option<Self> {
        let device = device.as_fd();
        // The blocks of a part of a device are numbered otherwise.
        if device_dir(number).join("partition").exists() {
            return None;
        }
        let namespace = nvme_namespace(device).ok()?;
        match Self::ask(device, namespace) {
            Ok(found) => found,
            Err(error) => {
                tracing::info!(%error, "no data placement is used");
                None
            }
        }
    }

    fn ask(device: BorrowedFd<'_>, namespace: u32) -> Result<Option<Self>> {
        let controller = identify_controller(device).context("asking for its controller")?;
        if !has_placement(&controller) {
            return Ok(None);
        }
        let found = identify_namespace(device, namespace).context("asking for its namespace")?;
        let Some((group, shift)) = group_and_shift(&found) else { return Ok(None) };
        const GET_FEATURES: u8 = 0x0a;
        const FEATURE: u32 = 0x1d;
        let feature = nvme_command(
            device,
            NvmeQueue::Admin,
            NvmeCommand { opcode: GET_FEATURES, namespace: 0, words: [FEATURE, group.into(), 0, 0, 0, 0] },
            NvmeData::None,
        );
        let Some(configuration) = configuration_in_use(feature.context("asking for the feature")?) else {
            return Ok(None);
        };
        const GET_LOG_PAGE: u8 = 0x02;
        const CONFIGURATIONS: u32 = 0x20;
        let mut buf = AlignedBuf::new();
        let page = buf.bytes(PAGE);
        let words = [CONFIGURATIONS | DWORDS << 16, u32::from(group) << 16, 0, 0, 0, 0];
        let command = NvmeCommand { opcode: GET_LOG_PAGE, namespace: 0, words };
        nvme_command(device, NvmeQueue::Admin, command, NvmeData::In(&mut *page))
            .context("asking for its configurations")?;
        let Some(unit) = unit_size(page, configuration) else { return Ok(None) };
        const RECEIVE: u8 = 0x12;
        const UNIT_HANDLE_STATUS: u32 = 1;
        page.fill(0);
        let words = [UNIT_HANDLE_STATUS, DWORDS, 0, 0, 0, 0];
        let command = NvmeCommand { opcode: RECEIVE, namespace, words };
        nvme_command(device, NvmeQueue::Io, command, NvmeData::In(&mut *page))
            .context("asking for its handles")?;
        let ids = placements(page);
        Ok((!ids.is_empty()).then_some(Self { namespace, shift, ids, unit }))
    }

    /// The placements, the default one for writes that name none first. Each is of
    /// a reclaim unit handle of its own.
    pub(super) fn ids(&self) -> &[u16] {
        &self.ids
    }

    /// Bytes of a reclaim unit.
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Writes all of `bufs` from `at` on under a placement, in pieces of at most `piece`
    /// bytes. `wrote` learns how many bytes were written so far.
    pub(super) fn write(
        &self,
        device: impl AsFd,
        (at, placement): (u64, u16),
        bufs: &[IoSlice<'_>],
        piece: usize,
        wrote: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut total = 0;
        for piece in bufs.iter().flat_map(|buf| buf.chunks(piece)) {
            let command = self.write_command(at + total, piece.len() as u64, placement);
            nvme_command(&device, NvmeQueue::Io, command, NvmeData::Out(piece)).map_err(Error::from)?;
            total += piece.len() as u64;
            wrote(total);
        }
        Ok(())
    }

    fn write_command(&self, at: u64, len: u64, placement: u16) -> NvmeCommand {
        const WRITE: u8 = 0x01;
        /// The directive type "data placement", and where it is in dword 12.
        const DATA_PLACEMENT: u32 = 2 << 20;
        let (block, blocks) = (at >> self.shift, (len >> self.shift) as u32);
        let mut command = NvmeCommand::of_blocks(WRITE, self.namespace, block, blocks);
        command.words[2] |= DATA_PLACEMENT;
        command.words[3] = u32::from(placement) << 16;
        command
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Whether a controller knows of it.
fn has_placement(controller: &IdentifyController) -> bool {
    const FLEXIBLE_DATA_PLACEMENT: u32 = 1 << 19;
    controller.ctratt() & FLEXIBLE_DATA_PLACEMENT != 0
}

/// The endurance group of a namespace, and its logical block as a power of two; `None` if it has
/// no group, or metadata that would have to be written.
fn group_and_shift(namespace: &IdentifyNamespace) -> Option<(u16, u32)> {
    let (group, LbaFormat { ms: metadata, lbads }) = (namespace.endgid(), namespace.lba_format());
    (group > 0 && metadata == 0 && (9..=16).contains(&lbads)).then_some((group, lbads.into()))
}

/// The configuration that is in use, by the value of the feature; `None` if it is
/// disabled.
fn configuration_in_use(feature: u32) -> Option<usize> {
    (feature & 1 == 1).then_some((feature >> 8 & 0xff) as usize)
}

/// Bytes of a reclaim unit, of a configuration of the log page of all.
fn unit_size(page: &[u8], configuration: usize) -> Option<u64> {
    const HEADER: usize = 16;
    let last = usize::from(u16_at(page, 0)?);
    if configuration > last {
        return None;
    }
    let mut at = HEADER;
    for _ in 0..configuration {
        at += usize::from(u16_at(page, at)?).max(64);
    }
    u64_at(page, at + 16).filter(|unit| *unit > 0)
}

/// The placements of a namespace, one for each reclaim unit handle: others of the same
/// handle would not be kept apart.
fn placements(status: &[u8]) -> Vec<u16> {
    const HEADER: usize = 16;
    const EACH: usize = 32;
    let count = u16_at(status, 14).map_or(0, usize::from);
    let mut handles = BTreeSet::new();
    let each = (0..count).map_while(|number| {
        let at = HEADER + number * EACH;
        Some((u16_at(status, at)?, u16_at(status, at + 2)?))
    });
    each.filter(|(_, handle)| handles.insert(*handle)).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_sys::IDENTIFY_LEN;

    #[test]
    fn what_a_device_says_of_itself_is_understood() {
        // As QEMU 10.0 answers.
        let mut controller = [0; IDENTIFY_LEN];
        let placement_of = |controller| has_placement(&IdentifyController::new(controller));
        controller[96..100].copy_from_slice(&[0x10, 0x80, 0x08, 0x00]);
        assert!(placement_of(controller));
        controller[98] = 0x07;
        assert!(!placement_of(controller));
        let mut namespace = [0; IDENTIFY_LEN];
        let found = |namespace| group_and_shift(&IdentifyNamespace::new(namespace));
        (namespace[26], namespace[102]) = (4, 1);
        namespace[128 + 16..][..4].copy_from_slice(&[0, 0, 12, 0]);
        assert_eq!(found(namespace), Some((1, 12)));
        namespace[128 + 16] = 8;
        assert_eq!(found(namespace), None, "with metadata");
        (namespace[128 + 16], namespace[102]) = (0, 0);
        assert_eq!(found(namespace), None, "without a group");
        assert_eq!([0, 1, 0x301, 0x300].map(configuration_in_use), [None, Some(0), Some(3), None]);
    }

    #[test]
    fn the_size_of_a_reclaim_unit_is_that_of_the_configuration_in_use() {
        let mut page = vec![0; 4096];
        (page[0], page[16], page[16 + 0x60]) = (1, 0x60, 0x60);
        page[32..40].copy_from_slice(&(32u64 << 20).to_le_bytes());
        page[32 + 0x60..40 + 0x60].copy_from_slice(&(6u64 << 30).to_le_bytes());
        assert_eq!([0, 1, 2].map(|which| unit_size(&page, which)), [Some(32 << 20), Some(6 << 30), None]);
        assert_eq!((unit_size(&page[..20], 0), unit_size(&[], 0)), (None, None));
        page[32..40].fill(0);
        assert_eq!(unit_size(&page, 0), None);
    }

    #[test]
    fn each_handle_is_used_once() {
        let mut status = vec![0; 16 + 5 * 32];
        status[14] = 5;
        for (number, (id, handle)) in [(0, 3), (1, 4), (2, 3), (0x101, 5), (0x102, 4)].into_iter().enumerate()
        {
            status[16 + number * 32..][..2].copy_from_slice(&u16::to_le_bytes(id));
            status[18 + number * 32..][..2].copy_from_slice(&u16::to_le_bytes(handle));
        }
        assert_eq!(placements(&status), [0, 1, 0x101]);
        status[14] = 250;
        assert_eq!(placements(&status), [0, 1, 0x101], "no more than there are");
        assert!(placements(&[]).is_empty());
    }

    #[test]
    fn a_write_names_its_blocks_and_its_placement() {
        let fdp = Fdp { namespace: 7, shift: 12, ids: vec![0, 5], unit: 1 << 20 };
        let command = fdp.write_command(0x12_3456_7890_1000, 1 << 20, 5);
        assert_eq!((command.opcode, command.namespace), (1, 7));
        assert_eq!(command.words, [0x4567_8901, 0x123, 255 | 2 << 20, 5 << 16, 0, 0]);
    }
}
