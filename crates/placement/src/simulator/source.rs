//! Where the operations of a simulation come from.

use crate::trace::{TraceFile, TraceOp};

/// An operation, as its source knows it.
pub(super) type OpId = usize;

/// Says what is done, and when; is told when it has ended.
pub(super) trait Source {
    /// What is told of a file that an operation names.
    fn file(&self, at: usize) -> &TraceFile;

    /// An operation that was named as one to begin.
    fn op(&self, id: OpId) -> TraceOp;

    /// The operations that wait for no other, and when they begin, in
    /// nanoseconds.
    fn start(&mut self, now_ns: u64) -> Vec<(u64, OpId)>;

    /// An operation has ended. Answers those that waited for it, and when they
    /// begin.
    fn ended(&mut self, id: OpId, now_ns: u64) -> Vec<(u64, OpId)>;
}
