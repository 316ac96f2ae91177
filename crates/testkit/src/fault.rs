//! Deliberate faults, to prove that a differential run can fail.

use crate::op::{Data, Op, Target};
use crate::outcome::{Answer, Outcome};
use crate::tree::Tree;
use crate::{Side, Subject};
use rustix::io::Errno;
use std::io;

/// A misbehaviour of a [`FaultySide`], at each occasion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A write that crosses a multiple of 64 KiB corrupts the byte after it.
    CorruptsByte,
    /// Truncation to less than 64 KiB is answered but not carried out.
    DropsTruncate,
    /// A modification time is answered but not set.
    ForgetsTime,
}

/// A side with a fault.
pub struct FaultySide<S> {
    /// The faulty side.
    pub side: S,
    /// The fault.
    pub fault: Fault,
}

impl<S: Side> Side for FaultySide<S> {
    fn begin(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        Ok(Box::new(Faulty { subject: self.side.begin(case)?, fault: self.fault }))
    }

    fn join(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        Ok(Box::new(Faulty { subject: self.side.join(case)?, fault: self.fault }))
    }

    fn end(&self, case: &str) -> io::Result<()> {
        self.side.end(case)
    }
}

struct Faulty {
    subject: Box<dyn Subject>,
    fault: Fault,
}

impl Subject for Faulty {
    fn apply(&mut self, op: &Op) -> Outcome {
        const RANGE: u64 = 64 * 1024;
        match (self.fault, op) {
            (Fault::CorruptsByte, Op::Pwrite { slot, offset, data }) => {
                let outcome = self.subject.apply(op);
                let end = offset + u64::from(data.len);
                if outcome == Ok(Answer::Count(data.len.into())) && offset / RANGE != end / RANGE {
                    let wrong = Data { seed: data.seed.wrapping_add(1).max(1), len: 1 };
                    let border = end / RANGE * RANGE;
                    // Detecting the fault is up to the run.
                    let _ = self.subject.apply(&Op::Pwrite { slot: *slot, offset: border, data: wrong });
                }
                outcome
            }
            (Fault::DropsTruncate, Op::Truncate { target: Target::Slot(slot), len }) if *len < RANGE => {
                // An operation that answers the same errors and changes nothing.
                self.subject.apply(&Op::Stat { target: Target::Slot(*slot) }).map(|_| Answer::Unit)
            }
            (Fault::ForgetsTime, Op::SetTimes { target, atime, .. }) => {
                let mtime = crate::SetTime::Omit;
                self.subject.apply(&Op::SetTimes { target: target.clone(), atime: *atime, mtime })
            }
            _ => self.subject.apply(op),
        }
    }

    fn snapshot(&mut self) -> Result<Tree, Errno> {
        self.subject.snapshot()
    }
}
