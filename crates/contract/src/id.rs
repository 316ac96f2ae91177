//! Typed identifiers. Each kind has a type of its own, so that an inode number
//! can't be passed where an object is meant.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Declares a 128-bit id that prints as 32 lower-case hexadecimal digits.
macro_rules! id128 {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub [u8; 16]);

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex128(text).map(Self)
            }
        }
    };
}

id128!(
    /// Identifies an object in a [`Store`](crate::Store), and the file it
    /// belongs to: all objects of one file, one per tier, share the id.
    ObjectId
);
id128!(
    /// Identifies a volume. Written to each of its tiers, so that a tier is
    /// never joined to a volume that it does not belong to.
    VolumeId
);

impl ObjectId {
    /// The name of the sub-directory, out of 256, in which files named by this
    /// id are kept: two hexadecimal digits.
    #[must_use]
    pub fn shard(&self) -> String {
        format!("{:02x}", self.0[0])
    }
}

/// The text was not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseIdError;

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 32 lower-case hexadecimal digits")
    }
}

impl std::error::Error for ParseIdError {}

fn parse_hex128(text: &str) -> Result<[u8; 16], ParseIdError> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return Err(ParseIdError);
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Ok(bytes)
}

fn hex_digit(digit: u8) -> Result<u8, ParseIdError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseIdError),
    }
}

/// A tier's number within its volume, `0..=62`. It is assigned when the tier
/// joins, and written to disk in index entries. It is reused only once no index
/// names a removed tier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TierId(pub u8);

impl TierId {
    /// One more than the highest number a tier can have.
    pub const LIMIT: u8 = 63;
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An inode number as applications see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory of a file system, as in FUSE.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HandleId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_id_round_trips_through_text() {
        let id = ObjectId([0, 1, 2, 3, 0xab, 0xcd, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.shard(), "00");
    }

    #[test]
    fn malformed_ids_are_refused() {
        for text in ["", "00", "0001020304050607080910111213141g", "0001020304050607080910111213141F"] {
            assert_eq!(text.parse::<ObjectId>(), Err(ParseIdError), "{text:?}");
        }
    }
}
