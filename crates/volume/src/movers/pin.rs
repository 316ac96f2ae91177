//! Files that are to stay where they are.

use crate::Volume;
use crate::file::File;
use std::ffi::OsStr;

impl Volume {
    /// Whether the file is pinned: movers leave it where it is. The attribute
    /// holds the name of the tier, or anything else.
    pub(crate) fn is_pinned(&self, file: &File) -> bool {
        if self.is_pinned_by_rule(file) {
            return true;
        }
        let name = if self.user_xattr { "user.braid.pin" } else { "trusted.braid.pin" };
        // A value that is too long for the buffer is one.
        let found = file.data().get_xattr(OsStr::new(name), &mut [0; 64]);
        found.map_or_else(|error| error.errno() == braid_contract::Errno::ERANGE, |_| true)
    }
}
