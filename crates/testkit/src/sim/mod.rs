//! A simulated native file system that forgets unsynced data.
//!
//! [`Disk`] is one device with a file system on it, in memory and
//! deterministic, reached through [`braid_contract::NativeFd`] like the
//! kernel's. [`Disk::freeze`] holds its state at one moment, and
//! [`Frozen::after_power_loss`] builds what a machine would find after losing
//! power then: everything that was synced, and of the rest what a [`Chooser`]
//! picks within what ext4, xfs and btrfs may do. `docs/crash-model.md` says
//! what that is. Tests and the crash explorer use this module.

mod choose;
mod clock;
mod content;
mod disk;
mod effect;
mod fd;
mod inode;
mod io;
mod names;
mod power;
mod state;
mod sync;
mod tree;
mod words;
mod zone;
mod zoned;

#[cfg(test)]
mod tests;

pub use choose::{AllKept, AllLost, Chooser, Scripted, Seeded};
pub use clock::{SimClock, SimEnvironment};
pub use disk::{Disk, DiskConfig, Failing, Model, Observer};
pub use effect::Effect;
pub use power::Frozen;
pub use zoned::{SimZoned, SimZones, ZoneEffect, ZoneObserver, ZonedMoment};
