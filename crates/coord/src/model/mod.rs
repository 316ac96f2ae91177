//! The code of this crate under the model checker: every interleaving of a few
//! threads. Run by `cargo xtask test --suite loom`.
//!
//! A thread that dies stops between two steps, releases nothing, and counts as
//! dead from then on; time passes only there. Otherwise a sleeper that is not
//! woken sleeps for ever, which the checker finds.

mod barrier;
mod death;
mod locks;
mod moves;

use crate::layout::{VolumeShape, VolumeWords};
use crate::owner::Member;
use crate::party::{Liveness, Sole};
use crate::region::PrivateWords;
use crate::sync::time_passes;
use crate::tag::{OwnerTag, Process};
use loom::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Processes, by id, that died.
#[derive(Clone)]
struct Dead(Arc<[AtomicBool; 2]>);

impl Liveness for Dead {
    fn is_alive(&self, process: Process) -> bool {
        !self.0[process.pid as usize].load(Ordering::Acquire)
    }
}

impl Dead {
    fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicBool::new(false))))
    }

    /// Makes the process dead.
    fn die(&self, pid: usize) {
        self.0[pid].store(true, Ordering::Release);
        time_passes();
    }
}

type As = Member<PrivateWords, Dead>;

/// The words of a volume with two clients, the keeper and the clients.
fn parties(slots: u16) -> (VolumeWords<PrivateWords>, Dead, [As; 3]) {
    let shape = VolumeShape { owners: 3, counts: 1, slots };
    let words = VolumeWords::format(PrivateWords::new(shape.words()), shape).unwrap();
    let dead = Dead::new();
    let clients = [0, 1].map(|pid| words.register(Process { pid, start: 0 }, &Sole).unwrap());
    let tags = [OwnerTag::KEEPER, clients[0], clients[1]];
    let members = tags.map(|tag| Member::new(words.clone(), tag, dead.clone()));
    (words, dead, members)
}
