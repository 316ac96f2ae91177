//! A policy as it is set: its kind, and a value for each of the kind's settings.

use crate::policies::POLICIES;
use crate::policy::Policy;
use crate::policy_kind::{PolicyKind, Setting, SettingValue, Settings, Target};
use braid_contract::TierId;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// A placement policy and its settings.
#[derive(Clone)]
pub struct PolicyConfig {
    kind: &'static PolicyKind,
    /// One for each of the kind's settings, in their order.
    values: Vec<SettingValue>,
}

impl PolicyConfig {
    /// The policy of this name with its settings as they are by default; `None`
    /// if there is no such policy.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let kind = *POLICIES.iter().find(|kind| kind.name == name)?;
        match Self::read(kind, |_| Ok::<_, Infallible>(None)) {
            Ok(config) => Some(config),
        }
    }

    /// A policy with the settings that `read` finds; the default stands for
    /// each of which it finds `None`.
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

    /// Which policy it is.
    #[must_use]
    pub fn kind(&self) -> &'static PolicyKind {
        self.kind
    }

    /// Its name, as it is written.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// What a setting is set to; `None` if the policy has no such setting.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&SettingValue> {
        self.values().find(|(setting, _)| setting.key == key).map(|(_, value)| value)
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

    /// Up to which percentage of its space home is filled before any other
    /// tier; `None` if the policy does not put home first.
    #[must_use]
    pub fn home_watermark(&self) -> Option<f64> {
        match self.value(self.kind.home_watermark?)? {
            SettingValue::Percent(percent) => Some(*percent),
            _ => None,
        }
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

/// Makes the policy that `config` asks for. `tier` finds a tier by its name;
/// `None` is answered where it finds none.
pub fn make_policy(config: &PolicyConfig, tier: impl Fn(&str) -> Option<TierId>) -> Option<Arc<dyn Policy>> {
    (config.kind.make)(&Settings { kind: config.kind, values: &config.values, tier: &tier })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_kind::SettingKind;

    #[test]
    fn every_policy_has_a_name_of_its_own_and_is_made_of_its_defaults() {
        for (at, kind) in POLICIES.iter().enumerate() {
            let config = PolicyConfig::named(kind.name).unwrap();
            let first = POLICIES.iter().position(|other| other.name == kind.name);
            assert_eq!(first, Some(at), "{}: twice", kind.name);
            let policy = make_policy(&config, |_| None);
            let described = policy.unwrap_or_else(|| panic!("{}", kind.name)).describe();
            assert!(described.starts_with(kind.name), "{described}");
        }
    }

    #[test]
    fn a_policy_reads_each_of_its_settings() {
        for kind in POLICIES {
            let defaults = PolicyConfig::named(kind.name).unwrap();
            let described =
                |config: &PolicyConfig| make_policy(config, |_| Some(TierId(1))).unwrap().describe();
            for setting in kind.settings {
                let other = match setting.kind {
                    SettingKind::Threads { default, .. } => SettingValue::Threads(default + 1),
                    SettingKind::Percent { default, .. } => SettingValue::Percent(default / 2.0),
                    SettingKind::Size { default } => SettingValue::Size(default + 1),
                    SettingKind::Target => SettingValue::tier("other"),
                };
                let changed = defaults.clone().with([(setting.key, other)]).unwrap();
                assert!(changed != defaults, "{}: {}", kind.name, setting.key);
                assert_ne!(described(&changed), described(&defaults), "{}: {}", kind.name, setting.key);
            }
        }
    }

    #[test]
    fn home_first_has_a_watermark_and_it_is_a_percentage() {
        let watermark = |name| PolicyConfig::named(name).unwrap().home_watermark();
        assert_eq!((watermark("home-first"), watermark("weighted")), (Some(90.0), None));
        for kind in POLICIES.iter().filter(|kind| kind.home_watermark.is_some()) {
            assert!(watermark(kind.name).is_some(), "{}", kind.name);
        }
    }

    #[test]
    fn a_setting_of_another_policy_or_of_another_kind_is_none() {
        let size = PolicyConfig::named("size").unwrap();
        assert!(size.clone().with([("watermark", SettingValue::Percent(1.0))]).is_none());
        assert!(size.clone().with([("small", SettingValue::Percent(1.0))]).is_none());
        let named = size.with([("large", SettingValue::tier("big"))]).unwrap();
        assert_eq!(named.tiers().collect::<Vec<_>>(), ["big"]);
        assert!(
            make_policy(&named, |_| None).is_none() && make_policy(&named, |_| Some(TierId(1))).is_some()
        );
    }
}
