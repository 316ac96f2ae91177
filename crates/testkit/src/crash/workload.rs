//! A workload: its setup, its initial state, and its operations.

use super::machine::Setup;
use super::op::{Name, Op, ParseError, from_text, to_text};
use std::fmt;
use std::str::FromStr;

/// Range size of the volumes that workloads run on, in bytes.
pub const RANGE: u64 = 64 << 10;
/// Block size of the disks, in bytes.
pub const BLOCK: u64 = 4096;

/// The initial state of a workload, all of it durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// Nothing, not even a volume: the workload begins with its making.
    Blank,
    /// An empty volume.
    Empty,
    /// `a`, within one range.
    Plain,
    /// `a` over three ranges, each with data at both ends.
    Spread,
    /// As `Spread`, and `b` over two ranges.
    Both,
    /// `a` over five full ranges, and a second name for it in `d`.
    Linked,
    /// As `Spread`; the workload begins with appends to `a`, each synced.
    Growing,
}

impl Start {
    /// Every start.
    pub const ALL: [Self; 7] =
        [Self::Blank, Self::Empty, Self::Plain, Self::Spread, Self::Both, Self::Linked, Self::Growing];

    /// The operations that a workload from here begins with.
    pub(crate) fn lead(self) -> Vec<Op> {
        match self {
            Self::Growing => [Op::Append(Name::A, 512), Op::Fdatasync(Name::A)].repeat(4),
            _ => Vec::new(),
        }
    }

    /// The operations that make it.
    pub(crate) fn ops(self) -> Vec<Op> {
        let write = |name, at, len| Op::Write { name, at, len, sync: false };
        let ends = |name, range: u64| {
            let start = range * RANGE;
            [write(name, start, 2 * BLOCK), write(name, start + RANGE - 2 * BLOCK, 2 * BLOCK)]
        };
        let mut ops = Vec::new();
        match self {
            Self::Blank | Self::Empty => {}
            Self::Plain => ops.extend([Op::Create(Name::A), write(Name::A, 0, 3 * BLOCK)]),
            Self::Spread | Self::Both | Self::Growing => {
                ops.push(Op::Create(Name::A));
                (0..3).for_each(|range| ops.extend(ends(Name::A, range)));
            }
            Self::Linked => {
                ops.push(Op::Create(Name::A));
                ops.extend((0..5).map(|range| write(Name::A, range * RANGE, RANGE)));
                ops.push(Op::Link(Name::A, Name::DirB));
            }
        }
        if self == Self::Both {
            ops.push(Op::Create(Name::B));
            (0..2).for_each(|range| ops.extend(ends(Name::B, range)));
        }
        ops
    }

    fn text(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Empty => "empty",
            Self::Plain => "plain",
            Self::Spread => "spread",
            Self::Both => "both",
            Self::Linked => "linked",
            Self::Growing => "growing",
        }
    }
}

/// A workload to run and crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Its setup.
    pub setup: Setup,
    /// Its initial state.
    pub start: Start,
    /// Its operations.
    pub ops: Vec<Op>,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},start={},ops={}", self.setup, self.start.text(), to_text(&self.ops))
    }
}

impl FromStr for Workload {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let start = field(text, "start")?;
        let start = Start::ALL.into_iter().find(|known| known.text() == start);
        Ok(Self {
            setup: text.parse()?,
            start: start.ok_or_else(|| ParseError(text.into()))?,
            ops: from_text(field(text, "ops")?)?,
        })
    }
}

/// The value of `key` in a line of `key=value`, parted by commas.
pub(crate) fn field<'a>(line: &'a str, key: &str) -> Result<&'a str, ParseError> {
    line.trim()
        .split(',')
        .filter_map(|field| field.split_once('='))
        .find(|(found, _)| *found == key)
        .map(|(_, value)| value)
        .ok_or_else(|| ParseError(format!("there is no `{key}=` in `{line}`")))
}
