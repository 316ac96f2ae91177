//! Learning streams, where tiers can keep them apart. A file is looked up when it is
//! first written, and reported to the learner when it gets its first range, when its
//! last use ends and when its data is gone; never at a write. `choose.rs` looks up; the
//! code that ends uses and data reports.

use crate::core::Core;
use crate::live::File;
use braid_contract::{InodeId, StreamId};
use braid_hint::{Hints, Opening, Task, Writer, Written, learned_name, learned_number};
use braid_placement::{Facts, Origin};
use std::sync::atomic::Ordering;

/// The stream of a file that no rule and no profile knows; `None` if nothing is
/// learned, or no similar files are known yet.
pub(super) fn learned_stream(
    core: &Core,
    hints: &Hints,
    (path, writer): (&str, &Writer<'_>),
    origin: Origin,
) -> Option<StreamId> {
    if !learns(core, hints) {
        return None;
    }
    let opening = opening(path, writer.task(), origin);
    let found = core.learning.stream_of(&opening, core.environment.monotonic_ns());
    found.map(|number| StreamId::named(&learned_name(number)))
}

/// A file got ranges, and belongs to this stream. It is followed from the first ones
/// on, unless others than the learner know it.
pub(super) fn follow(core: &Core, file: &File, facts: &dyn Facts, origin: Origin, stream: Option<StreamId>) {
    let is_known = stream.is_some_and(|stream| learned_number(stream).is_none());
    if origin.thread == 0 || is_known || file.followed.load(Ordering::Relaxed) {
        return;
    }
    if !learns(core, core.placer.rules().hints()) || file.followed.swap(true, Ordering::Relaxed) {
        return;
    }
    let task = facts.task(origin.thread);
    let opening = opening(facts.path(), task.as_ref(), origin);
    core.learning.begins(file.inode.ino, &opening, core.environment.monotonic_ns());
}

/// The last use of a file with so many bytes ended.
pub(super) fn last_use_ended(core: &Core, file: &File, bytes: u64) {
    if file.followed.load(Ordering::Relaxed) {
        let written = Written { bytes, ..Written::default() };
        core.learning.closes(file.inode.ino, &written, core.environment.monotonic_ns());
    }
}

/// The data of a file is gone; its next write looks up the stream anew.
pub(super) fn begin_anew(core: &Core, file: &File) {
    if file.followed.swap(false, Ordering::Relaxed) {
        file.stream.forget();
        file.profiled.forget();
    }
    data_gone(core, file.inode.ino);
}

/// The data of a file is gone.
pub(crate) fn data_gone(core: &Core, ino: InodeId) {
    if learns(core, core.placer.rules().hints()) {
        core.learning.ends(ino, core.environment.monotonic_ns());
    }
}

/// Whether streams are learned: always, never, or where a tier keeps them apart.
fn learns(core: &Core, hints: &Hints) -> bool {
    hints.learns(|| core.tiers.iter().any(|tier| !tier.capabilities().overwrite))
}

fn opening<'a>(path: &'a str, task: Option<&'a Task>, origin: Origin) -> Opening<'a> {
    Opening { path, task, sync: origin.sync, direct: origin.direct }
}
