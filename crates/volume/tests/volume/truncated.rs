//! Truncation of files on a tier that fails meanwhile.

use crate::common::{Bed, Open, RANGE, caller, faulty, pattern};
use braid_contract::{Errno, FileSystem, SetAttr};
use braid_stores::fault::{FaultKind, FaultOp, FaultRule};
use braid_volume::Volume;

#[test]
fn what_a_failing_tier_kept_of_a_truncated_file_does_not_come_back() {
    let bed = Bed::new();
    let mut config = bed.config();
    let control = faulty(&mut config);
    let open = Open { volume: Volume::open(config).unwrap() };
    let len = 8 * RANGE;
    let (ino, handle) = open.create("file");
    open.write_ranges(handle, &pattern(len, len as usize));
    let explained = open.volume.explain(ino).unwrap();
    let there =
        explained.runs.iter().find(|run| run.tier.as_ref().is_some_and(|tier| tier.id.0 == 1)).unwrap();
    let size = there.offset + 100;
    let set_size = |size| {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        open.volume.setattr(&caller(), ino, Some(handle), &changes)
    };

    control.set(vec![FaultRule::each(FaultOp::Truncate, FaultKind::Fail(Errno::EIO))]);
    assert_eq!(set_size(size).unwrap_err().errno(), Errno::EIO);
    // Until the tier is well, the file does not grow over what is left there.
    assert_eq!(set_size(len).unwrap_err().errno(), Errno::EIO);
    control.clear();
    open.wait_until_online();
    assert_eq!(set_size(len).unwrap().size, len);
    let mut gap = vec![1; RANGE as usize - 100];
    let read = open.volume.read(&caller(), handle, size, &mut gap, true).unwrap();
    assert_eq!(read, gap.len());
    assert!(gap.iter().all(|byte| *byte == 0), "old bytes show");
    open.volume.release(handle).unwrap();
    open.close();
}
