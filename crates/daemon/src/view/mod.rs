//! Views: stacks over what another mount serves (LabStor: one volume with several stacks). At
//! the bottom is a session with the runtime of that mount; modules on top of it run in the
//! view's own process. [`settings`] is what a stack file says of it.

pub(crate) mod bottom;
pub(crate) mod look;
pub mod settings;
