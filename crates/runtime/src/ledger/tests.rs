//! The next process finds the records that a process left.

use super::format::FIRST;
use super::*;
use crate::asked;
use braid_contract::Errno;
use braid_contract::OpenFlags;
use braid_sdk::abi::Numbers;

pub(crate) const GEOMETRY: Geometry = Geometry { queues: 2, depth: 3, data: 4096 };

pub(crate) fn ledger() -> Arc<Ledger> {
    Ledger::new(GEOMETRY, Box::new(|_| {})).unwrap()
}

pub(crate) fn left_by(ledger: &Ledger) -> Records {
    Records::open(GEOMETRY, ledger.memory().unwrap()).unwrap()
}

/// A request of these numbers.
pub(crate) fn asked(numbers: Numbers) -> Asked {
    let words: Vec<AtomicU64> = (0..asked::WORDS).map(|_| AtomicU64::new(0)).collect();
    crate::words::store_value(&words[2..], &numbers);
    Asked::kept(&words, GEOMETRY).unwrap()
}

#[test]
fn what_is_known_and_open_is_found() {
    let ledger = ledger();
    // More than the first pieces hold.
    let all = 5 * FIRST as u64;
    for ino in 1..=all {
        ledger.knows(InodeId(ino), 1);
        ledger.knows(InodeId(ino), ino);
    }
    (1..=all).filter(|ino| ino % 3 == 0).for_each(|ino| ledger.knows(InodeId(ino), 0));
    let flags = OpenFlags { read: true, write: false, direct: false, sync: true };
    for handle in 1..=4 {
        ledger.opened(HandleId(handle), &OpenFile { ino: InodeId(9), flags, directory: handle == 2 });
    }
    [1, 2, 3].iter().for_each(|handle| ledger.mark_handle_delivered(HandleId(*handle)));
    ledger.closed(HandleId(1));
    let check = |records: &Records| {
        let mut found = records.inodes();
        found.sort_unstable();
        let expected = (1..=all).filter(|ino| ino % 3 != 0).map(|ino| (InodeId(ino), ino));
        assert_eq!(found, expected.collect::<Vec<_>>());
        let mut open = records.handles();
        open.sort_unstable_by_key(|(handle, _)| handle.0);
        let handles: Vec<_> = open.iter().map(|(handle, one)| (handle.0, one.directory, one.flags)).collect();
        // The application does not know the fourth.
        assert_eq!(handles, [(2, true, flags), (3, false, flags)]);
    };
    check(&left_by(&ledger));
    let next = Ledger::of(left_by(&ledger), Box::new(|_| {}));
    next.keep_delivered(&HashSet::from([HandleId(2), HandleId(3)]));
    next.mark_handle_delivered(HandleId(4));
    check(&left_by(&next));
    // Places are used again.
    let pieces = next.memory().unwrap().len();
    (0..all / 3).for_each(|more| next.knows(InodeId(1 << 40 | more), 1));
    assert_eq!(next.memory().unwrap().len(), pieces);
}

#[test]
fn what_was_taken_and_not_answered_is_found() {
    let ledger = ledger();
    let numbers = |offset| Numbers { offset, ..Numbers::default() };
    for (queue, slot, number) in [(0, 2, 4), (0, 0, 5), (1, 1, 7)] {
        ledger.taken(ledger.place(queue, slot), (number, number << 32), &Ok(asked(numbers(number))));
    }
    ledger.set_head(0, 6);
    // The process ended before it counted its last one.
    ledger.set_head(1, 7);
    ledger.note(ledger.place(0, 2), 11);
    ledger.done(ledger.place(0, 0), Errno::EIO.0);
    let records = left_by(&ledger);
    assert_eq!(records.heads(), [6, 8]);
    let found = records.unanswered(0);
    let seen: Vec<_> = found
        .iter()
        .map(|one| {
            let RequestRecord { phase, errno, note, .. } = one.found;
            (one.slot, one.generation, one.asked.as_ref().unwrap().numbers.offset, phase, errno, note)
        })
        .collect();
    assert_eq!(seen, [(2, 4 << 32, 4, Phase::Taken, 0, Some(11)), (0, 5 << 32, 5, Phase::Done, 5, None)]);
    // An opened file counts once its answer is there.
    let opened = OpenFile { ino: InodeId(9), flags: OpenFlags::default(), directory: false };
    ledger.opened(HandleId(3), &opened);
    assert!(left_by(&ledger).handles().is_empty());
    ledger.answered(ledger.place(0, 0), HandleId(3));
    assert_eq!(left_by(&ledger).handles().len(), 1);
    ledger.mark_delivered(ledger.place(0, 0), 5);
    assert_eq!((left_by(&ledger).handles().len(), left_by(&ledger).unanswered(0).len()), (1, 1));
}

