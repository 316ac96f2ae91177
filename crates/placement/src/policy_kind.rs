//! The description of a policy, which its file exports: its name, the schema
//! of its settings, and how it is made. Stack files, flags and help are read
//! and written by this alone.

use crate::policy::Policy;
use braid_contract::TierId;
use std::sync::Arc;

/// A kind of placement policy.
pub struct PolicyKind {
    /// Its name, as it is written.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its settings, in the order in which they are documented.
    pub settings: &'static [Setting],
    /// The setting, a percentage, up to which home is filled before any other
    /// tier; `None` if the policy does not put home first.
    pub home_watermark: Option<&'static str>,
    /// Makes the policy; `None` if a setting names a tier that there is not.
    pub(crate) make: fn(&Settings<'_>) -> Option<Arc<dyn Policy>>,
}

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

/// The settings of a policy that is being made.
pub(crate) struct Settings<'a> {
    pub(crate) kind: &'static PolicyKind,
    /// The values, in the order of the kind's settings.
    pub(crate) values: &'a [SettingValue],
    /// Finds a tier by its name.
    pub(crate) tier: &'a dyn Fn(&str) -> Option<TierId>,
}

/// Each getter answers `None` if there is no such setting of that kind.
impl Settings<'_> {
    fn value(&self, key: &str) -> Option<&SettingValue> {
        let at = self.kind.settings.iter().position(|setting| setting.key == key)?;
        self.values.get(at)
    }

    /// A number of threads.
    pub(crate) fn threads(&self, key: &str) -> Option<u32> {
        match self.value(key)? {
            SettingValue::Threads(threads) => Some(*threads),
            _ => None,
        }
    }

    /// A percentage as a share, 0 to 1.
    pub(crate) fn share(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            SettingValue::Percent(percent) => Some(percent / 100.0),
            _ => None,
        }
    }

    /// A size in bytes.
    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            SettingValue::Size(size) => Some(*size),
            _ => None,
        }
    }

    /// A tier and its name, or `Some(None)` for all of them; `None` also if
    /// there is no such tier.
    pub(crate) fn target(&self, key: &str) -> Option<Option<(TierId, String)>> {
        match self.value(key)? {
            SettingValue::Target(Target::Spread) => Some(None),
            SettingValue::Target(Target::Tier(name)) => Some(Some(((self.tier)(name)?, name.clone()))),
            _ => None,
        }
    }
}
