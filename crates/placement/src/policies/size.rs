//! `size`: small files home, and small synchronous writes and later ones in the
//! same file too; the rest is spread, or goes to a tier of its own (TPFS's
//! placement by size, synchronicity and history, Mux §2.1).

use super::weighted::Weighted;
use crate::context::Context;
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::policy_setting::{Setting, SettingKind};
use crate::sync::Mutex;
use braid_contract::{Mover, TierId};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "size",
    summary: "small files and small synchronous writes home",
    settings: &[SMALL, SYNC, LARGE],
    home_watermark: None,
    movers: &[Mover::Promote, Mover::Demote],
    make: |settings, tier| {
        let [small, sync] = [settings.size(SMALL.key)?, settings.size(SYNC.key)?];
        Some(Arc::new(Size::new(small, sync, settings.target(LARGE.key, tier)?)))
    },
};

/// Files up to this size stay home.
const SMALL: Setting = Setting { key: "small", kind: SettingKind::Size { default: 4 << 20 } };
/// Synchronous writes up to this size go home.
const SYNC: Setting = Setting { key: "sync", kind: SettingKind::Size { default: 64 << 10 } };
/// Tier of the others.
const LARGE: Setting = Setting { key: "large", kind: SettingKind::Target };

pub(super) struct Size {
    /// Files up to this many bytes stay home.
    small: u64,
    /// So do synchronous writes up to this many.
    sync: u64,
    /// The tier of large files and its name; `None` spreads them.
    large: Option<(TierId, String)>,
    /// Share of each file's recently placed data that came with small
    /// synchronous writes, 0 to 1.
    history: Mutex<HashMap<u64, f64>>,
}

/// Most files that are remembered.
const FILES_MAX: usize = 16_384;
/// Weight of one placement in a file's history.
const LATEST: f64 = 0.25;
/// From this share on, all new ranges of a file go home.
const MOSTLY: f64 = 0.5;

impl Size {
    pub(super) fn new(small: u64, sync: u64, large: Option<(TierId, String)>) -> Self {
        Self { small, sync, large, history: Mutex::new(HashMap::new()) }
    }

    fn is_small_sync(&self, context: &Context<'_>) -> bool {
        context.origin.sync && context.span.len <= self.sync
    }

    /// Whether the file's ranges belong where latency is lowest.
    fn belongs_home(&self, context: &Context<'_>) -> bool {
        context.span.size_after <= self.small
            || self.is_small_sync(context)
            || self.history.lock().get(&context.file).is_some_and(|share| *share > MOSTLY)
    }
}

impl Policy for Size {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        let large = self.large.as_ref().map_or("spread", |(_, name)| name);
        let (small, sync) = (self.small, self.sync);
        format!("size, up to {small} bytes and synchronous writes up to {sync} home, larger: {large}")
    }

    fn decides_shares(&self) -> bool {
        true
    }

    fn decides_at_write(&self) -> bool {
        false
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let has_room = |id| context.tier(id).is_some_and(|tier| tier.has_room);
        let wanted = match self.belongs_home(context) {
            true => context.home().map(|home| home.id),
            false => self.large.as_ref().map(|(tier, _)| *tier),
        };
        wanted.filter(|tier| has_room(*tier)).or_else(|| Weighted.place(context))
    }

    fn placed(&self, context: &Context<'_>, _tier: TierId) {
        let latest = if self.is_small_sync(context) { 1.0 } else { 0.0 };
        let mut history = self.history.lock();
        if history.len() >= FILES_MAX && !history.contains_key(&context.file) {
            history.clear();
        }
        let share = history.entry(context.file).or_insert(latest);
        *share += LATEST * (latest - *share);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place, view};
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use crate::credits::Credits;

    #[test]
    fn small_files_home_large_ones_where_told() {
        let mut tiers = [view(0, 1.0), view(1, 100.0), view(2, 1.0)];
        let credits = Credits::new(0, 1);
        let named = Size::new(100, 0, Some((TierId(2), "big".into())));
        assert_eq!(place(&named, &credits, &tiers, 100), Some(TierId(0)));
        assert_eq!(place(&named, &credits, &tiers, 101), Some(TierId(2)));
        tiers[2].has_room = false;
        assert_eq!(place(&named, &credits, &tiers, 101), Some(TierId(1)));
        let spread = Size::new(100, 0, None);
        assert_eq!(place(&spread, &credits, &tiers, 101), Some(TierId(1)));
    }

    #[test]
    fn small_synchronous_writes_go_home_and_so_does_what_follows_them() {
        let (tiers, credits) = ([view(0, 1.0), view(1, 100.0)], Credits::new(0, 1));
        let policy = Size::new(100, 64, Some((TierId(1), "big".into())));
        let write = |file, sync, len| {
            let origin = Origin { sync, ..Origin::default() };
            let span = WriteSpan { len, size_after: 1000, new_bytes: 10, ..WriteSpan::default() };
            let context = Context { file, ..Context::for_tests(origin, span, &credits, &tiers) };
            let tier = policy.place(&context).unwrap();
            policy.placed(&context, tier);
            tier.0
        };
        assert_eq!([write(1, true, 64), write(1, true, 65), write(1, false, 64)], [0, 0, 0]);
        assert_eq!([write(1, false, 500), write(1, false, 500)], [0, 1]);
        assert_eq!([write(2, true, 65), write(2, false, 10)], [1, 1]);
    }
}
