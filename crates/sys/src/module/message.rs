//! An operation and its answer without pointers, for the safe side of the interface.

use super::raw::{Answers, Attributes, Capabilities, Numbers};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An operation with its arguments.
pub struct Message<'a> {
    /// Arguments that are numbers.
    pub numbers: Numbers,
    /// The caller's further groups.
    pub groups: &'a [u32],
    /// A name.
    pub name: &'a [u8],
    /// Another name.
    pub new_name: &'a [u8],
    /// The data to write.
    pub data: &'a [u8],
    /// The buffer for data read.
    pub buffer: &'a mut [u8],
    /// The sink for the entries of a directory.
    pub entries: Option<&'a mut dyn Entries>,
}

impl Message<'_> {
    /// One without bytes.
    #[must_use]
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, groups: &[], name: &[], new_name: &[], data: &[], buffer: &mut [], entries: None }
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

/// Takes the entries of a directory until there is no room.
pub trait Entries {
    /// Takes one entry; `false` if there was no room for it.
    fn add(&mut self, entry: &Listed<'_>) -> bool;
}

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its number.
    pub ino: u64,
    /// The offset to go on from after it.
    pub next_offset: i64,
    /// The name.
    pub name: &'a [u8],
    /// Type bits, or 0.
    pub kind: u32,
    /// Attributes, if they were asked for.
    pub attributes: Option<Attributes>,
    /// The file can't be looked up.
    pub damaged: bool,
}

/// The answer of an operation.
#[derive(Debug, Default)]
pub struct Answer {
    /// Answers that are numbers.
    pub answers: Answers,
    /// The kernel may use it for all I/O.
    pub descriptor: Option<OwnedFd>,
    /// Answers that are bytes.
    pub bytes: Vec<u8>,
}

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The error number; not 0.
    pub errno: i32,
    /// Words for the log; may be empty.
    pub why: String,
}

/// Carries operations out.
pub trait Target: Send + Sync {
    /// Carries one out.
    ///
    /// # Errors
    /// Those of the operation.
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure>;

    /// Its capabilities.
    fn capabilities(&self) -> Capabilities;
}

impl<T: Target + ?Sized> Target for Arc<T> {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        T::call(self, message)
    }

    fn capabilities(&self) -> Capabilities {
        T::capabilities(self)
    }
}
