//! A trace as the source of operations.
//!
//! A thread's operation begins after the previous one has ended, with the
//! recorded pause. The previous one is the last that had ended when it began:
//! operations that overlapped do so again. An operation also waits for other
//! threads' earlier changes of its bytes. A removal belongs to no thread: the
//! file is removed when all operations on it are over.

use super::config::Pace;
use super::source::{OpId, Source};
use crate::trace::{Trace, TraceFile, TraceOp, TraceOpKind};
use std::collections::HashMap;

pub(super) struct Replay<'a> {
    trace: &'a Trace,
    /// The operations that wait for each, and how long after it.
    edges: Vec<Edge>,
    /// Number of operations that each still waits for.
    waits: Vec<u32>,
    /// Earliest start, in nanoseconds.
    earliest: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Edge {
    from: OpId,
    to: OpId,
    gap_ns: u64,
}

/// The latest completed operations.
#[derive(Default)]
struct Latest {
    of_thread: HashMap<(u32, u64), OpId>,
    /// By file, the last that changed it as a whole.
    of_file: HashMap<u64, OpId>,
    /// By range, the last that wrote to it.
    of_range: HashMap<(u64, u64), OpId>,
    /// By file, all since its number was reused, and the operation that did
    /// that.
    of_life: HashMap<u64, Vec<OpId>>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(trace: &'a Trace, range_size: u32, pace: Pace) -> Self {
        let count = trace.ops.len();
        let mut replay = Self { trace, edges: Vec::new(), waits: vec![0; count], earliest: vec![0; count] };
        let (mut begins, mut ends): (Vec<OpId>, Vec<OpId>) = ((0..count).collect(), (0..count).collect());
        let began = |id: OpId| (trace.ops[id].at_ns, id);
        begins.sort_by_key(|id| began(*id));
        ends.sort_by_key(|id| (end_ns(&trace.ops[*id]), began(*id)));
        let (mut ends, mut latest) = (ends.into_iter().peekable(), Latest::default());
        for id in begins {
            // An operation that took no time does not wait for itself.
            let is_over =
                |other: &OpId| end_ns(&trace.ops[*other]) <= trace.ops[id].at_ns && began(*other) < began(id);
            while let Some(ended) = ends.next_if(is_over) {
                latest.ended(trace, ended, range_size);
            }
            replay.enter(id, &latest, range_size, pace);
        }
        replay.edges.sort_unstable();
        replay
    }

    /// Finds the operations that an operation waits for.
    fn enter(&mut self, id: OpId, latest: &Latest, range_size: u32, pace: Pace) {
        let op = &self.trace.ops[id];
        if op.kind == TraceOpKind::Remove {
            let life = latest.of_life.get(&self.file(op.file).number).map_or(&[][..], Vec::as_slice);
            let (before, others) = life.split_last().map_or((None, life), |(last, rest)| (Some(*last), rest));
            self.follow(id, before, others.iter().copied(), pace);
        } else {
            let before = latest.of_thread.get(&thread(self.trace, op)).copied();
            let data = latest.before(self.trace, op, range_size).filter(|data| Some(*data) != before);
            self.follow(id, before, data, pace);
        }
    }

    /// Lets an operation follow `before`, after the time in between, and the
    /// end of `others`.
    fn follow(&mut self, id: OpId, before: Option<OpId>, others: impl IntoIterator<Item = OpId>, pace: Pace) {
        let op = &self.trace.ops[id];
        let mut gap_ns = 0;
        if pace == Pace::Recorded {
            match before {
                Some(before) => gap_ns = op.at_ns.saturating_sub(end_ns(&self.trace.ops[before])),
                None => self.earliest[id] = op.at_ns,
            }
        }
        let edges = self.edges.len();
        self.edges.extend(before.map(|from| Edge { from, to: id, gap_ns }));
        self.edges.extend(others.into_iter().map(|from| Edge { from, to: id, gap_ns: 0 }));
        self.waits[id] = (self.edges.len() - edges) as u32;
    }
}

impl Latest {
    fn ended(&mut self, trace: &Trace, id: OpId, range_size: u32) {
        let op = &trace.ops[id];
        let file = trace.files[op.file].number;
        let life = self.of_life.entry(file).or_default();
        if op.kind == TraceOpKind::Remove {
            life.clear();
        } else {
            self.of_thread.insert(thread(trace, op), id);
        }
        life.push(id);
        match op.kind {
            TraceOpKind::Write => {
                for range in ranges(op, range_size) {
                    self.of_range.insert((file, range), id);
                }
            }
            TraceOpKind::Create | TraceOpKind::Truncate | TraceOpKind::Allocate | TraceOpKind::Remove => {
                self.of_file.insert(file, id);
            }
            TraceOpKind::Open | TraceOpKind::Read | TraceOpKind::Sync => {}
        }
    }

    /// The last one that changed the bytes of `op`.
    fn before(&self, trace: &Trace, op: &TraceOp, range_size: u32) -> Option<OpId> {
        let file = trace.files[op.file].number;
        let io = matches!(op.kind, TraceOpKind::Read | TraceOpKind::Write);
        let ranges = if io { ranges(op, range_size) } else { 0..0 };
        let written = ranges.filter_map(|range| self.of_range.get(&(file, range)));
        let changed = written.chain(self.of_file.get(&file));
        changed.copied().max_by_key(|id| end_ns(&trace.ops[*id]))
    }
}

/// The thread of an operation. Operations of unknown threads, such as writeback
/// by the kernel, are in sequence for each file only.
fn thread(trace: &Trace, op: &TraceOp) -> (u32, u64) {
    (op.thread, if op.thread == 0 { trace.files[op.file].number } else { 0 })
}

fn end_ns(op: &TraceOp) -> u64 {
    op.at_ns.saturating_add(op.took_ns)
}

/// The ranges that an operation touches.
fn ranges(op: &TraceOp, range_size: u32) -> std::ops::Range<u64> {
    let range_size = u64::from(range_size);
    op.offset / range_size..(op.offset + op.len).div_ceil(range_size)
}

impl Source for Replay<'_> {
    fn file(&self, at: usize) -> &TraceFile {
        &self.trace.files[at]
    }

    fn op(&self, id: OpId) -> TraceOp {
        self.trace.ops[id]
    }

    fn start(&mut self, now_ns: u64) -> Vec<(u64, OpId)> {
        let free = self.waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
        free.map(|(id, _)| (now_ns.max(self.earliest[id]), id)).collect()
    }

    fn ended(&mut self, id: OpId, now_ns: u64) -> Vec<(u64, OpId)> {
        let first = self.edges.partition_point(|edge| edge.from < id);
        let mut freed = Vec::new();
        for edge in self.edges[first..].iter().take_while(|edge| edge.from == id) {
            let earliest = &mut self.earliest[edge.to];
            *earliest = (*earliest).max(now_ns.saturating_add(edge.gap_ns));
            self.waits[edge.to] -= 1;
            if self.waits[edge.to] == 0 {
                freed.push((*earliest, edge.to));
            }
        }
        freed
    }
}
