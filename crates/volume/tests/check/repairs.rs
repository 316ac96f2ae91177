//! What a check says of sound volumes, and what a repair must not do.

use crate::bed::Bed;

#[test]
fn a_sound_volume_has_no_problem_and_is_not_changed() {
    let bed = Bed::filled();
    let state = bed.state();
    let report = bed.try_check(false).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!((report.files, report.spread_files), (5, 4));
    assert_eq!(bed.state(), state);
    assert!(bed.check(true).is_empty());
    assert_eq!(bed.state(), state, "nor by a repair that has nothing to do");
}
