//! Traces: recorded operations on a volume, as lines of text.
//!
//! `record` is one line and its fields; `read` parses a whole trace.
//! `docs/trace.md` has the format.

mod read;
mod record;

pub use read::{Trace, TraceError, TraceFile, TraceOp};
pub use record::{Header, LineKind, Record, TRACE_VERSION, TraceOpKind, end_line, line};
