//! Reference model, differential runner and conformance suites.
//!
//! Sequences of file-system operations ([`Op`]) are carried out side by side on
//! two [`Subject`]s: directories on mounted file systems ([`NativeSide`]),
//! reached by system calls like any application's, or the in-memory [`Model`].
//! Every result, and at intervals the whole tree, must agree. A sequence that
//! does not is shrunk before it is reported. Tests and the `differential`
//! binary use this crate; nothing that is shipped does.
//!
//! Memory mappings are not in the language, because mapping is unsafe and this
//! crate is not: `fsx` and `fio` cover them.
#![forbid(unsafe_code)]

mod common;
pub mod conformance;
pub mod crash;
pub mod damage;
mod differential;
pub mod dir_fs;
mod direct;
pub mod every_operation;
mod fault;
mod generate;
mod model;
mod native;
mod once_free;
mod op;
mod outcome;
mod parallel;
mod random;
mod shrink;
pub mod sim;
mod skip;
mod tree;

pub use common::Common;
pub use differential::{Difference, Failure, Runner, Settings, Totals, run_case};
pub use direct::DirectSide;
pub use fault::{Fault, FaultySide};
pub use generate::{prelude, sequence};
pub use model::{Model, ModelSide};
pub use native::{Native, NativeSide};
pub use once_free::once_free;
pub use op::{
    Access, AllocateMode, Data, Name, Op, OpenSpec, Path, RenameMode, Room, SLOTS, SeekTo, SetTime, Target,
    XattrMode, XattrName,
};
pub use outcome::{Answer, Bytes, Kind, Outcome, Stat, Time};
pub use parallel::run_parallel;
pub use random::{SplitMix, write_random};
pub use skip::{ALL_TESTS, must_run_all, skipped, unsupported};
pub use tree::{Content, Node, Tree, difference};

use rustix::io::Errno;
use std::io;

/// Carries out operations: one side of a comparison, for one sequence.
pub trait Subject: Send {
    /// Carries out one operation.
    fn apply(&mut self, op: &Op) -> Outcome;

    /// Everything that can be seen in the tree and through the open slots.
    ///
    /// # Errors
    /// The error that kept the tree from being read.
    fn snapshot(&mut self) -> Result<Tree, Errno>;
}

/// Makes [`Subject`]s: one side of a comparison, for all sequences.
pub trait Side: Sync {
    /// A subject with an empty tree of its own.
    ///
    /// # Errors
    /// The error that kept the tree from being made.
    fn begin(&self, case: &str) -> io::Result<Box<dyn Subject>>;

    /// One more subject in the tree of `case`, which is made if need be.
    /// Sides without a tree that can be shared answer as [`begin`](Self::begin).
    ///
    /// # Errors
    /// The error that kept the tree from being made.
    fn join(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        self.begin(case)
    }

    /// Removes the tree of `case`, whose subject is gone.
    ///
    /// # Errors
    /// The error of the removal, which is as much a failure of the file system
    /// as a wrong result.
    fn end(&self, case: &str) -> io::Result<()>;
}
