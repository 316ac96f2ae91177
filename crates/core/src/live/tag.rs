//! The name of a file in use in the table of heat.

use braid_contract::NativeHandle;
use braid_format::FileKey;

/// Names a file in use to the table of touches.
#[derive(Debug)]
pub struct Tag {
    /// Its number among the touches.
    pub serial: u32,
    /// Which file it is.
    pub key: FileKey,
    /// How to come back to it, where there are handles.
    pub handle: Option<NativeHandle>,
}
