//! The policies, one file each, and the table of them.

mod adaptive;
mod dynamic;
mod fixed;
mod home_first;
mod lone;
mod size;
mod threads;
mod weighted;

use crate::policy_config::{PolicyConfig, PolicyKind};
use std::convert::Infallible;
pub use weighted::shares;

/// Every policy. A new one is a file beside this one, and a line here.
pub const POLICIES: &[&PolicyKind] =
    &[&adaptive::KIND, &weighted::KIND, &fixed::KIND, &dynamic::KIND, &home_first::KIND, &size::KIND];

impl PolicyConfig {
    /// The policy of this name with its default settings; `None` if there is no
    /// such policy.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let kind = *POLICIES.iter().find(|kind| kind.name == name)?;
        match Self::read(kind, |_| Ok::<_, Infallible>(None)) {
            Ok(config) => Some(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Context, Origin, TierView, WriteSpan};
    use crate::credits::Credits;
    use crate::epoch::{EpochLoad, TierEpoch};
    use crate::policy::Policy;
    use crate::policy_config::make_policy;
    use crate::policy_setting::{SettingKind, SettingValue};
    use braid_contract::TierId;

    pub(super) fn view(id: u8, weight: f64) -> TierView {
        TierView {
            id: TierId(id),
            home: id == 0,
            weight,
            bandwidth: [weight; 2],
            has_room: true,
            used: 0.0,
            queued: 0,
            saturating: None,
        }
    }

    /// A tier that did nothing in an epoch.
    pub(super) fn tier_epoch(id: u8, bandwidth: f64) -> TierEpoch {
        TierEpoch {
            id: TierId(id),
            load: [EpochLoad::default(); 2],
            bandwidth: [bandwidth; 2],
            known: true,
            takes: true,
            moved: 0.0,
            saturating: None,
        }
    }

    impl<'a> Context<'a> {
        pub(super) fn for_tests(
            origin: Origin,
            span: WriteSpan,
            credits: &'a Credits,
            tiers: &'a [TierView],
        ) -> Self {
            Self { origin, span, file: 0, credits, tiers }
        }
    }

    /// Places one range for a thread, and records it.
    pub(super) fn place_by(policy: &dyn Policy, thread: u32, tiers: &[TierView]) -> Option<TierId> {
        let credits = Credits::new(0, 1);
        let origin = Origin { thread, direct: true, ..Origin::default() };
        let span = WriteSpan { len: 1 << 16, new_bytes: 1 << 21, ..WriteSpan::default() };
        let context = Context::for_tests(origin, span, &credits, tiers);
        let tier = policy.place(&context)?;
        policy.placed(&context, tier);
        Some(tier)
    }

    pub(super) fn place(
        policy: &dyn Policy,
        credits: &Credits,
        tiers: &[TierView],
        size_after: u64,
    ) -> Option<TierId> {
        let span = WriteSpan { size_after, new_bytes: 1 << 21, ..WriteSpan::default() };
        policy.place(&Context::for_tests(Origin::default(), span, credits, tiers))
    }

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
