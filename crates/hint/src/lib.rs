//! Streams of data and lifetime groups within them (Reshim §3.2): which file belongs
//! to which, by names or as learned from what files did, and what each kind of device
//! is told. Pure: no I/O, no clock, no chance but from a seed.
#![forbid(unsafe_code)]

mod groups;
mod learn;
mod levels;
mod streams;

pub use groups::{GroupInterval, Groups};
pub use learn::{FileFacts, FileStory, Learner, LearnerSettings};
pub use levels::{WriteLife, write_life};
pub use streams::{StreamNames, TooManyStreams};
