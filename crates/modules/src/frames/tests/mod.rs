//! The engine over a directory. Crashes are explored over a volume on simulated disks
//! (`crates/volume/tests/crash`).

mod bed;
mod damage;
mod document;
mod forms;
mod full;
mod handover;
mod model;
mod space;
mod syncs;
