//! The names of the marks of files that may be ahead of their home inodes.
//!
//! The mark of a file with an index only has its id: the index leads to the
//! inode. That of a whole file has the handle of its home inode in its name,
//! which the file system creates or changes atomically.

use braid_contract::{NativeHandle, ObjectId};
use std::ffi::OsStr;
use std::fmt::Write;

/// Longest name of native file systems.
const NAME_MAX: usize = 255;

/// A mark, from its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The file's id.
    pub id: ObjectId,
    /// The home inode, if the mark has it.
    pub handle: Option<NativeHandle>,
}

impl Mark {
    /// Parses the name of a mark; `None` if it is another name.
    #[must_use]
    pub fn parse(name: &OsStr) -> Option<Self> {
        let mut parts = name.to_str()?.split('.');
        let id = parts.next()?.parse().ok()?;
        let handle = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(kind), Some(bytes), None) => {
                let kind = u32::from_str_radix(kind, 16).ok()? as i32;
                let byte = |at: usize| u8::from_str_radix(bytes.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..bytes.len()).step_by(2).map(byte).collect();
                Some(NativeHandle::from_parts(kind, &bytes?)?)
            }
            _ => return None,
        };
        Some(Self { id, handle })
    }

    /// The name of a file's mark, without a handle that is too long.
    #[must_use]
    pub fn name(id: ObjectId, handle: Option<&NativeHandle>) -> String {
        let mut name = id.to_string();
        if let Some(handle) = handle {
            let (kind, bytes) = handle.parts();
            if name.len() + 10 + 2 * bytes.len() <= NAME_MAX {
                let _ = write!(name, ".{kind:x}.");
                bytes.iter().for_each(|byte| _ = write!(name, "{byte:02x}"));
            }
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_marks_tell_id_and_handle() {
        let id = ObjectId([7; 16]);
        let handle = NativeHandle::from_parts(-2, &[1, 0xfe, 0]);
        for handle in [None, handle] {
            let name = Mark::name(id, handle.as_ref());
            assert_eq!(Mark::parse(OsStr::new(&name)), Some(Mark { id, handle }));
        }
        let long = NativeHandle::from_parts(1, &[0; 128]);
        assert_eq!(Mark::name(id, long.as_ref()), id.to_string());
        for other in ["x", "07.1", &format!("{id}.1"), &format!("{id}.1.0"), &format!("{id}.1.00.")] {
            assert_eq!(Mark::parse(OsStr::new(other)), None, "{other}");
        }
    }
}
