//! Synthetic work as the source of operations: threads that write, or read,
//! files of their own.

use super::source::{OpId, Source};
use crate::trace::{TraceFile, TraceOp, TraceOpKind};
use std::collections::HashMap;

/// The work of the threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: u32,
    /// Files of each thread, one after another.
    pub(super) files: u32,
    pub(super) file_size: u64,
    pub(super) block: u64,
    /// Operations that each thread has in flight.
    pub(super) depth: u32,
}

/// The work, done once.
pub(super) struct Workload {
    work: Work,
    kind: TraceOpKind,
    files: Vec<TraceFile>,
    threads: Vec<Thread>,
    under_way: HashMap<OpId, TraceOp>,
    next: OpId,
}

struct Thread {
    file: u32,
    offset: u64,
    in_flight: u32,
}

/// Number of the first file.
const FIRST_FILE: u64 = 17;
/// Time between the starts of two threads.
const APART_NS: u64 = 1000;

impl Workload {
    pub(super) fn new(work: Work, kind: TraceOpKind) -> Self {
        let file = |at: u32| TraceFile { number: FIRST_FILE + u64::from(at), ..TraceFile::default() };
        let thread = |_| Thread { file: 0, offset: 0, in_flight: 0 };
        Self {
            work,
            kind,
            files: (0..work.threads * work.files).map(file).collect(),
            threads: (0..work.threads).map(thread).collect(),
            under_way: HashMap::new(),
            next: 0,
        }
    }

    /// The thread's next operation, if it may start one.
    fn next_of(&mut self, at: u32) -> Option<OpId> {
        let work = self.work;
        let thread = &mut self.threads[at as usize];
        if thread.offset == work.file_size && thread.in_flight == 0 && thread.file + 1 < work.files {
            // The next file is begun when this one is done.
            (thread.file, thread.offset) = (thread.file + 1, 0);
        }
        if thread.offset == work.file_size || thread.in_flight == work.depth {
            return None;
        }
        let (offset, len) = (thread.offset, work.block.min(work.file_size - thread.offset));
        thread.offset += len;
        thread.in_flight += 1;
        let op = TraceOp {
            kind: self.kind,
            at_ns: 0,
            took_ns: 0,
            thread: at + 1,
            file: (at * work.files + thread.file) as usize,
            offset,
            len,
            size: 0,
            sync: false,
            direct: true,
            uid: 0,
            gid: 0,
            stream: None,
        };
        self.next += 1;
        self.under_way.insert(self.next, op);
        Some(self.next)
    }
}

impl Source for Workload {
    fn file(&self, at: usize) -> &TraceFile {
        &self.files[at]
    }

    fn op(&self, id: OpId) -> TraceOp {
        self.under_way[&id]
    }

    fn start(&mut self, now_ns: u64) -> Vec<(u64, OpId)> {
        let mut first = Vec::new();
        for thread in 0..self.work.threads {
            let at_ns = now_ns + u64::from(thread) * APART_NS;
            first.extend(std::iter::from_fn(|| self.next_of(thread)).map(|id| (at_ns, id)));
        }
        first
    }

    fn ended(&mut self, id: OpId, now_ns: u64) -> Vec<(u64, OpId)> {
        let Some(op) = self.under_way.remove(&id) else { return Vec::new() };
        self.threads[op.thread as usize - 1].in_flight -= 1;
        std::iter::from_fn(|| self.next_of(op.thread - 1)).map(|id| (now_ns, id)).collect()
    }
}
