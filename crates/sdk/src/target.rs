//! File systems behind messages, and messages to a file system.

use crate::bridge::{carry_out, message_of, reply_of};
use crate::failure::breach;
use braid_contract::{FileSystem, FileSystemCapabilities, Reply, Request, Service};
use braid_sys::module::{self as abi, Answer, Capabilities, Failure, Message, Target};
use std::sync::Arc;
use std::time::Duration;

/// A file system that is reached by messages: a loaded module for Braid, or the file system below
/// for the module.
#[derive(Clone, Copy, Debug)]
pub struct Served<T>(pub T);

impl<T: Target> Service for Served<T> {
    fn capabilities(&self) -> FileSystemCapabilities {
        capabilities_from(self.0.capabilities())
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let operation = request.operation();
        // A count beyond the data would be believed.
        let room = match &request {
            Request::Read { buf, .. } => buf.len() as u64,
            Request::Write { data, .. } => data.len() as u64,
            _ => u64::MAX,
        };
        let mut slot = None;
        let told = self.0.call(message_of(request, Some(&mut slot)));
        reply_of(operation, told.and_then(|answer| within(answer, room)))
    }
}

fn within(answer: Answer, room: u64) -> Result<Answer, Failure> {
    if answer.answers.count <= room { Ok(answer) } else { Err(breach("a count of more than there is")) }
}

/// A file system that messages reach: the one below a loaded module for Braid, or the module itself
/// for its library.
pub struct Below(pub Arc<dyn FileSystem>);

impl Target for Below {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        carry_out(&*self.0, message)
    }

    fn capabilities(&self) -> Capabilities {
        capabilities_to(&self.0.capabilities())
    }
}

/// The interface's form of a file system's capabilities.
#[must_use]
pub fn capabilities_to(can: &FileSystemCapabilities) -> Capabilities {
    let FileSystemCapabilities {
        cache_ttl,
        passthrough,
        rename_modes,
        posix_acl,
        flush_at_close,
        caller_groups,
        holds_up,
        writes_through,
    } = *can;
    let set = [
        (passthrough, abi::CAN_PASS_THROUGH),
        (rename_modes, abi::CAN_RENAME_OTHERWISE),
        (posix_acl, abi::CAN_KEEP_ACLS),
        (flush_at_close, abi::WANTS_FLUSH),
        (caller_groups, abi::WANTS_GROUPS),
        (holds_up, abi::HOLDS_UP),
        (writes_through, abi::WRITES_THROUGH),
    ];
    Capabilities {
        cache_ttl: u64::try_from(cache_ttl.as_nanos()).unwrap_or(u64::MAX),
        flags: set.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum(),
        padding: 0,
    }
}

/// A file system's capabilities from their form in the interface.
#[must_use]
pub fn capabilities_from(told: Capabilities) -> FileSystemCapabilities {
    let is = |bit| told.flags & bit != 0;
    FileSystemCapabilities {
        cache_ttl: Duration::from_nanos(told.cache_ttl),
        passthrough: is(abi::CAN_PASS_THROUGH),
        rename_modes: is(abi::CAN_RENAME_OTHERWISE),
        posix_acl: is(abi::CAN_KEEP_ACLS),
        flush_at_close: is(abi::WANTS_FLUSH),
        caller_groups: is(abi::WANTS_GROUPS),
        holds_up: is(abi::HOLDS_UP),
        writes_through: is(abi::WRITES_THROUGH),
    }
}
