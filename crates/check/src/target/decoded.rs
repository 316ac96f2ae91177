//! Labels and volume tables as they are read, sound or not.

use braid_contract::Result;
use braid_format::{FORMAT_VERSION, FormatError};
use braid_home::OpenError;

/// A label or volume table as it was read.
pub(crate) enum Decoded<T> {
    Missing,
    /// The bytes, and their fault.
    Damaged(Vec<u8>, &'static str),
    Sound(T),
}

impl<T> Decoded<T> {
    /// Decodes the `what` of a tier. Fails if it can't be read, or has a later
    /// format.
    pub(crate) fn read(
        tier: &str,
        what: &str,
        bytes: Result<Option<Vec<u8>>>,
        decode: fn(&[u8]) -> std::result::Result<T, FormatError>,
    ) -> std::result::Result<Self, OpenError> {
        let bytes = match bytes {
            Ok(None) => return Ok(Self::Missing),
            Ok(Some(bytes)) => bytes,
            Err(error) => {
                let error = error.context(format!("reading its {what}"));
                return Err(OpenError::Tier { tier: tier.into(), error });
            }
        };
        match decode(&bytes) {
            Ok(sound) => Ok(Self::Sound(sound)),
            Err(FormatError::Newer(found)) => {
                Err(OpenError::NewerFormat { tier: tier.into(), found, supported: FORMAT_VERSION })
            }
            Err(FormatError::Damaged(why)) => Ok(Self::Damaged(bytes, why)),
        }
    }

    pub(crate) fn sound(&self) -> Option<&T> {
        match self {
            Self::Sound(sound) => Some(sound),
            _ => None,
        }
    }

    /// Describes the fault of the label or table that is called `name`.
    pub(crate) fn wrong(&self, name: &str) -> String {
        match self {
            Self::Missing => format!("its {name} is missing"),
            Self::Damaged(_, why) => format!("its {name} is damaged: {why}"),
            Self::Sound(_) => format!("its {name} does not say what the volume table says"),
        }
    }
}
