//! The identity under which a process takes part, and which others are alive.

use crate::tag::{OwnerTag, Process};

/// One who takes part.
pub trait Party {
    /// Its own tag.
    fn tag(&self) -> OwnerTag;

    /// Whether an owner may still do something.
    fn is_alive(&self, owner: OwnerTag) -> bool;
}

/// The only process there is: it needs no table to know who is alive.
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

/// Tells whether processes are alive.
pub trait Liveness {
    /// Whether a process may still do something. Where that can't be known, it
    /// may.
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
