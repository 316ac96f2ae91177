//! The ranges that a job moves, and their destinations.

use super::shares::{Shares, shares_of};
use super::targets::{ranked_tiers, target_named};
use crate::occupancy::{Stretch, each_range};
use braid_contract::{Errno, Error, JobKind, Result, TierId};
use braid_core::Core;
use braid_core::file::{PlacementRequest, find_room, placed};
use braid_core::live::{File, Layout};
use braid_format::{PinAttr, RangeSize, Reason};
use braid_placement::{Origin, WriteSpan};
use braid_tiers::{Tier, bit};
use std::path::PathBuf;
use std::sync::Arc;

/// The goal of a job.
pub(super) enum Goal {
    /// Everything on this tier.
    To(Arc<Tier>),
    /// Everything on a better tier, or on a worse one; the tiers and their
    /// ranks, the one to go to first.
    Ranked { tiers: Vec<(Arc<Tier>, f64)>, reason: Reason },
    /// Every tier has its share of each file.
    Shares,
    /// Nothing on `tier`; all of it on `to`, if there is one and it has room.
    Off { tier: Arc<Tier>, to: Option<Arc<Tier>> },
}

/// A range to be moved.
#[derive(Clone)]
pub(super) struct RangeStep {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes of the file in it.
    pub(super) len: u64,
    /// Range size of the file when this was found.
    pub(super) ranges: RangeSize,
    pub(super) from: TierId,
    /// The destination, where it follows from the rest of the file.
    pub(super) to: Option<TierId>,
}

/// The destination of a range.
pub(super) enum Target {
    /// This tier.
    Tier(Arc<Tier>),
    /// None: the range stays, and that is no failure.
    Stay,
    /// None, and the range can't stay either.
    NoRoom,
}

/// The goal of a kind of job.
pub(super) fn goal_of(core: &Core, what: &JobKind) -> Result<Goal> {
    Ok(match what {
        JobKind::Move { to, .. } => Goal::To(target_named(core, to)?),
        JobKind::Promote { .. } => Goal::Ranked { tiers: ranked_tiers(core)?, reason: Reason::Promoted },
        JobKind::Demote { .. } => {
            let mut tiers = ranked_tiers(core)?;
            tiers.reverse();
            Goal::Ranked { tiers, reason: Reason::Demoted }
        }
        JobKind::Rebalance {} => Goal::Shares,
        JobKind::Evacuate { tier, .. } => Goal::Off { tier: core.tiers.named(tier)?, to: None },
        JobKind::Replace { tier, by } => {
            Goal::Off { tier: core.tiers.named(tier)?, to: Some(core.tiers.named(by)?) }
        }
        JobKind::Import { .. } | JobKind::ReplaceHome { .. } | JobKind::Scrub { .. } => {
            return Err(Error::new(Errno::EINVAL, "this job moves no ranges"));
        }
    })
}

/// The next ranges of a file that are to be moved, from the one at offset
/// `first` on, at most `max`.
pub(super) fn steps(core: &Core, goal: &Goal, file: &File, first: u64, max: usize) -> Result<Vec<RangeStep>> {
    let mut shares = match goal {
        Goal::Shares => Some(shares_of(core, file)?),
        _ => None,
    };
    let mut steps = Vec::new();
    let mut taken = 0;
    // Shares depend on the whole file.
    let begin = if shares.is_some() { 0 } else { first };
    let collected = each_range(core, file, begin, &mut |Stretch { offset, len, ranges, tier: from }| {
        let to = shares.as_mut().and_then(|shares: &mut Shares| shares.take_from(from));
        let wanted = match goal {
            Goal::To(tier) => from != tier.id,
            Goal::Ranked { tiers, .. } => is_better(tiers, 0, from),
            Goal::Off { tier, .. } => from == tier.id,
            Goal::Shares => to.is_some(),
        };
        // Data behind the end is dropped by the next operation on the file;
        // only a tier that is to be empty must lose it now.
        if !wanted || offset < first || len == 0 && !matches!(goal, Goal::Off { .. }) {
            return Ok(());
        }
        taken += 1;
        steps.push(RangeStep { offset, len, ranges, from, to });
        if taken == max { Err(Errno::ECANCELED.into()) } else { Ok(()) }
    });
    match collected {
        Err(error) if error.errno() != Errno::ECANCELED || steps.len() < max => Err(error),
        _ => Ok(steps),
    }
}

