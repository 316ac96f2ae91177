//! Shared by the end-to-end suites and `cargo xtask`: running programs, which
//! end at an interrupt ([`sh`]); file systems and volumes that are removed with
//! their owner ([`lab`]); paths ([`paths`], [`tools`]).
#![forbid(unsafe_code)]

pub mod counts;
pub mod error;
pub mod lab;
pub mod options;
pub mod paths;
pub mod room;
pub mod sh;
pub mod tools;
