//! A pattern of paths as a setting.

use braid_placement::glob;
use serde::Deserialize;
use std::path::Path;

/// A pattern of paths, as rules have them; checked when it is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(String);

impl Pattern {
    /// Whether the path, from the root on and without a leading `/`, matches.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        glob::matches(&self.0, &path.to_string_lossy())
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match glob::check(&text) {
            Ok(()) => Ok(Self(text)),
            Err(what) => Err(format!("'{text}' is not a pattern of paths: {what}")),
        }
    }
}
