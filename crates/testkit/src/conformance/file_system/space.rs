//! The space of files: reserved, given back, distinguished from holes, copied.

use super::super::pattern;
use super::bed::{Bed, ROOT, errno};
use super::{Case, always};
use braid_contract::{Errno, FallocateMode, HandleId, Result, SeekTarget};

const MIB: u64 = 1 << 20;
const KEEP: FallocateMode = FallocateMode::Allocate { keep_size: true };
const GROW: FallocateMode = FallocateMode::Allocate { keep_size: false };
const ZERO_KEEP: FallocateMode = FallocateMode::ZeroRange { keep_size: true };
const ZERO_GROW: FallocateMode = FallocateMode::ZeroRange { keep_size: false };

pub(super) const CASES: [Case; 7] = [
    ("space is reserved and reads as zeros", |bed| takes(bed, GROW), space_is_reserved),
    ("a punched hole reads as zeros", |bed| takes(bed, FallocateMode::PunchHole), a_punched_hole),
    ("a punched hole returns its space", |bed| takes(bed, FallocateMode::PunchHole), space_returns),
    ("a range is zeroed", |bed| takes(bed, ZERO_KEEP), a_range_is_zeroed),
    ("data and holes are found", always, data_and_holes_are_found),
    ("a range is copied", copies, a_range_is_copied),
    ("the whole has its figures", always, the_whole_has_its_figures),
];

fn fallocate(bed: &Bed<'_>, handle: HandleId, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
    bed.fs.fallocate(&bed.caller, handle, offset, len, mode)
}

/// Whether the file system knows the mode.
fn takes(bed: &Bed<'_>, mode: FallocateMode) -> bool {
    let (ino, handle) = bed.create(ROOT, "probe");
    let answer = errno(fallocate(bed, handle, 0, 4096, mode));
    bed.close(handle);
    bed.unlink(ROOT, "probe").unwrap();
    bed.fs.forget(ino, 1);
    answer != Some(Errno::EOPNOTSUPP)
}

fn space_is_reserved(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.write(handle, 0, &[1; 5000]);
    fallocate(bed, handle, 0, MIB, KEEP).unwrap();
    assert_eq!(bed.attr_of(handle, ino).size, 5000);
    fallocate(bed, handle, MIB, MIB, GROW).unwrap();
    assert_eq!(bed.attr_of(handle, ino).size, 2 * MIB);
    fallocate(bed, handle, 0, 4096, GROW).unwrap();
    assert_eq!(bed.attr_of(handle, ino).size, 2 * MIB);
    let mut wanted = vec![1; 5000];
    wanted.resize(2 * MIB as usize, 0);
    bed.expect(handle, &wanted);
    assert!(bed.attr_of(handle, ino).blocks >= 2 * MIB / 512);
    bed.close(handle);
}

fn a_punched_hole(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    let mut data = pattern(5, 700_000);
    bed.write(handle, 0, &data);
    for (offset, len) in [(4096, 8192), (50_001, 77), (60_000, 300_000), (690_000, 90_000), (MIB, 4096)] {
        fallocate(bed, handle, offset, len, FallocateMode::PunchHole).unwrap();
        let end = data.len().min((offset + len) as usize);
        if let Some(hole) = data.get_mut(offset as usize..end) {
            hole.fill(0);
        }
        assert_eq!(bed.attr_of(handle, ino).size, 700_000, "the size stays");
    }
    bed.expect(handle, &data);
    bed.write(handle, 100_000, b"again");
    data[100_000..100_005].copy_from_slice(b"again");
    bed.expect(handle, &data);
    bed.close(handle);
}

fn space_returns(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    // Nothing makes this smaller.
    bed.write(handle, 0, &pattern(7, 4 * MIB as usize));
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    let before = bed.attr_of(handle, ino).blocks;
    fallocate(bed, handle, MIB, 2 * MIB, FallocateMode::PunchHole).unwrap();
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    let after = bed.attr_of(handle, ino).blocks;
    assert!(before >= after + 2 * MIB / 512, "{before} before, {after} after");
    bed.close(handle);
}

