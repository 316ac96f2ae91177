//! The name of a file in use in the table of heat.

use braid_contract::NativeHandle;
use braid_format::FileKey;

/// Names a file in use to the table of touches.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) serial: u32,
    pub(crate) key: FileKey,
    pub(crate) handle: Option<NativeHandle>,
}
