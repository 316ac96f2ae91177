//! The order of steps in which a range moves beside its writers (Mux §2.4):
//! copy without blocking them, look for writes meanwhile, copy those again;
//! block writers only to make sure that nothing is left, or, after too many
//! conflicts, to copy the rest.

use crate::moving::Registered;
use crate::party::Party;
use crate::region::Region;
use crate::slots::{RangeSpan, WriterSlots};

/// Most copies of a range, complete and then partial, before writers wait for
/// the rest.
pub const PASSES_MAX: u32 = 4;

/// All chunks of a range, as bits.
const ALL_CHUNKS: u64 = u64::MAX;

/// The effects of a move on a file and its tiers.
pub trait CopySteps {
    /// Keeps the file's shape while it lives; steps that need it get it.
    type Hold<'a>
    where
        Self: 'a;
    /// Why a move fails.
    type Error;

    /// Passes after which writers wait for the rest.
    const PASSES_MAX: u32 = PASSES_MAX;

    /// Keeps the shape.
    ///
    /// # Errors
    /// If the move is over.
    fn hold(&self) -> Result<Self::Hold<'_>, Self::Error>;

    /// Runs of the chunks in `chunks`, in order, as sets of bits: each is
    /// copied under one hold.
    fn runs(&self, chunks: u64) -> Vec<u64>;

    /// Copies chunks; with `again`, the target may have older data of them.
    ///
    /// # Errors
    /// If the copy fails.
    fn copy(&self, hold: &Self::Hold<'_>, chunks: u64, again: bool) -> Result<(), Self::Error>;

    /// Called when all of the chunks were copied; nothing is held.
    fn copied(&self) {}

    /// Makes the copied data durable.
    ///
    /// # Errors
    /// If it may not be durable.
    fn sync(&self, hold: &Self::Hold<'_>) -> Result<(), Self::Error>;

    /// Makes the target the range's tier.
    ///
    /// # Errors
    /// If it is not.
    fn switch(&self, hold: &Self::Hold<'_>) -> Result<(), Self::Error>;
}

/// The outcome of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyStats {
    /// Copies of the range or parts of it, at least one.
    pub passes: u32,
    /// Whether writers waited for the last one.
    pub locked: bool,
}

/// A move under way.
struct Copying<'a, C, S, Q, R: Region, P: Party> {
    steps: &'a C,
    slots: &'a WriterSlots<S, Q>,
    span: RangeSpan,
    this: &'a Registered<R, P>,
    /// Deaths of writers that the copy has handled.
    deaths: u64,
}

/// Moves the registered range, which is `span`, including its switch.
///
/// # Errors
/// Those of `steps`; the range then stays on its tier.
pub fn carry_out<C: CopySteps, S: Region, Q: Party, R: Region, P: Party>(
    steps: &C,
    slots: &WriterSlots<S, Q>,
    span: RangeSpan,
    this: &Registered<R, P>,
) -> Result<CopyStats, C::Error> {
    Copying { steps, slots, span, this, deaths: 0 }.run()
}

enum Commit {
    Done {
        locked: bool,
    },
    /// These chunks were written meanwhile.
    Again(u64),
}

impl<C: CopySteps, S: Region, Q: Party, R: Region, P: Party> Copying<'_, C, S, Q, R, P> {
    fn run(mut self) -> Result<CopyStats, C::Error> {
        let steps = self.steps;
        self.admit_writers()?;
        let (mut chunks, mut passes) = (ALL_CHUNKS, 0);
        loop {
            passes += 1;
            for run in steps.runs(chunks) {
                let hold = steps.hold()?;
                steps.copy(&hold, run, passes > 1)?;
            }
            steps.copied();
            let last = passes >= C::PASSES_MAX;
            if !last {
                chunks = self.this.take_dirty();
                if chunks != 0 {
                    continue;
                }
            }
            steps.sync(&steps.hold()?)?;
            // The shape is kept throughout: a thread that waits to change it
            // waits for writers too, and they for this.
            let hold = steps.hold()?;
            self.this.block();
            let left = self.commit(&hold, last);
            self.this.unblock();
            match left? {
                Commit::Done { locked } => return Ok(CopyStats { passes, locked }),
                Commit::Again(more) => chunks = more,
            }
        }
    }

    /// From here on, every writer of the range knows that it moves.
    fn admit_writers(&mut self) -> Result<(), C::Error> {
        let _hold = self.steps.hold()?;
        self.this.block();
        self.slots.drain(self.span);
        self.this.unblock();
        // Writes of owners that have died are in the source to be copied.
        self.deaths = self.slots.deaths();
        Ok(())
    }

    fn commit(&mut self, hold: &C::Hold<'_>, last: bool) -> Result<Commit, C::Error> {
        self.slots.drain(self.span);
        let left = self.take_left();
        if left != 0 && !last {
            return Ok(Commit::Again(left));
        }
        if left != 0 {
            for run in self.steps.runs(left) {
                self.steps.copy(hold, run, true)?;
            }
            self.steps.sync(hold)?;
        }
        self.steps.switch(hold)?;
        // After the switch and before the source is punched: a later reader of
        // the source sees that there was a switch.
        self.this.note_switch();
        Ok(Commit::Done { locked: left != 0 })
    }

    /// The chunks that may be newer than the copy, as bits. A writer that died
    /// marked nothing, and may have written any part of its claim.
    fn take_left(&mut self) -> u64 {
        let left = self.this.take_dirty();
        let deaths = self.slots.deaths();
        if std::mem::replace(&mut self.deaths, deaths) == deaths { left } else { ALL_CHUNKS }
    }
}
