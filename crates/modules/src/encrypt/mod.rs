//! Encrypts the data of files. Names, sizes and attributes are not encrypted.
//! `docs/configuration.md` describes the settings, `frames` does the work.

use crate::frames::{FrameSettings, MasterKey, OfFrames, Pipeline, frame};
use braid_contract::Shown;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// The settings, with the key.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings(Pipeline);

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    key_file: PathBuf,
    plain: Option<Plain>,
    frame: Option<String>,
}

/// The treatment of files that are not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Plain {
    Refuse,
    Read,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let shift = given.frame.as_deref().map(frame).transpose()?;
        if !given.key_file.is_absolute() {
            return Err(format!("key_file: '{}' does not begin with '/'", given.key_file.shown()));
        }
        let key = MasterKey::read(&given.key_file).map_err(|error| format!("key_file: {error}"))?;
        let (key, reads_plain) = (Some(Arc::new(key)), given.plain == Some(Plain::Read));
        Ok(Self(Pipeline { shift, key, reads_plain, ..Pipeline::default() }))
    }
}

impl FrameSettings for Settings {
    const NAME: &'static str = "encrypt";

    fn pipeline(&self) -> &Pipeline {
        &self.0
    }
}

/// The module.
pub type Encrypt = OfFrames<Settings>;
