//! Taking Braid out of a tree: all data comes home, every file is a plain one,
//! and then attributes and `.braid` go, from home last. In place, what is whole
//! on a tier stays there. The volume is not mounted meanwhile. What was brought
//! home stays there however it ends, and the volume stays one until every file
//! has its place.
//!
//! `survey` looks at what there is to be done, `take_apart` does it, by `in_place`
//! for files that get a name on their tier. What follows the record that ends the volume, and can be
//! gone on with, is in `clear`, with `settle` for files that stay on their tier.

mod amounts;
mod clear;
mod in_place;
mod settle;
mod survey;
mod take_apart;

pub use amounts::{Amounts, EjectOptions, EjectProgress, Ejection, Stays};
pub(crate) use clear::{begun, clear, end_hollow, go_on};
pub(crate) use take_apart::eject_open;
