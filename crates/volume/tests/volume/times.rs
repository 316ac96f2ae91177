//! Times of files that several parties set at once.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{FileSystem, InodeId, SetAttr, SetTime, Timestamp};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const WHEN: Timestamp = Timestamp { secs: 113_468_801, nanos: 671_906_952 };

fn set_mtime(open: &Open, ino: InodeId) {
    let changes = SetAttr { mtime: Some(SetTime::At(WHEN)), ..SetAttr::default() };
    open.volume.setattr(&caller(), ino, None, &changes).unwrap();
}

fn mtime(open: &Open, ino: InodeId) -> Timestamp {
    open.volume.getattr(&caller(), ino, None).unwrap().mtime
}

/// Runs `first` beside `second`, which in each turn meets another step of it.
fn beside(turn: u64, first: impl FnOnce() + Send, second: impl FnOnce()) {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            first();
        });
        start.wait();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(turn * 100 % 80_000) {
            std::hint::spin_loop();
        }
        second();
    });
}

/// A handle's release comes to the daemon after `close`, beside what the
/// program does next.
#[test]
fn a_time_that_was_set_outlasts_the_release_of_a_written_handle() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(1, 4 * RANGE as usize));
    open.volume.release(handle).unwrap();
    for turn in 0..8_000 {
        let handle = open.open(ino);
        open.write(handle, 5_000, b"written before the time is set");
        beside(turn, || open.volume.release(handle).unwrap(), || set_mtime(&open, ino));
        assert_eq!(mtime(&open, ino), WHEN, "turn {turn}");
    }
}

#[test]
fn a_time_that_was_set_outlasts_a_move_of_the_file() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(1, 10_000));
    open.volume.release(handle).unwrap();
    for turn in 0..600 {
        let to = if turn % 2 == 0 { "slow" } else { "fast" };
        let changes = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        open.volume.setattr(&caller(), ino, None, &changes).unwrap();
        beside(
            turn * 50,
            || open.volume.move_range(ino, 0, to, &mut || {}).map(drop).unwrap(),
            || set_mtime(&open, ino),
        );
        assert_eq!(mtime(&open, ino), WHEN, "turn {turn}");
    }
}
