//! What one process has told of a volume, the next does not tell again.

use crate::common::{Bed, Open, RANGE, caller, faulty, pattern};
use braid_contract::{Errno, FileSystem, HandleId, Result};
use braid_stores::fault::{FaultKind, FaultOp, FaultRule};
use braid_volume::Volume;

#[test]
fn a_failed_sync_is_reported_once_by_each_descriptor() {
    let bed = Bed::new();
    let mut config = bed.config();
    let control = faulty(&mut config);
    let open = Open { volume: Volume::open(config).unwrap() };
    let (ino, first) = open.create("f");
    // Whichever is opened anew first, others have reported the error, and one has not.
    let mut reported: Vec<HandleId> = [(); 3].map(|()| open.open(ino)).to_vec();
    let silent = open.open(ino);
    reported.extend([(); 3].map(|()| open.open(ino)));
    reported.push(first);
    open.write_ranges(first, &pattern(1, 4 * RANGE as usize));
    control.set(vec![FaultRule::once(FaultOp::Sync, FaultKind::Fail(Errno::EIO))]);
    let sync = |open: &Open, handle: HandleId| -> Result<()> { open.volume.fsync(&caller(), handle, true) };
    for handle in &reported {
        assert_eq!(sync(&open, *handle).unwrap_err().errno(), Errno::EIO);
    }
    open.wait_until_online();
    if open.volume.may_be_given().is_err_and(|error| error.errno() == Errno::EOPNOTSUPP) {
        return open.close();
    }
    let state = open.volume.give();
    drop(open);
    let open = Open { volume: Volume::open_taken(bed.config(), state).unwrap() };
    for handle in &reported {
        sync(&open, *handle).unwrap();
    }
    assert_eq!(sync(&open, silent).unwrap_err().errno(), Errno::EIO);
    sync(&open, silent).unwrap();
    for handle in reported.into_iter().chain([silent]) {
        open.volume.release(handle).unwrap();
    }
    open.close();
}
