//! Settings of policies: their kinds and values.

/// A setting of a policy.
#[derive(Debug)]
pub struct Setting {
    /// Its key, as written.
    pub key: &'static str,
    /// Its kind, with the default.
    pub kind: SettingKind,
}

/// The kind of a setting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SettingKind {
    /// A number of threads.
    Threads {
        /// The default.
        default: u32,
        /// The maximum.
        max: u32,
    },
    /// A percentage above 0.
    Percent {
        /// The default.
        default: f64,
        /// Why it can't be 0.
        why_not_zero: &'static str,
    },
    /// A size in bytes.
    Size {
        /// The default.
        default: u64,
    },
    /// The name of a tier, or `spread`, which is the default.
    Target,
}

impl SettingKind {
    /// The default.
    #[must_use]
    pub fn default_value(self) -> SettingValue {
        match self {
            Self::Threads { default, .. } => SettingValue::Threads(default),
            Self::Percent { default, .. } => SettingValue::Percent(default),
            Self::Size { default } => SettingValue::Size(default),
            Self::Target => SettingValue::Target(Target::Spread),
        }
    }
}

/// The value of a setting.
#[derive(Clone, PartialEq, Debug)]
pub enum SettingValue {
    /// A number of threads.
    Threads(u32),
    /// A percentage, 0 to 100.
    Percent(f64),
    /// A size in bytes.
    Size(u64),
    /// The destination of data.
    Target(Target),
}

impl SettingValue {
    /// The tier of this name.
    #[must_use]
    pub fn tier(name: &str) -> Self {
        Self::Target(Target::Tier(name.to_owned()))
    }

    /// Whether a setting of this kind can have the value.
    #[must_use]
    pub fn is_of(&self, kind: SettingKind) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(&kind.default_value())
    }
}

/// A destination of data in a policy's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Over all tiers, as `weighted` does.
    Spread,
    /// On the tier of this name.
    Tier(String),
}
