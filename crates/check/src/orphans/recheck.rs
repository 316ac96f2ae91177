//! A second look at orphans of a mounted volume, where files are made, renamed
//! and removed meanwhile.

use crate::file::raw_index::index_path;
use crate::id_attr::AttrState;
use crate::namespace::beside_users::open_ids;
use crate::progress::ProgressReporter;
use crate::target::CheckTarget;
use braid_contract::{Access, ObjectId, Result};
use braid_home::{Home, Seen};
use std::collections::HashSet;
use std::ffi::OsStr;

/// Takes out of `orphans` those that are in use after all, or gone. `marked`
/// are the files that had a mark when the check began.
pub(super) fn recheck(
    target: &CheckTarget<'_>,
    marked: &HashSet<ObjectId>,
    orphans: &mut HashSet<ObjectId>,
    progress: &mut ProgressReporter<'_>,
) -> Result<()> {
    let Some(core) = target.mounted.filter(|_| !orphans.is_empty()) else { return Ok(()) };
    let home = Home::open(target.home.root())?;
    home.walk_below(&[], &mut |seen| {
        if let Seen::File(_, fd, identity) = seen {
            progress.step()?;
            if let AttrState::Own(attr) | AttrState::Copied(attr) = AttrState::read(target, &**fd, identity) {
                orphans.remove(&attr.id);
            }
        }
        Ok(())
    })?;
    let marked_now: HashSet<ObjectId> = core.index.marked()?.into_iter().map(|mark| mark.id).collect();
    let open = open_ids(core);
    orphans.retain(|id| !marked_now.contains(id) && !marked.contains(id) && !open.contains(id));
    orphans.retain(|id| is_there(target, *id));
    Ok(())
}

/// Whether there is still an index or object of this id.
fn is_there(target: &CheckTarget<'_>, id: ObjectId) -> bool {
    let has_index = target.braid.open_at(OsStr::new(&index_path(id)), Access::Path).is_ok();
    let mut stores = target.tiers.iter().filter_map(|tier| tier.store.as_ref());
    has_index || stores.any(|store| store.stat(id).is_ok())
}
