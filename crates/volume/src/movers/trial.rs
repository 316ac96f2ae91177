//! Trials: a tier with slack, while another holds applications up, may be faster
//! than believed. The same shows at the limit of a throttle. So the balance
//! mover briefly reads ranges in use on it, as applications do but as fast as it
//! can; the tier's load shows the result. If it is no faster, the next trial
//! comes later (`braid_placement::Load`).

use super::in_use::on_tier;
use super::shared::Movers;
use crate::heat::HotRange;
use braid_contract::{Error, Mover};
use braid_core::file::{range_size_of, read_on};
use braid_core::live::Layout;
use braid_placement::{Direction, Load, REST_BUSY_MAX};
use braid_sys::AlignedBuf;
use braid_tiers::Tier;

/// Parallel reads, besides those of applications.
const PARALLEL: usize = 4;
/// The most and the fewest bytes of one; in between, it reads as much at a time as
/// was read there on average.
const LEN_MAX: usize = 1 << 20;
const LEN_MIN: usize = 4096;
/// Epochs that a trial takes, of which the first is not whole: so many in a row
/// have to show the same before it is believed.
const EPOCHS: u64 = 6;
/// The longest one, however long an epoch is.
const LASTS_NS: u64 = 2_000_000_000;
/// Bytes that there have to be in use for each of the parallel reads: fewer take
/// longer to find than to read.
const PASS_MIN: u64 = 256 << 10;
/// Busy share up to which a tier is tried out that slows down and recovers again
/// and again: with its mean share of the ranges, it has less rest when it has
/// recovered.
const CHANGING_BUSY_MAX: f64 = 0.85;
/// A tier that does less than this factor more in a whole epoch does no more.
const MORE: f64 = 1.1;

/// The end of a trial that is under way.
struct Trial<'a> {
    load: &'a Load,
    /// Epochs that had ended when it began.
    epochs: u64,
    /// The bandwidth believed then.
    believed: f64,
}

impl Trial<'_> {
    /// Whether the epochs that ended since it began have shown enough.
    fn is_over(&self) -> bool {
        match self.load.epochs() - self.epochs {
            0 | 1 => false,
            EPOCHS.. => true,
            _ => self.load.last_epoch(Direction::Read).rate < MORE * self.believed,
        }
    }
}

impl Movers {
    /// The busy share up to which a tier that may be faster than believed is tried
    /// out, in reading and in writing: ranges that are moved to a tier show how
    /// fast it is written. A trial has to see enough whole epochs.
    pub(crate) fn tries(&self) -> [Option<f64>; 2] {
        let epoch_ns = self.core.tiers.home().load.last_epoch_ns();
        let reads = self.core.environment.threads()
            && self.rounds.is_at_work(Mover::Balance)
            && EPOCHS * epoch_ns <= LASTS_NS;
        let changes = self.imbalance.lock().turns_round();
        let busy_max = if changes { CHANGING_BUSY_MAX } else { REST_BUSY_MAX };
        [reads.then_some(busy_max), None]
    }

    /// Tries out the tiers in doubt, unless `stopped`.
    pub(super) fn try_out(&self, stopped: &(dyn Fn() -> bool + Sync)) {
        for tier in self.core.tiers.iter().filter(|tier| tier.load.is_doubted(Direction::Read)) {
            match self.read_hard(&tier, stopped) {
                true => tier.load.was_tried(Direction::Read),
                false => tier.load.was_not_tried(Direction::Read),
            }
        }
    }

    /// Briefly reads ranges in use on a tier. Answers whether that shows its
    /// bandwidth.
    fn read_hard(&self, tier: &Tier, stopped: &(dyn Fn() -> bool + Sync)) -> bool {
        let believed = tier.load.bandwidth(Direction::Read).unwrap_or(0.0);
        let trial = Trial { load: &tier.load, epochs: tier.load.epochs(), believed };
        let end_ns = self.core.environment.monotonic_ns() + LASTS_NS;
        let is_off = || stopped() || !tier.is_healthy();
        let ends = || is_off() || self.core.environment.monotonic_ns() >= end_ns || trial.is_over();
        let len = (tier.load.op_len(Direction::Read) as usize).clamp(LEN_MIN, LEN_MAX) / LEN_MIN * LEN_MIN;
        let spots = on_tier(self.in_use(), tier.id);
        let parts: Vec<_> = (0..PARALLEL).map(|part| spots.iter().skip(part).step_by(PARALLEL)).collect();
        let done = self.core.side_by_side(parts, |part| {
            let mut buf = AlignedBuf::new();
            let buf = buf.bytes(len);
            // Again and again, unless there is little to read.
            while part.clone().map(|spot| self.read_range(tier, spot, buf, &ends)).sum::<u64>() >= PASS_MIN {}
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(tier = %tier.name, %error, "trying a tier out");
        }
        let found = tier.load.bandwidth(Direction::Read).unwrap_or(0.0);
        tracing::debug!(tier = %tier.name, believed, found, "tried out whether a tier is read faster");
        trial.is_over() && !is_off()
    }

    /// Reads a range, or all of a plain file, one buffer after the other, and
    /// answers how many bytes that were.
    fn read_range(&self, tier: &Tier, spot: &HotRange, buf: &mut [u8], ends: &dyn Fn() -> bool) -> u64 {
        let mut bytes = 0;
        let mut read = || {
            if ends() {
                return Ok(());
            }
            let reached = self.reach(spot.file)?;
            let ranges = range_size_of(&self.core, &reached.file)?;
            let start = ranges.start_of(spot.range.into());
            let end = match &*reached.file.layout.read() {
                Layout::Plain => u64::MAX,
                Layout::Spread(_) => start.saturating_add(ranges.bytes()),
            };
            while !ends() && start + bytes < end {
                match read_on(&self.core, &reached.file, tier, start + bytes, buf)? {
                    0 => break,
                    read => bytes += read as u64,
                }
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = read() {
            tracing::debug!(tier = %tier.name, %error, "a range can't be read to try the tier out");
            return 0;
        }
        bytes
    }
}
