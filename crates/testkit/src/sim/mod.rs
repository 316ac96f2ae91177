//! A simulated native file system that forgets unsynced data.
//!
//! [`Disk`] is one device with a file system on it, in memory and
//! deterministic, reached through [`braid_contract::NativeFd`] like the
//! kernel's. [`Disk::freeze`] holds its state at one moment, and
//! [`Frozen::after_power_loss`] builds the state that a machine would find
//! after losing power then: everything that was synced, and of the rest a
//! [`Chooser`]'s pick within the freedoms of ext4, xfs and btrfs.
//! `docs/crash-model.md` describes these. Tests and the crash explorer use this
//! module.

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