/// The destination of a range, except the tiers in `excluded`, a set of bits.
pub(super) fn target(
    core: &Core,
    goal: &Goal,
    file: &File,
    step: &RangeStep,
    excluded: u64,
) -> Result<Target> {
    let fits = |tier: &Tier| {
        excluded & bit(tier.id) == 0 && !tier.is_draining() && tier.is_healthy() && tier.room() >= step.len
    };
    Ok(match goal {
        Goal::To(tier) if fits(tier) => Target::Tier(Arc::clone(tier)),
        Goal::To(tier) => {
            // The figures may be out of date, and would end the job here.
            tier.measure_again();
            if fits(tier) { Target::Tier(Arc::clone(tier)) } else { Target::NoRoom }
        }
        Goal::Ranked { tiers, .. } => {
            let candidates = (0..tiers.len()).filter(|at| is_better(tiers, *at, step.from));
            match candidates.map(|at| &tiers[at].0).find(|tier| fits(tier)) {
                Some(tier) => Target::Tier(Arc::clone(tier)),
                None => Target::Stay,
            }
        }
        Goal::Shares => match step.to.and_then(|to| core.tiers.get(to).ok()).filter(|tier| fits(tier)) {
            Some(tier) => Target::Tier(tier),
            None => Target::Stay,
        },
        Goal::Off { to: Some(to), .. } if fits(to) => Target::Tier(Arc::clone(to)),
        Goal::Off { tier, .. } => {
            let excluded = excluded | bit(tier.id);
            match choose_for(core, file, step.len.max(1), excluded) {
                Ok(tier) => Target::Tier(tier),
                Err(error) if error.is_full() => Target::NoRoom,
                Err(error) => return Err(error),
            }
        }
    })
}

/// The policy's choice for a range of a spread file, noted in its credits.
fn choose_for(core: &Core, file: &File, bytes: u64, excluded: u64) -> Result<Arc<Tier>> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else {
        return Err(Error::new(Errno::EAGAIN, "the file was emptied"));
    };
    let mut credits = spread.placing.lock();
    let size = spread.size();
    let span = WriteSpan { offset: 0, len: bytes, size, size_after: size, new_bytes: bytes };
    let request = PlacementRequest::new(file, Origin::default(), span);
    let choice = find_room(core, &request, &credits, excluded)?;
    placed(core, &request, &mut credits, &choice);
    Ok(choice.tier)
}

impl RangeStep {
    /// Offset of the next range.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.ranges.bytes()
    }
}

impl Goal {
    /// The reason to record for a moved range.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::To(_) => Reason::Asked,
            Self::Ranked { reason, .. } => *reason,
            Self::Shares => Reason::Rebalanced,
            Self::Off { .. } => Reason::Evacuated,
        }
    }

    /// Whether a plain file of this size may have ranges to move, with this
    /// range size if it was spread.
    pub(super) fn wants_plain(&self, size: u64, ranges: RangeSize) -> bool {
        match self {
            Self::To(tier) => size > 0 && !tier.is_home(),
            Self::Ranked { tiers, .. } => size > 0 && tiers.first().is_some_and(|(tier, _)| !tier.is_home()),
            // Small files stay as they are.
            Self::Shares => size > ranges.bytes(),
            Self::Off { .. } => false,
        }
    }

    /// Whether a pinned file is moved all the same: to the tier that it is
    /// pinned to, and off a tier that leaves. Without a `pin` of its own, a
    /// rule pins it.
    pub(super) fn overrides(&self, pin: Option<&PinAttr>) -> bool {
        match self {
            Self::To(tier) => pin.is_some_and(|pin| pin.tier.as_ref() == Some(&tier.name)),
            Self::Off { .. } => true,
            Self::Ranked { .. } | Self::Shares => false,
        }
    }
}

/// Whether the tier at `at` is before `from` in the order, and not equally
/// fast.
fn is_better(tiers: &[(Arc<Tier>, f64)], at: usize, from: TierId) -> bool {
    let place = tiers.iter().position(|(tier, _)| tier.id == from);
    // A tier that takes no new ranges comes last.
    let place = place.unwrap_or(tiers.len());
    at < place && tiers.get(at).map(|(_, rank)| *rank) != tiers.get(place).map(|(_, rank)| *rank)
}

/// The paths at which a job begins.
pub(super) fn starts(what: &JobKind) -> Vec<PathBuf> {
    what.path().filter(|path| !path.is_empty()).map(PathBuf::from).into_iter().collect()
}
