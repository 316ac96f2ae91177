//! Where a new range goes.
//!
//! A policy is one file behind [`Policy`]: a small function of what is known of
//! a write and of the tiers, to one tier. It is asked once for the ranges that
//! one write touches first (PolyStore §4.4.2), never for data that is placed
//! already. What to do when the tier it names has no room is not its business.

mod adaptive;
mod believed;
mod deal;
mod dynamic;
mod fixed;
mod home_first;
mod size;
mod threads;
mod weighted;

use crate::config::{LargeFiles, PolicyConfig};
use crate::tiers::EpochLoad;
use adaptive::Adaptive;
pub(crate) use believed::{Known, believed, filled};
use braid_contract::{Caller, Hint, StoreIo, TierId, WriteFlags};
pub(crate) use deal::Deal;
use dynamic::Dynamic;
use fixed::Static;
use home_first::HomeFirst;
use size::Size;
use std::sync::Arc;
use weighted::Weighted;
pub(crate) use weighted::shares;

/// Who writes, and how; or who else gives ranges their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Thread id; 0 if it is not known, such as when the kernel writes back.
    pub(crate) thread: u32,
    /// The write must be durable when it returns.
    pub(crate) sync: bool,
    /// It must not stay in memory.
    pub(crate) direct: bool,
    /// Space is only set aside: there is no data yet.
    pub(crate) reserves: bool,
    /// What is known of the data.
    pub(crate) hint: Hint,
}

impl Origin {
    /// Of a write.
    pub(crate) fn of_write(caller: &Caller, flags: WriteFlags) -> Self {
        Self { sync: flags.sync, direct: flags.direct, hint: flags.hint, ..Self::of_caller(caller) }
    }

    /// Of an operation that sets space aside.
    pub(crate) fn of_reserving(caller: &Caller) -> Self {
        Self { reserves: true, ..Self::of_caller(caller) }
    }

    /// Of another operation.
    pub(crate) fn of_caller(caller: &Caller) -> Self {
        Self { uid: caller.uid, gid: caller.gid, thread: caller.tid, ..Self::default() }
    }

    /// Whether data stays in memory for a while, and is written to the tier
    /// with nobody waiting for it.
    fn is_buffered(&self) -> bool {
        !(self.direct || self.sync || self.reserves)
    }

    /// What a store needs to know of it.
    pub(crate) fn store_io(&self) -> StoreIo {
        StoreIo { direct: self.direct, hint: self.hint }
    }
}

/// Where in a file ranges are to get their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    /// Where the write begins.
    pub(crate) offset: u64,
    /// Bytes of the write.
    pub(crate) len: u64,
    /// Size of the file before it.
    pub(crate) size: u64,
    /// Size of the file once it is done.
    pub(crate) size_after: u64,
    /// Bytes that the new ranges take together.
    pub(crate) new_bytes: u64,
}

impl Span {
    /// Of a file of `size` bytes that nobody writes to.
    pub(crate) fn at_rest(size: u64) -> Self {
        Self { size, size_after: size, ..Self::default() }
    }

    /// Whether the write begins at the end of the file, or beyond.
    pub(crate) fn appends(&self) -> bool {
        self.offset >= self.size
    }

    /// Bytes that a tier has to have room for to get the new ranges: all of
    /// them if the file is large enough to fill them soon. A file is taken to
    /// become as long again as it is, so that a small one with long ranges is
    /// not kept from a tier that has room for it.
    pub(crate) fn needed_bytes(&self) -> u64 {
        self.new_bytes.min(self.len.max(self.size))
    }

    /// Bytes of them that count as taken before the tier is measured again. A
    /// write into a hole says nothing of what comes next.
    pub(crate) fn taken_bytes(&self) -> u64 {
        if self.appends() { self.needed_bytes() } else { self.new_bytes.min(self.len) }
    }
}

/// What is known of the write that first touches some ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) origin: Origin,
    pub(crate) span: Span,
    /// A number that no other file has.
    pub(crate) file: u64,
    /// What was dealt to each tier of this file so far.
    pub(crate) deal: &'a Deal,
    /// The tiers; home is among them.
    pub(crate) tiers: &'a [TierView],
}

impl Context<'_> {
    fn home(&self) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.home)
    }

    fn tier(&self, id: TierId) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.id == id)
    }

    /// The thread that writes, or else the file that is written, as a number.
    fn stream(&self) -> u64 {
        match self.origin.thread {
            0 => self.file | 1 << 63,
            thread => u64::from(thread),
        }
    }
}

