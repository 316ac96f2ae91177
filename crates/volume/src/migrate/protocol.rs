//! The order in which a range moves beside its writers (Mux §2.4): copy
//! without holding anybody up, look what was written meanwhile, copy that
//! again; hold writers up only to make sure that nothing is left, and after
//! too many conflicts to copy what is. The model checker runs this very code.

use super::moving::Registered;
use super::slots::{Slots, Span};

/// How often a range is copied, wholly and then in part, before writers wait
/// for what is left.
pub(crate) const PASSES_MAX: u32 = 4;

/// What a move works on.
pub(crate) trait Ground {
    /// What keeps the file's shape while it lives; a step that needs it gets
    /// it.
    type Hold<'a>
    where
        Self: 'a;
    /// Why a move fails.
    type Error;

    /// Passes after which writers wait for what is left.
    const PASSES_MAX: u32 = PASSES_MAX;

    /// Keeps the shape; fails if the move is over.
    fn hold(&self) -> Result<Self::Hold<'_>, Self::Error>;
    /// Runs of the chunks in `chunks`, in order, as sets of bits: each is
    /// copied while the shape is kept once.
    fn runs(&self, chunks: u64) -> Vec<u64>;
    /// Copies chunks; `again` if the target may have older data of them.
    fn copy(&self, hold: &Self::Hold<'_>, chunks: u64, again: bool) -> Result<(), Self::Error>;
    /// All of the chunks were copied; nothing is held.
    fn copied(&self) {}
    /// Makes durable what was copied.
    fn sync(&self, hold: &Self::Hold<'_>) -> Result<(), Self::Error>;
    /// Makes the target the range's tier.
    fn switch(&self, hold: &Self::Hold<'_>) -> Result<(), Self::Error>;
}

/// How a move went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outcome {
    /// Copies of the range or parts of it, one at least.
    pub(crate) passes: u32,
    /// Writers waited for the last one.
    pub(crate) locked: bool,
}

/// Moves the range that was registered, up to its switch.
pub(crate) fn carry_out<G: Ground>(
    ground: &G,
    slots: &Slots,
    span: Span,
    this: &Registered,
) -> Result<Outcome, G::Error> {
    admit_writers(ground, slots, span, this)?;
    let (mut chunks, mut passes) = (u64::MAX, 0);
    loop {
        passes += 1;
        for run in ground.runs(chunks) {
            let hold = ground.hold()?;
            ground.copy(&hold, run, passes > 1)?;
        }
        ground.copied();
        let last = passes >= G::PASSES_MAX;
        if !last {
            chunks = this.take_dirty();
            if chunks != 0 {
                continue;
            }
        }
        ground.sync(&ground.hold()?)?;
        // The shape is kept throughout: whoever waits to change it waits for
        // writers too, and they for this.
        let hold = ground.hold()?;
        this.block();
        let left = commit(ground, &hold, slots, span, this, last);
        this.unblock();
        match left? {
            Commit::Done { locked } => return Ok(Outcome { passes, locked }),
            Commit::Again(more) => chunks = more,
        }
    }
}

/// From here on, every writer of the range knows that it moves.
fn admit_writers<G: Ground>(
    ground: &G,
    slots: &Slots,
    span: Span,
    this: &Registered,
) -> Result<(), G::Error> {
    let _hold = ground.hold()?;
    this.block();
    slots.drain(span);
    this.unblock();
    Ok(())
}

enum Commit {
    Done {
        locked: bool,
    },
    /// These chunks were written meanwhile.
    Again(u64),
}

fn commit<G: Ground>(
    ground: &G,
    hold: &G::Hold<'_>,
    slots: &Slots,
    span: Span,
    this: &Registered,
    last: bool,
) -> Result<Commit, G::Error> {
    slots.drain(span);
    let left = this.take_dirty();
    if left != 0 && !last {
        return Ok(Commit::Again(left));
    }
    if left != 0 {
        for run in ground.runs(left) {
            ground.copy(hold, run, true)?;
        }
        ground.sync(hold)?;
    }
    ground.switch(hold)?;
    // After the switch and before the source is punched: who reads the source
    // later than that sees that there was a switch.
    this.note_switch();
    Ok(Commit::Done { locked: left != 0 })
}
