//! Modules of an I/O stack: each wraps a file system and is one itself.
//!
//! One folder holds one module. A stack file can name a module when it is in
//! the list below; only the daemon builds stacks out of them. Nothing here
//! performs I/O of its own, but for reading a key; `throttle` and `provenance`
//! ask `/proc` for the process of a thread.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod compress;
pub mod consistency;
mod count;
pub mod deny;
pub mod encrypt;
pub mod frames;
mod fused;
pub mod metrics;
pub mod model;
mod module;
mod names;
pub mod noop;
mod pattern;
pub mod permissions;
pub mod provenance;
mod sync;
#[cfg(test)]
mod testing;
mod threads;
pub mod throttle;
pub mod trace;
mod traffic;

pub use frames::Pipeline;
pub use fused::{fused, wrap};
pub use module::{Configured, Member, Module, State};
pub use names::Names;
pub use pattern::Pattern;

use serde::{Deserialize, Deserializer};
use std::sync::Arc;

macro_rules! modules {
    ($($module:ty),* $(,)?) => {
        /// The keys that name modules in a stack file.
        pub const NAMES: &[&str] = &[$(<$module>::NAME),*];

        /// Whether the key `name` is that of a module that keeps files in frames: its settings may
        /// name files, which are read while they are parsed, and it stays as long as the stack is
        /// mounted.
        #[must_use]
        pub fn is_framed(name: &str) -> bool {
            $(<$module>::IS_FRAMED && name == <$module>::NAME)||*
        }

        /// Parses the settings of the module that a stack file calls `name`;
        /// `None` if there is no such module.
        pub fn configure<'de, D>(name: &str, settings: D) -> Option<Result<Arc<dyn Configured>, D::Error>>
        where
            D: Deserializer<'de>,
        {
            $(if name == <$module>::NAME {
                let read = <$module as Module>::Settings::deserialize(settings);
                return Some(read.map(module::configured::<$module>));
            })*
            None
        }
    };
}

modules!(
    noop::Noop,
    deny::Deny,
    consistency::Consistency,
    permissions::Permissions,
    throttle::Throttle,
    compress::Compress,
    encrypt::Encrypt,
    checksum::Checksum,
    metrics::Metrics,
    provenance::Provenance,
    model::Model,
);