/// A tier as a policy sees it.
#[derive(Clone, Debug)]
pub(crate) struct TierView {
    pub(crate) id: TierId,
    pub(crate) home: bool,
    /// Bandwidth relative to the other tiers, above 0.
    pub(crate) weight: f64,
    /// Bytes a second that it is believed to do, read and written.
    pub(crate) bandwidth: [f64; 2],
    /// There is room for the new ranges beyond the reserve, and the tier takes
    /// new ranges at all.
    pub(crate) has_room: bool,
    /// Share of the tier's space in use by anybody, 0 to 1.
    pub(crate) used: f64,
    /// Bytes of writes that are under way on it.
    pub(crate) queued: u64,
    /// Threads that keep it busy with writes, where that is known.
    pub(crate) saturating: Option<u32>,
}

/// An epoch that ended.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    /// How long it was, in nanoseconds.
    pub(crate) nanos: u64,
    /// The tiers, in their order.
    pub(crate) tiers: Vec<TierEpoch>,
}

impl Epoch {
    fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

/// A tier at the end of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierEpoch {
    pub(crate) id: TierId,
    /// What it did, read and written.
    pub(crate) load: [EpochLoad; 2],
    /// Bytes a second that it is believed to do, read and written.
    pub(crate) bandwidth: [f64; 2],
    /// What it can write was seen, or given.
    pub(crate) known: bool,
}

/// A figure for each tier, by its number.
#[derive(Clone, Debug)]
struct PerTier<T>([T; TierId::LIMIT as usize]);

impl<T: Copy> PerTier<T> {
    fn all(value: T) -> Self {
        Self([value; TierId::LIMIT as usize])
    }
}

impl<T> std::ops::Index<TierId> for PerTier<T> {
    type Output = T;

    fn index(&self, tier: TierId) -> &T {
        &self.0[usize::from(tier.0) % self.0.len()]
    }
}

impl<T> std::ops::IndexMut<TierId> for PerTier<T> {
    fn index_mut(&mut self, tier: TierId) -> &mut T {
        let len = self.0.len();
        &mut self.0[usize::from(tier.0) % len]
    }
}

/// A placement policy.
pub(crate) trait Policy: Send + Sync {
    /// Its name and settings, as `status` shows them.
    fn describe(&self) -> String;

    /// The tier for new ranges, one that [`has_room`](TierView::has_room);
    /// `None` if it knows none. Asked also only to see what it would be.
    fn place(&self, context: &Context<'_>) -> Option<TierId>;

    /// The tier's share, against others', when the ranges of a file are dealt.
    fn share(&self, tier: &TierView) -> f64 {
        tier.weight
    }

    /// Whether it says which share of a file each tier is to have: by the file,
    /// and not by what tiers do at the moment.
    fn decides_shares(&self) -> bool {
        false
    }

    /// Whether a file that fits in one range may begin on another tier than
    /// home, of whose space so much is in use, 0 to 1. Movers relieve home
    /// until it is below `low`.
    fn spares_home(&self, used: f64, low: f64) -> bool {
        used >= low
    }

    /// The ranges were placed on this tier.
    fn placed(&self, _context: &Context<'_>, _tier: TierId) {}

    /// An epoch ended.
    fn epoch(&self, _epoch: &Epoch) {}
}

/// Makes the policy that `config` asks for. `tier` finds a tier by its name;
/// `None` is answered where it finds none.
pub(crate) fn make(config: &PolicyConfig, tier: impl Fn(&str) -> Option<TierId>) -> Option<Arc<dyn Policy>> {
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
        pub(super) fn for_tests(origin: Origin, span: Span, deal: &'a Deal, tiers: &'a [TierView]) -> Self {
            Self { origin, span, file: 0, deal, tiers }
        }
    }

    /// One range for a thread, and its place is taken.
    pub(super) fn place_by(policy: &dyn Policy, thread: u32, tiers: &[TierView]) -> Option<TierId> {
        let deal = Deal::new(0, 1);
        let origin = Origin { thread, direct: true, ..Origin::default() };
        let span = Span { len: 1 << 16, new_bytes: 1 << 21, ..Span::default() };
        let context = Context::for_tests(origin, span, &deal, tiers);
        let tier = policy.place(&context)?;
        policy.placed(&context, tier);
        Some(tier)
    }

    pub(super) fn place(
        policy: &dyn Policy,
        deal: &Deal,
        tiers: &[TierView],
        size_after: u64,
    ) -> Option<TierId> {
        let span = Span { size_after, new_bytes: 1 << 21, ..Span::default() };
        policy.place(&Context::for_tests(Origin::default(), span, deal, tiers))
    }
}
