//! What moves ranges in the background (PolyStore Algorithm 2): ranges that
//! are frequently used go to faster tiers, and tiers that run full give cold
//! ranges to slower ones. One thread for each (`background`); they move by
//! [`relocate`](braid_core::file::relocate), and go by the heat of ranges.
//!
//! `rounds` lets them run, pause and be looked at; `promote` and `demote`
//! choose what is to move where, by `order`; `errand` moves it, of files that
//! `reach` comes to.

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
