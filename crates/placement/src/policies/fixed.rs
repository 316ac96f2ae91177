//! `static`: threads mapped to tiers, as many as saturate it to the fastest,
//! then to the next, and so on (PolyStore §4.4.2).

use super::threads::{THREADS, ThreadMap};
use crate::context::Context;
use crate::epoch::Epoch;
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::sync::Mutex;
use braid_contract::{Mover, TierId};
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "static",
    summary: "threads are mapped to tiers, the fastest first",
    settings: &[THREADS],
    home_watermark: None,
    movers: &[Mover::Promote, Mover::Demote],
    make: |settings, _| Some(Arc::new(Static::new(settings.threads(THREADS.key)?))),
};

pub(super) struct Static {
    threads: u32,
    map: Mutex<ThreadMap>,
}

impl Static {
    /// `threads` saturate a tier whose number is unknown.
    pub(super) fn new(threads: u32) -> Self {
        Self { threads, map: Mutex::new(ThreadMap::new(threads)) }
    }
}

impl Policy for Static {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        format!("static, {} threads saturate a tier unless more is known", self.threads)
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        self.map.lock().place(context)
    }

    fn placed(&self, context: &Context<'_>, _tier: TierId) {
        self.map.lock().placed(context);
    }

    fn epoch(&self, epoch: &Epoch) {
        self.map.lock().epoch(epoch.nanos, &epoch.tiers);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place_by, view};
    use super::*;

    fn placed_by(policy: &Static, thread: u32, tiers: &[crate::context::TierView]) -> u8 {
        place_by(policy, thread, tiers).unwrap().0
    }

    #[test]
    fn the_fastest_tier_gets_its_threads_first() {
        let mut tiers = [view(0, 60.0), view(1, 200.0), view(2, 25.0)];
        (tiers[0].saturating, tiers[1].saturating) = (Some(1), None);
        let policy = Static::new(2);
        let tier_of = |thread| placed_by(&policy, thread, &tiers);
        // The last ones are more than saturate all tiers.
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(tier_of), [1, 1, 0, 2, 2, 1, 1]);
        // A thread stays on its tier.
        assert_eq!([1, 3, 5].map(tier_of), [1, 0, 2]);
    }

    #[test]
    fn a_full_tier_is_passed_over_and_who_is_idle_gives_the_place_back() {
        let mut tiers = [view(0, 60.0), view(1, 200.0), view(2, 25.0)];
        let policy = Static::new(1);
        tiers[1].has_room = false;
        assert_eq!(placed_by(&policy, 1, &tiers), 0);
        tiers[1].has_room = true;
        assert_eq!([1, 2].map(|thread| placed_by(&policy, thread, &tiers)), [1, 0]);
        for _ in 0..20 {
            placed_by(&policy, 2, &tiers);
            policy.epoch(&Epoch { nanos: 200_000_000, tiers: Vec::new() });
        }
        assert_eq!([3, 2].map(|thread| placed_by(&policy, thread, &tiers)), [1, 0]);
        tiers.iter_mut().for_each(|tier| tier.has_room = false);
        assert_eq!(place_by(&policy, 3, &tiers), None);
    }
}
