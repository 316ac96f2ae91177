//! The end-to-end suites: the `braid` command, real mounts, real file systems.
//!
//! `cargo test -p braid-tests --test suites` runs them. A suite is one file
//! below [`suites`], which answers its [`Trial`](trial::Trial)s; each of them
//! makes what it needs and can run alone.
#![forbid(unsafe_code)]

mod arena;
mod load;
pub mod report;
mod stamps;
pub mod suites;
pub mod trial;
