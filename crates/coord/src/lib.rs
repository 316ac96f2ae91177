//! The words by which readers, writers and movers of a file coordinate.
//!
//! * [`Barrier`]: every operation passes it; freezing it leaves none under way.
//! * [`WriterSlots`]: the ranges being written at this moment.
//! * [`Moving`]: the ranges of a file that move, and the writes to them
//!   meanwhile; [`carry_out`] is the order of a move's steps (Mux §2.4).
//! * [`Live`]: the size of a file in use, its appends, and its times.
//!
//! All of it is a view of a [`Region`]: a run of 8-byte words, which are memory
//! of one process ([`PrivateWords`]) or a mapping that processes share
//! ([`SharedWords`]). There is no state beside the words: no lock, no list, no
//! allocation. So a process that maps the words takes part with the same code
//! as the threads of the daemon. `layout` has the position of each word; a
//! region begins with a word for kind and version, and one of another version
//! is refused.
//!
//! # Two regions
//!
//! A volume has one region ([`VolumeWords`]): words that are the same for all,
//! and a page for each [*owner*](OwnerTag), with its barrier counts and its
//! slots. Only the *keeper*, the process that keeps the volume, changes the
//! common words, the table of owners among them; an owner changes those of its
//! own page, and loads nothing but these and the common ones. So common words
//! and pages can be mapped on their own, and a client that may store to its own
//! page only ([`VolumeShape::own_words`]) can harm none but itself. A spread
//! file has a region of its own ([`FileWords`]), to which processes that may
//! write the file may store.
//!
//! # Waiting
//!
//! A waiter sleeps on a futex, on the very word that it waits for. No word is
//! changed only to wake a thread, and threads that do not wait share nothing: a
//! write costs one compare-exchange in a slot, a fence and two loads, an
//! operation two additions to a counter. Futexes of shared words are between
//! processes. The kernel compares 32 bits, the lower half of a word, so the
//! awaited bits are there.
//!
//! # The death of an owner
//!
//! A client may die at any instruction. No thread searches for its leftovers;
//! waiting threads find them: a wait ends now and then, and the waiter asks its
//! [`Party`] whether the owner is alive.
//!
//! * Draining and freezing clear the counts and slots of dead owners. Such an
//!   owner may have written parts of its claims without marking them: so each
//!   move under way copies its whole range again ([`WriterSlots::deaths`]).
//! * A lock that a dead owner held goes to the next one that takes it, which
//!   learns of the death and repairs the guarded state ([`Changing`],
//!   [`Appending`]).
//! * That a process is gone means that its system calls have ended. A client
//!   must not leave writes to the kernel that outlive it (`io_uring`, AIO).
//!
//! The keeper moves ranges and freezes the barrier. The regions do not survive
//! its death, and are then created again.
//!
//! Built with `--cfg loom`, words, fences and futexes are those of the model
//! checker, and `model` runs this code in every interleaving.
#![forbid(unsafe_code)]

mod barrier;
mod layout;
mod live;
mod lock;
#[cfg(all(test, loom))]
mod model;
mod moving;
mod owner;
mod party;
mod protocol;
mod region;
mod slots;
mod sync;
mod tag;

pub use barrier::{Barrier, Entered, Frozen};
#[cfg(not(loom))]
pub use braid_sys::{SharedWords, SharedWordsView};
pub use layout::{AttachError, FileWords, MOVES_MAX, VolumeShape, VolumeWords};
pub use live::{Appending, Changing, Live};
pub use lock::Abandoned;
pub use moving::{Busy, CHUNKS, Held, Moving, Registered, Writing};
pub use owner::Member;
#[cfg(not(loom))]
pub use party::Running;
pub use party::{Liveness, Party, Sole};
pub use protocol::{CopyStats, CopySteps, PASSES_MAX, carry_out};
pub use region::{PrivateWords, ReadRegion, Region};
pub use slots::{Claim, RangeSpan, SPAN_RANGES_MAX, WriterSlots};
pub use sync::place_of_this_thread;
pub use tag::{OwnerTag, Process};
