//! Compresses data. Frames that do not get smaller are kept as they are.
//! `docs/configuration.md` describes the settings, `frames` does the work.

use crate::frames::{Codec, FrameSettings, OfFrames, Pipeline, frame};
use serde::Deserialize;

/// The level of zstd, unless the settings say so.
const LEVEL: i64 = 3;
/// The bounds of that.
const LEVELS: std::ops::RangeInclusive<i64> = -7..=19;

/// The settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings(Pipeline);

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    codec: Option<String>,
    level: Option<i64>,
    frame: Option<String>,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let shift = given.frame.as_deref().map(frame).transpose()?;
        let codec = match (given.codec.as_deref().unwrap_or("zstd"), given.level) {
            ("zstd", level) => {
                let level = level.unwrap_or(LEVEL);
                if !LEVELS.contains(&level) {
                    return Err(format!("level: {level} is not from {} to {}", LEVELS.start(), LEVELS.end()));
                }
                Codec::Zstd(level as i32)
            }
            ("lz4", None) => Codec::Lz4,
            ("lz4", Some(_)) => return Err("lz4 has no levels: leave 'level' out".to_owned()),
            (other, _) => return Err(format!("codec: '{other}' is not known: write zstd or lz4")),
        };
        Ok(Self(Pipeline { shift, codec: Some(codec), ..Pipeline::default() }))
    }
}

impl FrameSettings for Settings {
    const NAME: &'static str = "compress";

    fn pipeline(&self) -> &Pipeline {
        &self.0
    }
}

/// The module.
pub type Compress = OfFrames<Settings>;
