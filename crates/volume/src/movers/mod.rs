//! Movers move ranges in the background (PolyStore Algorithm 2): frequently
//! used ranges go to faster tiers, and full tiers give cold ranges to slower
//! ones; a third one of our own moves ranges in use off tiers that hold
//! applications up. Each has a thread (`background`); they move ranges by
//! [`relocate`](braid_core::file::relocate), and decide by the heat of ranges.
//!
//! `rounds` lets them run, pause and report; `promote`, `demote` and `balance` choose
//! ranges and targets, by `order` and `in_use`; `trial` tries tiers out for
//! `balance`; `reach` opens their files, and `errand`
//! moves the ranges.

mod balance;
mod demote;
mod errand;
mod in_use;
mod order;
mod patience;
mod promote;
mod reach;
mod rounds;
mod shared;
mod trial;
mod verdict;

pub use rounds::MoverStatus;
pub(crate) use shared::Movers;