/// The first process ends before it notes that it reported an opened file, the second after the
/// answer.
#[test]
fn what_was_opened_stays_after_two_crashes() {
    let first = ledger();
    let opened = OpenFile { ino: InodeId(9), flags: OpenFlags::default(), directory: false };
    first.opened(HandleId(3), &opened);
    let place = first.place(0, 0);
    first.taken(place, (0, 0), &Ok(asked(Numbers::default())));
    first.slot(place).set_answered(HandleId(3));
    let records = left_by(&first);
    let open = records.handles().iter().map(|(handle, _)| *handle).collect();
    let second = Ledger::of(records, Box::new(|_| {}));
    second.keep_delivered(&open);
    second.mark_delivered(place, 0);
    assert_eq!(left_by(&second).handles().len(), 1);
}

/// Its application may put another request into a slot as soon as it has the answer.
#[test]
fn a_request_in_a_slot_that_was_just_answered_stays() {
    let (ledger, numbers) = (ledger(), Numbers::default());
    let place = ledger.place(0, 1);
    ledger.taken(place, (4, 0), &Ok(asked(numbers)));
    assert!(ledger.is_under_way(place));
    ledger.answered(place, HandleId(0));
    assert!(!ledger.is_under_way(place));
    ledger.taken(place, (5, 1), &Ok(asked(numbers)));
    ledger.mark_delivered(place, 4);
    let found = left_by(&ledger).unanswered(0);
    assert_eq!(found.iter().map(|one| (one.number, one.generation)).collect::<Vec<_>>(), [(5, 1)]);
    ledger.mark_delivered(place, 5);
    assert!(left_by(&ledger).unanswered(0).is_empty());
}

#[test]
fn a_request_that_can_not_be_stays_so() {
    let ledger = ledger();
    let refused = Failure { errno: Errno::EINVAL.0, why: String::new() };
    ledger.taken(0, (0, 0), &Err(refused));
    assert!(left_by(&ledger).unanswered(0)[0].asked.is_err());
}

#[test]
fn records_of_other_sizes_are_refused() {
    let ledger = ledger();
    ledger.knows(InodeId(1), 1);
    let memory = || ledger.memory().unwrap();
    for geometry in [Geometry { queues: 16, ..GEOMETRY }, Geometry { queues: 0, ..GEOMETRY }] {
        assert!(Records::open(geometry, memory()).is_err());
    }
    assert!(Records::open(GEOMETRY, Vec::new()).is_err());
    let doubled = memory().into_iter().chain(memory().pop()).collect();
    assert!(Records::open(GEOMETRY, doubled).is_err());
}

/// The next process may be of another version.
#[test]
fn all_words_have_their_places() {
    let ledger = ledger();
    let words = |memory: &SharedWords, at: usize, count: usize| -> Vec<u64> {
        memory.words()[at..at + count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    };
    ledger.set_at_rest(true);
    ledger.set_shown(3);
    ledger.set_head(1, 6);
    assert_eq!((words(&ledger.slots, 0, 2), words(&ledger.slots, 16, 2)), (vec![1, 3], vec![0, 6]));
    // The slots follow the head.
    let (place, at) = (1, 32 + 7 + asked::WORDS);
    ledger.taken(place, (4, 7 << 32), &Ok(asked(Numbers { offset: 9, ..Numbers::default() })));
    assert_eq!(words(&ledger.slots, at, 7), [5, 1, 0, 0, 0, 7 << 32, 0]);
    ledger.note(place, 11);
    ledger.done(place, Errno::EIO.0);
    assert_eq!(words(&ledger.slots, at, 7), [5, 2, 5, 1, 11, 7 << 32, 0]);
    let copy = asked(Numbers { offset: 9, ..Numbers::default() });
    let kept: Vec<AtomicU64> = (0..asked::WORDS).map(|_| AtomicU64::new(0)).collect();
    copy.keep(&kept);
    let kept: Vec<u64> = kept.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert_eq!(words(&ledger.slots, at + 7, asked::WORDS), kept);
    ledger.knows(InodeId(9), 2);
    let flags = OpenFlags { read: false, write: true, direct: true, sync: false };
    ledger.opened(HandleId(3), &OpenFile { ino: InodeId(9), flags, directory: false });
    let opened = OpenFlags { read: true, write: false, direct: false, sync: true };
    ledger.opened(HandleId(4), &OpenFile { ino: InodeId(8), flags: opened, directory: true });
    ledger.answered(place, HandleId(3));
    assert_eq!(words(&ledger.slots, at, 7), [5, 3, 5, 1, 11, 7 << 32, 3]);
    let entries = words(&ledger.pieces.read()[0], 0, 16);
    assert_eq!(entries, [1, 9, 2, 0, 2, 3, 9, 2 | 4 | 32, 2, 4, 8, 1 | 8 | 16, 0, 0, 0, 0]);
    ledger.mark_delivered(place, 4);
    ledger.closed(HandleId(4));
    assert_eq!((words(&ledger.slots, at, 1), words(&ledger.pieces.read()[0], 8, 1)), (vec![0], vec![0]));
}
