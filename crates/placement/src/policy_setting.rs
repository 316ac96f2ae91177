//! Settings of policies: what each may be, and what it is set to.

/// A setting of a policy.
#[derive(Debug)]
pub struct Setting {
    /// Its key, as it is written.
    pub key: &'static str,
    /// What may be written there, and what holds if nothing is.
    pub kind: SettingKind,
}

/// What a setting may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SettingKind {
    /// A number of threads.
    Threads {
        /// Without the setting.
        default: u32,
        /// The most.
        max: u32,
    },
    /// A percentage above 0.
    Percent {
        /// Without the setting.
        default: f64,
        /// Why it can't be 0.
        why_not_zero: &'static str,
    },
    /// A size in bytes.
    Size {
        /// Without the setting.
        default: u64,
    },
    /// The name of a tier, or `spread`, which is the default.
    Target,
}

impl SettingKind {
    /// What holds if nothing is written.
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

/// What a setting is set to.
#[derive(Clone, PartialEq, Debug)]
pub enum SettingValue {
    /// A number of threads.
    Threads(u32),
    /// A percentage, 0 to 100.
    Percent(f64),
    /// A size in bytes.
    Size(u64),
    /// Where data goes.
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

/// Where a policy is told to put data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Over all tiers, as `weighted` does.
    Spread,
    /// On the tier of this name.
    Tier(String),
}
