//! The operations, as functions over the core.

pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod handles;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod rename;
pub(crate) mod reserve;
pub(crate) mod set_id;
pub(crate) mod values;
pub(crate) mod xattrs;
