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
    key_file: Option<PathBuf>,
    kernel_key: Option<String>,
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
        let key = match (given.key_file, given.kernel_key) {
            (Some(file), None) if !file.is_absolute() => {
                return Err(format!("key_file: '{}' does not begin with '/'", file.shown()));
            }
            (Some(file), None) => MasterKey::read(&file).map_err(|error| format!("key_file: {error}"))?,
            (None, Some(name)) => {
                MasterKey::of_kernel(&name).map_err(|error| format!("kernel_key: {error}"))?
            }
            (None, None) => return Err("there is no key: write key_file or kernel_key".to_owned()),
            (Some(_), Some(_)) => return Err("key_file and kernel_key: write one of them".to_owned()),
        };
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
