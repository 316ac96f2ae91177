//! Views: stacks over the file system of another mount (LabStor: one volume with several stacks).
//! At the bottom is a session with the runtime of that mount; modules on top of it run in the
//! view's own process. [`settings`] has its settings in a stack file.

pub(crate) mod bottom;
pub(crate) mod look;
pub mod settings;
