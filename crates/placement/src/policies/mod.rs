//! The policies, one file each.

mod adaptive;
mod dynamic;
mod fixed;
mod home_first;
mod size;
mod threads;
mod weighted;

use crate::policy::Policy;
use crate::settings::{LargeFiles, PolicyConfig};
use adaptive::Adaptive;
use braid_contract::TierId;
use dynamic::Dynamic;
use fixed::Static;
use home_first::HomeFirst;
use size::Size;
use std::sync::Arc;
use weighted::Weighted;
pub use weighted::shares;

/// Makes the policy that `config` asks for. `tier` finds a tier by its name;
/// `None` is answered where it finds none.
pub fn make_policy(config: &PolicyConfig, tier: impl Fn(&str) -> Option<TierId>) -> Option<Arc<dyn Policy>> {
    Some(match config {
        PolicyConfig::HomeFirst { watermark_percent } => {
            Arc::new(HomeFirst { watermark: watermark_percent / 100.0 })
        }
        PolicyConfig::Weighted => Arc::new(Weighted),
        PolicyConfig::Adaptive => Arc::new(Adaptive::new()),
        PolicyConfig::Static { threads } => Arc::new(Static::new(*threads)),
        PolicyConfig::Dynamic { threads, tier_threshold_percent, global_threshold_percent } => {
            let thresholds =
                [tier_threshold_percent, global_threshold_percent].map(|percent| percent / 100.0);
            Arc::new(Dynamic::new(*threads, thresholds))
        }
        PolicyConfig::Size { small, sync, large } => {
            let large = match large {
                LargeFiles::Spread => None,
                LargeFiles::Tier(name) => Some((tier(name)?, name.clone())),
            };
            Arc::new(Size::new(*small, *sync, large))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Context, Origin, TierView, WriteSpan};
    use crate::credits::Credits;

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

    /// One range for a thread, and its place is taken.
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
}
