//! Taking Braid out of a tree: all data comes home, every file is a plain one,
//! and then attributes and `.braid` go, from home last. In place, files that
//! are whole on a tier stay there. The volume is not mounted meanwhile. Data
//! that came home stays there even if the ejection fails, and the volume
//! remains one until every file has its place.
//!
//! `survey` computes the work, `take_apart` does it, using `in_place` for files
//! that get a name on their tier. The steps after the record that ends the
//! volume, which can be resumed, are in `clear`, with `settle` for files that
//! stay on their tier.

mod amounts;
mod clear;
mod in_place;
mod settle;
mod survey;
mod take_apart;

pub use amounts::{Amounts, EjectOptions, EjectProgress, Ejection, Stays};
pub(crate) use clear::{begun, clear, end_hollow, go_on};
pub(crate) use take_apart::eject_open;
