//! Streams of data (Reshim §3.2): which file belongs to which, by the names of
//! files and of the threads that write them, and how long its data is expected to
//! live. Pure: no I/O. Placement asks it after the rules, and hands to stores what it
//! says.
#![forbid(unsafe_code)]

mod glob;
mod hints;
mod profile;

pub use glob::{Glob, GlobError};
pub use hints::{HintConfig, Hints, KnownStream};
pub use profile::{Profile, ProfileStream, Task};
