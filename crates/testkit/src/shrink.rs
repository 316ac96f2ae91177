//! Making a failing sequence short and its numbers simple.
//!
//! A failure may depend on more than the sequence, such as the volume's past or
//! the order of threads. So a candidate is tried several times if the sequence
//! itself does not fail every time.

use crate::differential::Difference;
use crate::op::{Data, Op, OpenSpec, SeekTo, SetTime};

/// How often the original sequence is tried to see whether it always fails.
const PROBES: usize = 4;
/// How often a candidate is tried where it does not.
const TRIES: usize = 6;
/// Limit of runs: the result so far is then good enough.
const RUNS_MAX: usize = 6000;

/// A shorter sequence that fails, and how; `None` if `ops` does not fail again.
pub(crate) fn shrink(
    ops: &[Op],
    run: &mut dyn FnMut(&[Op]) -> Option<Difference>,
) -> Option<(Vec<Op>, Difference)> {
    let mut failures = 0;
    let mut first = None;
    for _ in 0..PROBES {
        let difference = run(ops);
        failures += usize::from(difference.is_some());
        first = first.or(difference);
    }
    let tries = if failures == PROBES { 1 } else { TRIES };
    let mut shrinker = Shrinker { ops: ops.to_vec(), difference: first?, tries, runs: 0, run };
    shrinker.cut_tail();
    shrinker.remove();
    shrinker.simplify();
    shrinker.remove();
    Some((shrinker.ops, shrinker.difference))
}

struct Shrinker<'a> {
    ops: Vec<Op>,
    difference: Difference,
    tries: usize,
    runs: usize,
    run: &'a mut dyn FnMut(&[Op]) -> Option<Difference>,
}

impl Shrinker<'_> {
    /// Takes a candidate's place if it fails too.
    fn accept(&mut self, candidate: Vec<Op>) -> bool {
        for _ in 0..self.tries {
            if self.runs >= RUNS_MAX {
                return false;
            }
            self.runs += 1;
            if let Some(difference) = (self.run)(&candidate) {
                self.ops = candidate;
                self.difference = difference;
                return true;
            }
        }
        false
    }

    /// Drops everything after the difference.
    fn cut_tail(&mut self) {
        let end = self.difference.index + 1;
        if end < self.ops.len() {
            self.accept(self.ops[..end].to_vec());
        }
    }

    /// Removes pieces, large ones first, until no single operation can go.
    fn remove(&mut self) {
        let mut piece = (self.ops.len() / 2).max(1);
        loop {
            let mut removed = false;
            let mut end = self.ops.len();
            while end > 0 {
                let start = end.saturating_sub(piece);
                let mut fewer = self.ops.clone();
                fewer.drain(start..end);
                removed |= self.accept(fewer);
                end = start.min(self.ops.len());
            }
            match (piece, removed) {
                (1, false) => return,
                (1, true) => {}
                _ => piece /= 2,
            }
        }
    }

    /// Replaces operations by simpler ones as long as that succeeds.
    fn simplify(&mut self) {
        let mut index = 0;
        while index < self.ops.len() {
            let simpler = simpler(&self.ops[index]);
            let better = simpler.into_iter().any(|op| {
                let mut candidate = self.ops.clone();
                candidate[index] = op;
                self.accept(candidate)
            });
            if !better {
                index += 1;
            }
        }
    }
}

/// Simpler numbers than `value`, the simplest first.
fn smaller(value: u64) -> Vec<u64> {
    const RANGE: u64 = 64 * 1024;
    let mut smaller =
        vec![0, 1, value / RANGE * RANGE, value / 4096 * 4096, value / 2, value.saturating_sub(1)];
    smaller.retain(|candidate| *candidate < value);
    smaller.dedup();
    smaller
}

fn smaller_data(data: Data) -> Vec<Data> {
    let mut candidates: Vec<_> =
        smaller(data.len.into()).into_iter().map(|len| Data { len: len as u32, ..data }).collect();
    if data.seed > 1 {
        candidates.push(Data { seed: 1, ..data });
    }
    candidates
}

fn fewer_flags(flags: OpenSpec) -> Vec<OpenSpec> {
    let mut candidates = vec![
        OpenSpec { exclusive: false, ..flags },
        OpenSpec { truncate: false, ..flags },
        OpenSpec { append: false, ..flags },
        OpenSpec { no_follow: false, ..flags },
        OpenSpec { direct: false, ..flags },
        OpenSpec { directory: false, ..flags },
    ];
    candidates.retain(|candidate| *candidate != flags);
    candidates
}

