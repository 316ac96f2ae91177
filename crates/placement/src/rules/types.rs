//! The types of conditions.

/// The type of a part of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Truth,
    Number,
    Duration,
    Text,
}

impl Type {
    /// With its article, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Truth => "a truth value",
            Self::Number => "a number",
            Self::Duration => "a duration",
            Self::Text => "a text",
        }
    }

    /// Several of them, for messages.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Truth => "truth values",
            Self::Number => "numbers",
            Self::Duration => "durations",
            Self::Text => "texts",
        }
    }
}
