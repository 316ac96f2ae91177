//! The operations that are tried, as they are drawn. What they are about is decided
//! when they are carried out, by what is there then, so that some can be left out.

use braid_contract::SplitMix;
use braid_testkit::sim::ZoneEffect;
use std::fmt;

/// Objects that there may be.
pub(crate) const OBJECTS: usize = 7;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Data is written to the end of an object, or somewhere else.
    Append,
    Write,
    /// Some of it is there already.
    Rewrite,
    Truncate,
    Punch,
    Allocate,
    Sync,
    SyncAll,
    Remove,
    Label,
    /// The process ends and another one goes on.
    Restart,
    Clear,
    /// Everything is compared.
    Compare,
    /// An effect of the device fails, soon.
    Fail,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) object: usize,
    /// Decides on all else.
    pub(crate) chance: u64,
}

/// What an operation came to, for people.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Cells: the first one, and how many.
    pub(crate) span: (usize, usize),
    pub(crate) stream: Option<u32>,
    pub(crate) result: String,
    /// What it did to the device, as far as that is recorded.
    pub(crate) effects: Vec<ZoneEffect>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, count) = self.span;
        let Op { kind, object, .. } = self.op;
        let cell = super::model::CELL;
        let (from, to) = (first as u64 * cell, (first + count) as u64 * cell);
        match kind {
            Kind::Append | Kind::Write | Kind::Rewrite => {
                write!(f, "{kind:?} object {object}, {from}..{to}, stream {:?}", self.stream)?;
            }
            Kind::Punch | Kind::Allocate => write!(f, "{kind:?} object {object}, {from}..{to}")?,
            Kind::Truncate => write!(f, "{kind:?} object {object} to {from}")?,
            Kind::Sync | Kind::Remove => write!(f, "{kind:?} object {object}")?,
            _ => write!(f, "{kind:?}")?,
        }
        write!(f, ": {}", self.result)?;
        self.effects.iter().try_for_each(|effect| write!(f, "\n    {effect}"))
    }
}

/// Draws an operation.
pub(crate) fn draw(random: &mut SplitMix, with_faults: bool) -> Op {
    let kind = match random.below(64) {
        0..18 => Kind::Append,
        18..22 => Kind::Write,
        22..24 => Kind::Rewrite,
        24..27 => Kind::Truncate,
        27..30 => Kind::Punch,
        30..32 => Kind::Allocate,
        32..44 => Kind::Sync,
        44..48 => Kind::SyncAll,
        48..54 => Kind::Remove,
        54 => Kind::Label,
        55 | 56 => Kind::Restart,
        // One that fails leaves data of which nothing is known.
        57 if !with_faults && random.below(3) == 0 => Kind::Clear,
        58..61 if with_faults => Kind::Fail,
        57..61 => Kind::Compare,
        _ => Kind::Append,
    };
    Op { kind, object: random.below(OBJECTS as u64) as usize, chance: random.next_u64() }
}
