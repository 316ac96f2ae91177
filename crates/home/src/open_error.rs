//! Why a volume can't be opened, in words that name the finding and the remedy.
//! `open` answers it.

use braid_contract::{Error, VolumeId};
use std::fmt;

/// Why a volume can't be opened. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The tier's directory or store can't be used.
    Tier {
        /// The tier's name.
        tier: String,
        /// Its error.
        error: Error,
    },
    /// The tier's file system is read-only.
    ReadOnly {
        /// The tier's name.
        tier: String,
    },
    /// The tier carries the label of another volume.
    OtherVolume {
        /// The tier's name.
        tier: String,
        /// The volume that it belongs to.
        found: VolumeId,
        /// The volume that was to be opened.
        expected: VolumeId,
    },
    /// The tier is of this volume, but is another one of its tiers.
    OtherTier {
        /// The tier's name.
        tier: String,
        /// The name on its label.
        found: String,
    },
    /// The volume has a tier of this name, but the given directory is empty, or
    /// one that was never a tier.
    NotLabelled {
        /// The tier's name.
        tier: String,
    },
    /// There is no volume yet, and the request was not to create one.
    NoVolume {
        /// The home tier's name.
        tier: String,
    },
    /// There is a volume already, and the request was to create one.
    VolumeExists {
        /// The home tier's name.
        tier: String,
        /// The volume that it belongs to.
        found: VolumeId,
    },
    /// Home has no label, but another tier belongs to a volume.
    HomeNotLabelled {
        /// The home tier's name.
        tier: String,
        /// The tier that belongs to a volume.
        labelled: String,
        /// That volume.
        found: VolumeId,
    },
    /// The volume does not have the tier, and the request was not to add tiers.
    NotJoined {
        /// The tier's name.
        tier: String,
    },
    /// The tier is a data tier of some volume, not a home tier.
    NotHome {
        /// The tier's name.
        tier: String,
        /// The volume that it belongs to.
        found: VolumeId,
    },
    /// The tier was written by a later version of Braid.
    NewerFormat {
        /// The tier's name.
        tier: String,
        /// Its format version.
        found: u16,
        /// The latest version that this Braid reads.
        supported: u16,
    },
    /// The tier's label or the volume table is damaged.
    Damaged {
        /// The tier's name.
        tier: String,
        /// The damage.
        what: String,
    },
    /// The home tier's file system has no extended attributes of the kind that
    /// is needed.
    NoXattrs {
        /// The tier's name.
        tier: String,
        /// The namespace that was tried, `trusted` or `user`.
        namespace: &'static str,
    },
    /// The volume was made by root, whose attributes the caller can't read.
    NeedsRoot {
        /// The tier's name.
        tier: String,
    },
    /// The requested range size is not the volume's.
    RangeSizeDiffers {
        /// The volume's, in bytes.
        found: u32,
        /// The one asked for, in bytes.
        asked: u32,
    },
    /// A tier of the volume was not given.
    MissingTier {
        /// The missing tier's name.
        tier: String,
    },
    /// The directory is a copy of a home tier that was never completed.
    IncompleteHome {
        /// The tier's name.
        tier: String,
        /// The location of the original.
        of: String,
    },
    /// Home was replaced, and is elsewhere now.
    HomeMoved {
        /// The tier's name.
        tier: String,
        /// Its location.
        to: String,
    },
    /// Home was being replaced, and which of two directories is home is unknown
    /// without the other.
    HomeUndecided {
        /// The tier's name.
        tier: String,
        /// The location of the other one.
        to: String,
    },
    /// The volume was being ejected, and all data is in plain files.
    Ejected {
        /// The home tier's name.
        tier: String,
    },
    /// The policy or a rule names an unknown tier.
    UnknownTier,
    /// Something else failed.
    Other(Error),
}

