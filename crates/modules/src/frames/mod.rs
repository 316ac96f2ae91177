//! Files that are made of frames below: the engine of `checksum`, `compress` and
//! `encrypt`. `docs/format.md` has the bytes.
//!
//! A frame is 64 KiB of a file, if the settings don't say otherwise. It is stored by
//! itself, compressed and encrypted, with a header that has a checksum, in one of three
//! slots. A write goes into a slot that has neither the current nor the durable version; its
//! header, which comes last, has a higher number. So a crash at any moment leaves a version that a
//! crash may leave. Later, when all is durable, the space of older slots is given back.
//!
//! From the bytes up: `geometry` (places), `header`, `codec` and `key` (contents),
//! `record` and `sequence` (numbers); `door` (the child's file), `file` and `files` (files in use),
//! `shared` and `access` with `read`, `put`, `cut`, `write`, `holes` and `tidy` (one file's
//! frames); `engine` and `operations` (all files), `settler`, `handover`, `layer`,
//! `module`; `cat` reads without a mount.

mod access;
mod cat;
mod codec;
mod cut;
mod door;
mod engine;
mod file;
mod files;
mod geometry;
mod handover;
mod header;
mod holes;
mod key;
mod layer;
mod module;
mod operations;
mod pipeline;
mod put;
mod read;
mod record;
mod sequence;
mod settler;
mod shared;
#[cfg(test)]
mod tests;
mod tidy;
mod write;

pub use cat::{CatError, Found};
pub use layer::Framed;
pub use module::{FrameSettings, OfFrames};
pub use pipeline::Pipeline;

pub(crate) use codec::Codec;
pub(crate) use key::MasterKey;
pub(crate) use pipeline::frame;
