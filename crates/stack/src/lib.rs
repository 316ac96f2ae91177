//! Modules that come in libraries (LabStor §3.1): the directories where they are looked for,
//! which of them are trusted, and the one that a stack has in force. The daemon asks when a
//! stack file names a module that is not built in.
#![forbid(unsafe_code)]

mod bounded;
mod instance;
mod isolated;
mod library;
mod loaded;
mod registry;
mod repositories;
mod trust;

pub use braid_modules::NAMES as BUILT_IN;
pub use braid_sdk::c_header;
pub use isolated::run_host;
pub use registry::{Known, Registry};
pub use repositories::{REPOSITORIES_MAX, Repositories};