/// Operations like `op` with simpler arguments. Each is simpler by an order in
/// which nothing can go around in a circle.
fn simpler(op: &Op) -> Vec<Op> {
    let with = |change: &dyn Fn(&mut Op)| {
        let mut op = op.clone();
        change(&mut op);
        op
    };
    let mut candidates = Vec::new();
    match op {
        Op::Open { flags, .. } => {
            for fewer in fewer_flags(*flags) {
                candidates.push(with(&|op| {
                    if let Op::Open { flags, .. } = op {
                        *flags = fewer
                    }
                }));
            }
        }
        Op::SetTimes { atime, mtime, .. } => {
            if *atime != SetTime::Omit {
                candidates.push(with(&|op| {
                    if let Op::SetTimes { atime, .. } = op {
                        *atime = SetTime::Omit
                    }
                }));
            }
            if !matches!(mtime, SetTime::Omit | SetTime::At(0, 0)) {
                candidates.push(with(&|op| {
                    if let Op::SetTimes { mtime, .. } = op {
                        *mtime = SetTime::At(0, 0)
                    }
                }));
            }
        }
        _ => {}
    }
    if let Op::Pwrite { data, .. } | Op::Write { data, .. } | Op::SetXattr { data, .. } = op {
        for fewer in smaller_data(*data) {
            candidates.push(with(&|op| match op {
                Op::Pwrite { data, .. } | Op::Write { data, .. } | Op::SetXattr { data, .. } => *data = fewer,
                _ => {}
            }));
        }
    }
    candidates.extend(simpler_numbers(op));
    candidates
}

/// Operations like `op` with smaller offsets and lengths.
fn simpler_numbers(op: &Op) -> Vec<Op> {
    let mut count = 0;
    each_number(&mut op.clone(), &mut |_, _| count += 1);
    let mut candidates = Vec::new();
    for which in 0..count {
        let mut value = 0;
        each_number(&mut op.clone(), &mut |index, number| {
            if index == which {
                value = *number;
            }
        });
        for fewer in smaller(value) {
            let mut op = op.clone();
            each_number(&mut op, &mut |index, number| {
                if index == which {
                    *number = fewer;
                }
            });
            candidates.push(op);
        }
    }
    candidates
}

/// Calls `visit` with the offsets and lengths of an operation, in order.
fn each_number(op: &mut Op, visit: &mut dyn FnMut(usize, &mut u64)) {
    let visit_short = |index, number: &mut u32, visit: &mut dyn FnMut(usize, &mut u64)| {
        let mut value = u64::from(*number);
        visit(index, &mut value);
        *number = value as u32;
    };
    match op {
        Op::Pwrite { offset, .. } | Op::Seek { to: SeekTo::Start(offset), .. } => visit(0, offset),
        Op::Seek { to: SeekTo::Data(offset) | SeekTo::Hole(offset), .. } => visit(0, offset),
        Op::Truncate { len, .. } => visit(0, len),
        Op::Allocate { offset, len, .. } => {
            visit(0, offset);
            visit(1, len);
        }
        Op::Read { len, .. } => visit_short(0, len, visit),
        Op::Pread { offset, len, .. } => {
            visit(0, offset);
            visit_short(1, len, visit);
        }
        Op::Copy { from_offset, to_offset, len, .. } => {
            visit(0, from_offset);
            visit(1, to_offset);
            visit_short(2, len, visit);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn difference(index: usize) -> Difference {
        Difference { index, what: String::new(), sides: (String::new(), String::new()) }
    }

    /// Fails if a truncate to more than 100 bytes comes after a close of slot 3.
    fn fails(ops: &[Op]) -> Option<Difference> {
        let close = ops.iter().position(|op| matches!(op, Op::Close { slot: 3 }))?;
        let long = |op: &Op| matches!(op, Op::Truncate { len, .. } if *len > 100);
        ops[close..].iter().position(long).map(|at| difference(close + at))
    }

    fn sample() -> Vec<Op> {
        let mut ops: Vec<Op> = (0..100).map(|slot| Op::Close { slot: slot % 6 }).collect();
        ops.insert(60, Op::Truncate { target: Target::Slot(1), len: 70_000 });
        ops
    }

    #[test]
    fn nothing_but_the_cause_is_left() {
        let (ops, found) = shrink(&sample(), &mut fails).unwrap();
        assert_eq!(ops, [Op::Close { slot: 3 }, Op::Truncate { target: Target::Slot(1), len: 101 }]);
        assert_eq!(found, difference(1));
    }

    #[test]
    fn what_fails_only_now_and_then_shrinks_too() {
        let mut turn = 0;
        let mut sometimes = |ops: &[Op]| {
            turn += 1;
            fails(ops).filter(|_| turn % 3 == 0)
        };
        let (ops, _) = shrink(&sample(), &mut sometimes).unwrap();
        assert_eq!(ops.len(), 2, "{ops:?}");
    }

    #[test]
    fn what_does_not_fail_is_not_shrunk() {
        assert_eq!(shrink(&sample(), &mut |_| None), None);
    }
}
