//! `home-first`: everything on the home tier until that is fuller than its
//! watermark; from then on the fastest other tier with room (the placement part
//! of Mux §3.1's reference policy).

use crate::context::{Context, TierView};
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::policy_setting::{Setting, SettingKind};
use braid_contract::{Mover, TierId};
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "home-first",
    summary: "home up to a watermark, then the fastest with room",
    settings: &[WATERMARK],
    home_watermark: Some(WATERMARK.key),
    movers: &[Mover::Promote, Mover::Demote],
    make: |settings, _| Some(Arc::new(HomeFirst { watermark: settings.share(WATERMARK.key)? })),
};

/// How full home may become.
const WATERMARK: Setting = Setting {
    key: "watermark",
    kind: SettingKind::Percent { default: 90.0, why_not_zero: "at 0% nothing would ever go home" },
};

pub(super) struct HomeFirst {
    /// Share of home's space, 0 to 1.
    pub(super) watermark: f64,
}

impl Policy for HomeFirst {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        format!("home-first, watermark {}%", self.watermark * 100.0)
    }

    fn decides_shares(&self) -> bool {
        true
    }

    fn prefers_home(&self) -> bool {
        true
    }

    fn decides_at_write(&self) -> bool {
        false
    }

    fn spares_home(&self, used: f64, _low: f64) -> bool {
        used >= self.watermark
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let home = context.home().filter(|home| home.has_room);
        if let Some(home) = home.filter(|home| home.used < self.watermark) {
            return Some(home.id);
        }
        let others = context.tiers.iter().filter(|tier| !tier.home && tier.has_room);
        let fastest = others.max_by(|a, b| a.bandwidth[1].total_cmp(&b.bandwidth[1]));
        // Above the watermark, home is still better than refusing the write.
        fastest.or(home).map(|tier: &TierView| tier.id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place, view};
    use super::*;
    use crate::credits::Credits;

    #[test]
    fn home_until_the_watermark_then_the_fastest_with_room() {
        let policy = HomeFirst { watermark: 0.9 };
        let credits = Credits::new(0, 1);
        let mut tiers = [view(0, 9.0), view(1, 1.0), view(2, 5.0)];
        assert_eq!(place(&policy, &credits, &tiers, 0), Some(TierId(0)));
        tiers[0].used = 0.9;
        assert_eq!(place(&policy, &credits, &tiers, 0), Some(TierId(2)));
        tiers[2].has_room = false;
        assert_eq!(place(&policy, &credits, &tiers, 0), Some(TierId(1)));
        tiers[1].has_room = false;
        assert_eq!(place(&policy, &credits, &tiers, 0), Some(TierId(0)));
        tiers[0].has_room = false;
        assert_eq!(place(&policy, &credits, &tiers, 0), None);
    }
}
