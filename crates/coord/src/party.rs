//! The identity of a participant, and the liveness of others.

use crate::tag::{OwnerTag, Process};

/// A participant.
pub trait Party {
    /// Its own tag.
    fn tag(&self) -> OwnerTag;

    /// Whether an owner may still act.
    fn is_alive(&self, owner: OwnerTag) -> bool;
}

/// The only process: it needs no table for liveness.
#[derive(Clone, Copy, Debug)]
pub struct Sole;

impl Party for Sole {
    fn tag(&self) -> OwnerTag {
        OwnerTag::KEEPER
    }

    fn is_alive(&self, _: OwnerTag) -> bool {
        true
    }
}

/// Checks whether processes are alive.
pub trait Liveness {
    /// Whether a process may still act; if unknown, it may.
    fn is_alive(&self, process: Process) -> bool;
}

/// Asks the kernel.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct Running;

#[cfg(not(loom))]
impl Liveness for Running {
    fn is_alive(&self, process: Process) -> bool {
        braid_sys::is_running(process.pid, process.start)
    }
}
