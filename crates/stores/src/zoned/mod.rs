//! The zoned store: objects on a device whose zones are written from their
//! beginning to their end and emptied as a whole (Reshim §3.3), so that nothing is
//! moved beneath it. Only the daemon makes one.
//!
//! An object's bytes are gathered in [buffers](buffers) of an extent each, go to the
//! open [zone](zones) of their stream when an extent is full or synced, and are found
//! through an index whose changes go to a [log](log) on the device itself. When zones
//! run short, some are [emptied](collect), [in time](pace).

mod block;
mod buffers;
mod collect;
mod disk;
mod emulator;
mod extents;
mod fdp;
mod former;
mod index;
mod kernel;
mod log;
mod object;
mod pace;
mod placements;
mod replay;
mod spans;
mod store;
mod table;
mod units;
mod watched;
mod zone_files;
mod zonefs;
mod zones;

pub use block::ZonedBlockDevice;
pub use disk::RawDisk;
pub use emulator::{EmulatedZones, ZoneEmulator};
pub use store::{ZonedSettings, ZonedStore};
pub use units::{UnitDevice, UnitsAt};
pub use zonefs::Zonefs;
