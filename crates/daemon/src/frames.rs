//! Files in frames, without a mount.

pub use braid_modules::frames::{CatError, Found};
