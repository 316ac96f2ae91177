//! A pattern of paths as a setting.

use braid_hint::Glob;
use serde::Deserialize;
use std::path::Path;

/// A pattern of paths, as in rules; checked when it is parsed.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(Glob);

impl Pattern {
    /// Whether the path, from the root on and without a leading `/`, matches.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        self.0.matches(&path.to_string_lossy())
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Glob::new(&text).map(Self).map_err(|what| format!("'{text}' is not a pattern of paths: {what}"))
    }
}