fn a_range_is_zeroed(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    let mut data = pattern(6, 300_000);
    bed.write(handle, 0, &data);
    fallocate(bed, handle, 5000, 100_000, ZERO_KEEP).unwrap();
    data[5000..105_000].fill(0);
    fallocate(bed, handle, 299_000, 100_000, ZERO_KEEP).unwrap();
    data[299_000..].fill(0);
    assert_eq!(bed.attr_of(handle, ino).size, 300_000);
    fallocate(bed, handle, 298_000, 2 * MIB, ZERO_GROW).unwrap();
    data[298_000..].fill(0);
    data.resize(298_000 + 2 * MIB as usize, 0);
    bed.expect(handle, &data);
    bed.close(handle);
}

fn data_and_holes_are_found(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    let seek = |offset, target| bed.fs.seek(&bed.caller, handle, offset, target);
    bed.write(handle, 4 * MIB, &[1; 4096]);
    bed.truncate(ino, 12 * MIB);
    // A file system that does not know its holes calls all of it data.
    let start = seek(0, SeekTarget::Data).unwrap();
    assert!(start == 4 * MIB || start == 0, "{start}");
    assert_eq!(seek(4 * MIB + 9, SeekTarget::Data).unwrap(), 4 * MIB + 9);
    let end = seek(4 * MIB, SeekTarget::Hole).unwrap();
    assert!((4 * MIB + 4096..=12 * MIB).contains(&end), "{end}");
    assert_eq!(seek(12 * MIB - 1, SeekTarget::Hole).unwrap().max(12 * MIB), 12 * MIB, "the end is a hole");
    if start > 0 {
        assert_eq!(seek(0, SeekTarget::Hole).unwrap(), 0);
        assert_eq!(errno(seek(8 * MIB, SeekTarget::Data)), Some(Errno::ENXIO));
    }
    for target in [SeekTarget::Data, SeekTarget::Hole] {
        assert_eq!(errno(seek(12 * MIB, target)), Some(Errno::ENXIO));
        assert_eq!(errno(seek(99 * MIB, target)), Some(Errno::ENXIO));
    }
    bed.close(handle);
}

/// Whether ranges are copied by the file system itself.
fn copies(bed: &Bed<'_>) -> bool {
    let (one, other) = (bed.create(ROOT, "one"), bed.create(ROOT, "other"));
    bed.write(one.1, 0, b"content");
    let answer = errno(bed.fs.copy_range(&bed.caller, one.1, 0, other.1, 0, 7));
    for ((ino, handle), name) in [(one, "one"), (other, "other")] {
        bed.close(handle);
        bed.unlink(ROOT, name).unwrap();
        bed.fs.forget(ino, 1);
    }
    answer != Some(Errno::EOPNOTSUPP)
}

fn a_range_is_copied(bed: &Bed<'_>) {
    let data = pattern(8, 500_000);
    let ((_, from), (_, to)) = (bed.create(ROOT, "from"), bed.create(ROOT, "to"));
    bed.write(from, 0, &data);
    bed.write(to, 0, b"before");
    // The file system may copy less at a time, and the rest is copied by hand;
    // the end of the source ends it.
    let mut done = 0;
    loop {
        let some = match bed.fs.copy_range(&bed.caller, from, 1000 + done, to, 3 + done, MIB) {
            Err(error) if error.errno() == Errno::EOPNOTSUPP => {
                let rest = bed.read(from, 1000 + done, 70_000);
                bed.write(to, 3 + done, &rest);
                rest.len() as u64
            }
            some => some.unwrap(),
        };
        if some == 0 {
            break;
        }
        done += some;
    }
    assert_eq!(done, 499_000);
    bed.expect(to, &[b"bef", &data[1000..]].concat());
    bed.expect(from, &data);
    bed.close(from);
    bed.close(to);
}

fn the_whole_has_its_figures(bed: &Bed<'_>) {
    let stat = bed.fs.statfs(&bed.caller).unwrap();
    assert!(stat.available > 0 && stat.available <= stat.free && stat.free <= stat.total, "{stat:?}");
    assert!(stat.files_free <= stat.files, "{stat:?}");
    assert!(stat.block_size >= 512 && stat.name_max >= 14, "{stat:?}");
}
