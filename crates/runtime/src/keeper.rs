//! Keeps sessions for a process that goes on after a crash of this one.

use crate::handover::SessionState;
use std::os::fd::BorrowedFd;

/// Keeps the data that sessions need outside of this process. The data of a call is kept when the
/// call returns.
pub trait SessionKeeper: Send + Sync {
    /// Sessions begin at this socket.
    fn listens(&self, listener: BorrowedFd<'_>);

    /// A session begins, or goes on with other records: its memory, its socket, and the
    /// memory of its records.
    fn begun(&self, state: &SessionState, descriptors: &[BorrowedFd<'_>]);

    /// A session has this memory of records, too. A session that has not begun passes all of it
    /// when it begins.
    fn grown(&self, session: u64, memory: BorrowedFd<'_>);

    /// A session is over.
    fn ended(&self, session: u64);
}
