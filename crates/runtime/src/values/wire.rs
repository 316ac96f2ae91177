//! Requests about keys and values in the form of requests about files: their numbers, and
//! byte strings in the data. For both sides.

/// An operation on a directory. The number is that of the operation in a request, behind those of
/// the [table](braid_contract::Operation). The directory is the request's `ino`, a key its name, a
/// value its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum ValueOperation {
    /// Whether it can be asked; the count answered is 1 if batches are atomic.
    About = 0x1_0000,
    /// The count answered is one more than the value's bytes; 0 if the key is not there.
    Get,
    /// Likewise, without the value.
    Len,
    /// `how` is one of [`WHEN`]. The count answered is 1 if the value was put.
    Put,
    /// The count answered is 1 if the key was there.
    Delete,
    /// The data are the strings of the range, `count` how many keys are wanted, `how` 1 if
    /// their values are. The strings answered are the next cursor, and keys and values in
    /// turn.
    Scan,
    /// The data are keys and values in turn; one without a value is removed.
    Batch,
    Sync,
}

impl ValueOperation {
    const ALL: [Self; 8] =
        [Self::About, Self::Get, Self::Len, Self::Put, Self::Delete, Self::Scan, Self::Batch, Self::Sync];

    /// `None` if the operation is about files.
    pub(crate) fn of(operation: u32) -> Option<Self> {
        let at = operation.checked_sub(Self::About as u32)?;
        Self::ALL.get(at as usize).copied()
    }

    /// Whether values may change.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Put | Self::Delete | Self::Batch)
    }
}

/// The conditions of a put, by their number.
pub(crate) const WHEN: [braid_contract::PutWhen; 3] =
    [braid_contract::PutWhen::Always, braid_contract::PutWhen::Absent, braid_contract::PutWhen::Present];

/// Length of a string that is not there.
const NONE: u32 = u32::MAX;
const HEAD: usize = size_of::<u32>();

/// Bytes that a string takes.
pub(crate) fn taken(string: Option<&[u8]>) -> usize {
    HEAD + string.map_or(0, <[u8]>::len)
}

/// Adds a string.
pub(crate) fn add(bytes: &mut Vec<u8>, string: Option<&[u8]>) {
    // No string sent is longer than a slot.
    let len = string.map_or(NONE, |string| string.len() as u32);
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(string.unwrap_or_default());
}

/// Takes a string off. `None` if there is none.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (head, rest) = bytes.split_first_chunk()?;
    let len = u32::from_ne_bytes(*head);
    let (string, rest) = if len == NONE {
        (None, rest)
    } else {
        let (string, rest) = rest.split_at_checked(len as usize)?;
        (Some(string), rest)
    };
    *bytes = rest;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_question_has_its_number() {
        for operation in ValueOperation::ALL {
            assert_eq!(ValueOperation::of(operation as u32), Some(operation));
        }
        let files = braid_contract::Operation::ALL;
        assert!(files.iter().all(|operation| ValueOperation::of(*operation as u32).is_none()));
        assert_eq!(ValueOperation::of(ValueOperation::Sync as u32 + 1), None);
    }

    proptest! {
        #[test]
        fn strings_come_through(strings in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..50)), 0..20)) {
            let mut bytes = Vec::new();
            let mut sum = 0;
            for string in &strings {
                add(&mut bytes, string.as_deref());
                sum += taken(string.as_deref());
            }
            prop_assert_eq!(bytes.len(), sum);
            let mut rest = &bytes[..];
            for string in &strings {
                prop_assert_eq!(take(&mut rest), Some(string.as_deref()));
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
        }
    }
}
