//! Modules in libraries of their own: the binary interface, from both sides.
//!
//! `raw` is the interface itself, which C sees; `message` the same without pointers;
//! `bridge` goes from one to the other. `library` is the side of the program, `plugin`
//! that of a module in Rust. `braid-sdk` knows what the messages mean.

mod bridge;
mod library;
mod message;
mod plugin;
mod raw;
#[cfg(test)]
mod tests;

pub use bridge::Child;
pub use library::{LoadedModule, ModuleLibrary, is_module_name, module_image};
pub use message::{Answer, Entries, Failure, Listed, Message, Target};
pub use plugin::{Plugin, describe};
pub use raw::*;
