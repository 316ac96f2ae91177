//! How fast ranges move between tiers (PolyStore §4.5.2). Movers call
//! [`Volume::relocate`](crate::Volume), which does the copying; `braid-coord`
//! keeps it and the writers apart. What decides to move something is elsewhere.

mod meter;
mod pace;

pub(crate) use meter::Meter;
pub(crate) use pace::{Pace, Paces, Stopped};
