//! The policies, one file each.

mod adaptive;
mod dynamic;
mod fixed;
mod home_first;
mod size;
mod threads;
mod weighted;

use crate::policy_kind::PolicyKind;
pub use weighted::shares;

/// Every policy. A new one is a file beside this one, and a line here.
pub const POLICIES: &[&PolicyKind] =
    &[&adaptive::KIND, &weighted::KIND, &fixed::KIND, &dynamic::KIND, &home_first::KIND, &size::KIND];

#[cfg(test)]
mod tests {
    use crate::context::{Context, Origin, TierView, WriteSpan};
    use crate::credits::Credits;
    use crate::policy::Policy;
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
