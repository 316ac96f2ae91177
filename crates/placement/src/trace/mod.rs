//! Traces: what applications did with a volume, as lines of text.
//!
//! `record` is one line and its fields; `read` takes a whole trace in.
//! `docs/trace.md` is the format.

mod read;
mod record;

pub use read::{Trace, TraceError, TraceFile, TraceOp};
pub use record::{Header, LineKind, Record, TRACE_VERSION, TraceOpKind, end_line, line};
