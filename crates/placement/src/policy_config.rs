//! A policy's description and its settings. Stack files, flags and help are
//! parsed and generated from this alone.

use crate::policy::Policy;
use crate::policy_setting::{Setting, SettingValue, Target};
use braid_contract::{Mover, TierId};
use std::fmt;
use std::sync::Arc;

/// Finds a tier by its name.
pub(crate) type TierOf<'a> = &'a dyn Fn(&str) -> Option<TierId>;

/// A kind of placement policy.
pub struct PolicyKind {
    /// Its name, as written.
    pub name: &'static str,
    /// Its effect, in one line.
    pub summary: &'static str,
    /// Its settings, in the order in which they are documented.
    pub settings: &'static [Setting],
    /// The setting, a percentage, for how far home is filled before any other
    /// tier; `None` if the policy does not put home first.
    pub home_watermark: Option<&'static str>,
    /// The movers that are on where nothing is said of them.
    pub movers: &'static [Mover],
    /// Makes the policy; `None` if a setting names an unknown tier.
    pub(crate) make: fn(&PolicyConfig, TierOf<'_>) -> Option<Arc<dyn Policy>>,
}

/// A placement policy and its settings.
#[derive(Clone)]
pub struct PolicyConfig {
    kind: &'static PolicyKind,
    /// One for each of the kind's settings, in their order.
    values: Vec<SettingValue>,
}

impl PolicyConfig {
    /// A policy with the settings that `read` answers, and the default for each
    /// `None`.
    ///
    /// # Errors
    /// The first of `read`.
    pub fn read<E>(
        kind: &'static PolicyKind,
        mut read: impl FnMut(&Setting) -> Result<Option<SettingValue>, E>,
    ) -> Result<Self, E> {
        let value = |setting: &Setting| {
            let found = read(setting)?.filter(|value| value.is_of(setting.kind));
            Ok(found.unwrap_or_else(|| setting.kind.default_value()))
        };
        Ok(Self { kind, values: kind.settings.iter().map(value).collect::<Result<_, E>>()? })
    }

    /// The same with other values of these settings; `None` if the policy lacks
    /// one of them, or it is of another kind.
    #[must_use]
    pub fn with<const N: usize>(mut self, settings: [(&str, SettingValue); N]) -> Option<Self> {
        for (key, value) in settings {
            let at = self.kind.settings.iter().position(|setting| setting.key == key)?;
            value.is_of(self.kind.settings[at].kind).then_some(())?;
            self.values[at] = value;
        }
        Some(self)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &'static PolicyKind {
        self.kind
    }

    /// Its name, as written.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The value of a setting; `None` if the policy has no such setting.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&SettingValue> {
        self.values().find(|(setting, _)| setting.key == key).map(|(_, value)| value)
    }

    /// The value of a setting that is a number of threads.
    pub(crate) fn threads(&self, key: &str) -> Option<u32> {
        match self.value(key)? {
            SettingValue::Threads(threads) => Some(*threads),
            _ => None,
        }
    }

    /// The value of a setting that is a percentage, 0 to 100.
    pub(crate) fn percent(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            SettingValue::Percent(percent) => Some(*percent),
            _ => None,
        }
    }

    /// The same as a share, 0 to 1.
    pub(crate) fn share(&self, key: &str) -> Option<f64> {
        Some(self.percent(key)? / 100.0)
    }

    /// The value of a setting that is a size in bytes.
    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            SettingValue::Size(size) => Some(*size),
            _ => None,
        }
    }

    /// The value of a setting that is a tier: the tier and its name, or
    /// `Some(None)` for all of them; `None` also if the tier is unknown.
    pub(crate) fn target(&self, key: &str, tier: TierOf<'_>) -> Option<Option<(TierId, String)>> {
        match self.value(key)? {
            SettingValue::Target(Target::Spread) => Some(None),
            SettingValue::Target(Target::Tier(name)) => Some(Some((tier(name)?, name.clone()))),
            _ => None,
        }
    }

    fn values(&self) -> impl Iterator<Item = (&'static Setting, &SettingValue)> {
        self.kind.settings.iter().zip(&self.values)
    }

    /// The tiers that its settings name.
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter_map(|value| match value {
            SettingValue::Target(Target::Tier(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Percentage of its space up to which home is filled before any other
    /// tier; `None` if the policy does not put home first.
    #[must_use]
    pub fn home_watermark(&self) -> Option<f64> {
        self.percent(self.kind.home_watermark?)
    }
}

impl PartialEq for PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && self.values == other.values
    }
}

impl fmt::Debug for PolicyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct(self.kind.name);
        for (setting, value) in self.values() {
            debug.field(setting.key, value);
        }
        debug.finish()
    }
}

/// Makes the policy of `config`. `tier` finds a tier by its name; answers
/// `None` if that fails.
pub fn make_policy(config: &PolicyConfig, tier: impl Fn(&str) -> Option<TierId>) -> Option<Arc<dyn Policy>> {
    (config.kind.make)(config, &tier)
}
