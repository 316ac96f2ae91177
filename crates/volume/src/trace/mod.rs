//! Traces: what applications did with a volume, as lines of text.
//!
//! `record` is one line and its fields; `read` takes a whole trace in; `recorder`
//! is what a mounted volume records with, `tap` where its operations pass it.
//! `docs/trace.md` is the format.

mod recorder;
mod tap;

pub(crate) use recorder::{FileTrace, Tracing};
pub use recorder::{Recorded, Recording};
