//! The settings of frames: those of the modules that lie on each other, together.

use super::codec::Codec;
use super::geometry::{Geometry, SHIFTS};
use super::key::MasterKey;
use std::sync::Arc;

/// Bytes of a frame, as a power of two, unless the settings say so.
const SHIFT: u8 = 16;

/// The settings of frames.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// Bytes of a frame, as a power of two, in new files.
    pub(crate) shift: Option<u8>,
    pub(crate) codec: Option<Codec>,
    pub(crate) key: Option<Arc<MasterKey>>,
    /// Files that are not encrypted may be read.
    pub(crate) reads_plain: bool,
}

impl Pipeline {
    /// Frames of so many bytes that are only checked; `None` if frames can't have them.
    #[must_use]
    pub fn in_frames_of(bytes: u64) -> Option<Self> {
        let shift = Some(bytes).filter(|bytes| bytes.is_power_of_two()).map(|bytes| bytes.ilog2() as u8);
        shift
            .filter(|shift| SHIFTS.contains(shift))
            .map(|shift| Self { shift: Some(shift), ..Self::default() })
    }

    /// The settings of this and the module below, in one layer.
    ///
    /// # Errors
    /// The reason why they don't go together.
    pub(crate) fn over(&self, below: &Self) -> Result<Self, String> {
        if let (Some(above), Some(below)) = (self.shift, below.shift)
            && above != below
        {
            return Err(format!("'frame' is {} here and {} below", bytes(above), bytes(below)));
        }
        Ok(Self {
            shift: self.shift.or(below.shift),
            codec: self.codec.or(below.codec),
            key: self.key.clone().or_else(|| below.key.clone()),
            reads_plain: self.reads_plain || below.reads_plain,
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::new(self.shift.unwrap_or(SHIFT)).expect("settings are within the bounds")
    }

    /// Whether several threads seal frames faster than one.
    pub(crate) fn takes_time(&self) -> bool {
        self.codec.is_some() || self.key.is_some()
    }
}

fn bytes(shift: u8) -> String {
    braid_contract::units::write_size(1 << shift)
}

/// The setting `frame`.
pub(crate) fn frame(text: &str) -> Result<u8, String> {
    let size = braid_contract::units::parse_size(text).ok();
    size.and_then(Pipeline::in_frames_of)
        .and_then(|pipeline| pipeline.shift)
        .ok_or_else(|| format!("frame: '{text}' is no power of two from 4KiB to 1MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_powers_of_two() {
        for (text, shift) in [("4KiB", 12), ("65536", 16), ("1MiB", 20)] {
            assert_eq!(frame(text), Ok(shift));
            assert_eq!(frame(&bytes(shift)), Ok(shift));
        }
        for text in ["0", "2KiB", "100KiB", "2MiB", "many"] {
            assert!(frame(text).unwrap_err().contains("is no power of two from 4KiB to 1MiB"));
        }
    }

    #[test]
    fn modules_on_each_other_do_what_each_does() {
        let compress = Pipeline { codec: Some(Codec::Lz4), shift: Some(17), ..Pipeline::default() };
        let both = compress.over(&Pipeline::default()).unwrap();
        assert_eq!((both.codec, both.geometry().frame()), (Some(Codec::Lz4), 128 << 10));
        assert_eq!(Pipeline::default().geometry().frame(), 64 << 10);
        let other = Pipeline { shift: Some(12), ..Pipeline::default() };
        assert_eq!(compress.over(&other).unwrap_err(), "'frame' is 128KiB here and 4KiB below");
        assert!(both.takes_time() && !other.takes_time());
    }
}
