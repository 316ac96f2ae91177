//! Coordination of the volume's own threads: `braid-coord` over memory of this
//! process, which is the only one so far.

use braid_coord::{FileWords, PrivateWords, Sole, VolumeWords};

pub(crate) type Barrier = braid_coord::Barrier<PrivateWords, Sole>;
pub(crate) type Entered<'a> = braid_coord::Entered<'a, PrivateWords>;
pub(crate) type WriterSlots = braid_coord::WriterSlots<PrivateWords, Sole>;
pub(crate) type Moving = braid_coord::Moving<PrivateWords, Sole>;
pub(crate) type Registered = braid_coord::Registered<PrivateWords, Sole>;
pub(crate) type Writing<'a> = braid_coord::Writing<'a, PrivateWords, PrivateWords>;
pub(crate) type Live = braid_coord::Live<PrivateWords, Sole>;
pub(crate) type Changing<'a> = braid_coord::Changing<'a, PrivateWords>;

/// Counters of the barrier: enough for as many processors.
const COUNTS: u16 = 64;

/// Threads that may write at a time; further ones wait.
const SLOTS: u16 = 256;

/// The state by which operations on a volume coordinate.
pub fn of_volume() -> (Barrier, WriterSlots) {
    let words = VolumeWords::private(COUNTS, SLOTS);
    (Barrier::new(words.clone(), Sole), WriterSlots::new(words, Sole))
}

/// The state by which the users of a spread file coordinate.
pub(crate) fn of_file() -> (Moving, Live) {
    let words = FileWords::private();
    (Moving::new(words.clone(), Sole), Live::new(words, Sole))
}
