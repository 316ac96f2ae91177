//! Streams of data (Reshim §3.2): which file belongs to which, by the names of files and of the
//! threads that write them, or by the past of similar files, and how long its data is expected to
//! live. Pure: no I/O. Placement uses it after the rules, and hands its answer to stores.
#![forbid(unsafe_code)]

mod glob;
mod hints;
mod learn;
mod profile;

pub use glob::{Glob, GlobError};
pub use hints::{HintConfig, Hints, KnownStream, LearnWhere};
pub use learn::{
    LEARNED_MAX, LearnedKind, LearnedStream, Learner, Opening, RememberedKind, Written, learned_most,
    learned_name, learned_number, life_of,
};
pub use profile::{FoundStream, Profile, ProfileStream, Task, Writer};
