//! Another directory becomes home while the volume is in use.
mod changes;
pub(crate) use changes::{CHUNK, ChangeSet, ChangedData, Changes};