impl OpenError {
    /// The tier that the error is about, if it is about one.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        match self {
            Self::Tier { tier, .. }
            | Self::ReadOnly { tier }
            | Self::OtherVolume { tier, .. }
            | Self::OtherTier { tier, .. }
            | Self::NotLabelled { tier }
            | Self::NoVolume { tier }
            | Self::VolumeExists { tier, .. }
            | Self::HomeNotLabelled { tier, .. }
            | Self::NotJoined { tier }
            | Self::NotHome { tier, .. }
            | Self::NewerFormat { tier, .. }
            | Self::Damaged { tier, .. }
            | Self::NoXattrs { tier, .. }
            | Self::IncompleteHome { tier, .. }
            | Self::HomeMoved { tier, .. }
            | Self::HomeUndecided { tier, .. }
            | Self::Ejected { tier }
            | Self::NeedsRoot { tier } => Some(tier),
            Self::RangeSizeDiffers { .. } | Self::MissingTier { .. } | Self::UnknownTier | Self::Other(_) => {
                None
            }
        }
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tier { error, .. } => write!(f, "{error}"),
            Self::ReadOnly { .. } => f.write_str("the file system is read-only; remount it with -o rw"),
            Self::OtherVolume { found, expected, .. } => write!(
                f,
                "the directory belongs to volume {found}, not to volume {expected}; give the tier that belongs to it, \
                 or, to use this directory anew, move its .braid directory and what is in it away"
            ),
            Self::NoVolume { .. } => {
                f.write_str("there is no volume: the directory has no label; \
                 mount the devices that hold the volume, or, to make a new one in these directories: braid create, \
                 or braid mount --create")
            }
            Self::VolumeExists { found, .. } => {
                write!(f, "there is a volume already, {found}; mount it: braid mount")
            }
            Self::HomeNotLabelled { labelled, found, .. } => write!(
                f,
                "the directory has no label, so it is not the home of volume {found}, which tier `{labelled}` belongs to; \
                 mount the home tier's device (it is probably not mounted), or give that volume's own home tier"
            ),
            Self::NotJoined { .. } => f.write_str(
                "the volume does not have this tier, and the directory has no label; \
                 mount its device, or, if it is new, let it join: braid mount --create, \
                 or braid tier add once the volume is mounted without it",
            ),
            Self::OtherTier { found, .. } => {
                write!(f, "the directory is tier `{found}` of this volume; give it that name")
            }
            Self::NotLabelled { .. } => f.write_str(
                "the volume has a tier of this name, and the directory is not it: it has no label; \
                 give the directory that the tier was made with (is its file system mounted?)",
            ),
            Self::NotHome { found, .. } => write!(
                f,
                "the directory is a data tier of volume {found}, so it can't be home; name that volume's home tier as home"
            ),
            Self::NewerFormat { found, supported, .. } => write!(
                f,
                "it has format version {found}, and this Braid reads versions up to {supported}; use a newer Braid"
            ),
            Self::Damaged { what, .. } => {
                write!(f, "{what}; rescue.py rebuilds the files of a volume without it")
            }
            Self::NoXattrs { namespace, .. } => write!(
                f,
                "its file system does not take extended attributes in the namespace `{namespace}.`, which a home tier needs; \
                 make a tier on ext4, xfs or btrfs home"
            ),
            Self::NeedsRoot { .. } => f.write_str("the volume was made by root"),
            Self::RangeSizeDiffers { found, asked } => write!(
                f,
                "the volume has ranges of {found} bytes, fixed when it was made, not of {asked}; leave the range size out"
            ),
            Self::MissingTier { tier } => {
                write!(
                    f,
                    "the volume has a tier `{tier}` that was not given; add it with the directory that it was made with, \
                     `{tier}: {{ dir: DIRECTORY }}` below `tiers` or --tier {tier}=DIRECTORY"
                )
            }
            Self::IncompleteHome { of, .. } => write!(
                f,
                "it is an unfinished copy of the home tier at {of}; mount with that, and replace home again if you want to, \
                 or remove the copy"
            ),
            Self::HomeMoved { to, .. } => write!(
                f,
                "home has moved to {to}, and this directory is out of date; mount with that one as the home tier"
            ),
            Self::HomeUndecided { to, .. } => write!(
                f,
                "home was about to move to {to}, and only that directory tells whether it did; \
                 make it reachable under that name (is its file system mounted?) and mount again, \
                 or, if it is lost for good, remove .braid/intent/rehome here"
            ),
            Self::Ejected { .. } => f.write_str(
                "the volume was being taken apart, and all of its data is in plain files here; go on with braid eject",
            ),
            Self::UnknownTier => f.write_str("the policy or a rule names a tier that is not among the tiers"),
            Self::Other(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for OpenError {}
