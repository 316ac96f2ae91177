//! The source of a simulation's operations.

use crate::trace::{TraceFile, TraceOp};

/// An operation, as its source knows it.
pub(super) type OpId = usize;

/// Provides operations and their start times; is notified of their ends.
pub(super) trait Source {
    /// The description of an operation's file.
    fn file(&self, at: usize) -> &TraceFile;

    /// An operation by its id.
    fn op(&self, id: OpId) -> TraceOp;

    /// The operations that wait for no other, and their start times in
    /// nanoseconds.
    fn start(&mut self, now_ns: u64) -> Vec<(u64, OpId)>;

    /// Notes the end of an operation. Answers those that waited for it, and
    /// their start times.
    fn ended(&mut self, id: OpId, now_ns: u64) -> Vec<(u64, OpId)>;
}
