//! Checks data when it is read: a damaged block below is an error, not wrong
//! data. `docs/configuration.md` describes the settings, `frames` does the
//! work.

use crate::frames::{FrameSettings, OfFrames, Pipeline, frame};
use serde::Deserialize;

/// The settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings(Pipeline);

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    frame: Option<String>,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let shift = given.frame.as_deref().map(frame).transpose()?;
        Ok(Self(Pipeline { shift, ..Pipeline::default() }))
    }
}

impl FrameSettings for Settings {
    const NAME: &'static str = "checksum";

    fn pipeline(&self) -> &Pipeline {
        &self.0
    }
}

/// The module.
pub type Checksum = OfFrames<Settings>;
