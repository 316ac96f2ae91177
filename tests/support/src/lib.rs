//! What the end-to-end suites and `cargo xtask` share: programs that run, and
//! end at an interrupt ([`sh`]); file systems and volumes that go away with who
//! made them ([`lab`]); where things are ([`paths`], [`tools`]).
#![forbid(unsafe_code)]

pub mod counts;
pub mod error;
pub mod lab;
pub mod options;
pub mod paths;
pub mod sh;
pub mod tools;
