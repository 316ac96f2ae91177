//! Checks what is read: a damaged block below is an error, not wrong data.
//! `docs/configuration.md` describes the settings, `frames` does the work.

use crate::Module;
use crate::frames::{Framed, Pipeline, frame};
use braid_contract::{FileSystem, Layer, Result};
use serde::Deserialize;
use std::sync::Arc;

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

/// The module.
pub struct Checksum(Framed);

impl Layer for Checksum {
    fn child(&self) -> &dyn FileSystem {
        &self.0
    }
}

impl Module for Checksum {
    const NAME: &'static str = "checksum";
    type Settings = Settings;

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self(Framed::new(settings.0.clone(), child, true)?))
    }

    fn frames(settings: &Settings) -> Option<Pipeline> {
        Some(settings.0.clone())
    }

    fn end(&self) {
        self.0.end();
    }
}
