//! Set-id bits: a write, and a new owner, take the owner's rights from a
//! program.

use crate::inode::State;
use crate::record::Change;

/// The extended attribute by which a program has capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// The changes by which a file loses its set-id bits, and its capabilities, as by a
/// write or with a new owner. Without group execution, the set-group-id bit means something else.
pub(crate) fn without_set_id(state: &State, keeps_bits: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    if state.is_dir() {
        return changes;
    }
    let group = if state.mode & 0o010 != 0 { 0o2000 } else { 0 };
    let mode = state.mode & 0o7777 & !(0o4000 | group);
    if !keeps_bits && mode != state.mode & 0o7777 {
        changes.push(Change::Mode(mode));
    }
    if state.xattrs.contains_key(CAPABILITY) {
        changes.push(Change::DropXattr(CAPABILITY.to_vec()));
    }
    changes
}
