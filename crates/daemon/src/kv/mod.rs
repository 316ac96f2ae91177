//! Keys and values of a mounted file system: how they are served is in [`settings`], the
//! directories in `buckets` (those of a log file system in `log`), the doors in `serving`;
//! `gated` holds uses up.

mod buckets;
mod gated;
mod log;
mod requests;
mod serving;
pub mod settings;

pub(crate) use buckets::{Buckets, Owner};
pub(crate) use log::LogStack;
pub(crate) use requests::{answer, carry_out};
pub(crate) use serving::{KvServer, Prepared, prepare};
