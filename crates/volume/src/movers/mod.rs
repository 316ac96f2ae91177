//! Movers move ranges in the background (PolyStore Algorithm 2): frequently
//! used ranges go to faster tiers, and full tiers give cold ranges to slower
//! ones. Each has a thread (`background`); they move ranges by
//! [`relocate`](braid_core::file::relocate), and decide by the heat of ranges.
//!
//! `rounds` lets them run, pause and report; `promote` and `demote` choose
//! ranges and targets, by `order`; `reach` opens their files, and `errand`
//! moves the ranges.

mod demote;
mod errand;
mod order;
mod promote;
mod reach;
mod rounds;
mod shared;
mod verdict;

pub use rounds::MoverStatus;
pub(crate) use shared::Movers;
