//! Loading the layout of a file that comes into use, from its id attribute and
//! its index.

use crate::core::Core;
use crate::file::choose::share_of;
use crate::file::emptying::finish_emptying;
use crate::file::owner::index_of;
use crate::file::recover_whole::recover_now;
use crate::live::{Inode, Layout, Shape, Spread};
use braid_contract::{Context, Fd, ObjectId, Result};
use braid_format::{Header, IdKind, RangeSize, WholeAttr};
use braid_home::Identity;
use braid_index::{Index, Whole};
use braid_placement::Credits;
use std::sync::Arc;

/// The layout of a file that comes into use, by its id attribute.
pub(crate) fn load_layout(core: &Core, inode: &Arc<Inode>, data: &Fd, identity: &Identity) -> Result<Layout> {
    let Some(attr) = core.home.id_attr(&**data, identity)? else {
        inode.set_shape(Shape::Plain);
        return Ok(Layout::Plain);
    };
    inode.set_shape(Shape::Spread);
    if attr.kind == IdKind::Emptied {
        finish_emptying(core, data, identity, attr.id)?;
        inode.set_shape(Shape::Plain);
        core.observer.tail_changed(inode, 0);
        return Ok(Layout::Plain);
    }
    if let Some(whole) = attr.kind.whole() {
        return load_whole(core, inode, (attr.id, whole), (data, identity));
    }
    let index = index_of(core, &**data, identity, attr.id)?;
    let credits = Credits::new(identity.ino(), index.range_size().get());
    let spread = Spread::load(index, credits, &core.environment);
    Ok(Layout::Spread(Box::new(spread.with_context(|| format!("file {}", attr.id))?)))
}

/// The layout of a whole file that comes into use. Its tier is not asked:
/// the home inode has its size.
pub(super) fn load_whole(
    core: &Core,
    inode: &Arc<Inode>,
    (id, attr): (ObjectId, WholeAttr),
    (data, identity): (&Fd, &Identity),
) -> Result<Layout> {
    if core.index.is_unrecovered(id) {
        match recover_now(core, inode, id) {
            // It may be of another size now, or a plain one.
            Ok(()) => return load_layout(core, inode, data, &core.home.identify(&**data)?),
            Err(error) => {
                tracing::warn!(file = %id, %error, "a file is not recovered yet: it can be read only");
            }
        }
    }
    let size = identity.size();
    let mut whole = Whole::settled(
        (attr.tier, attr.reason),
        (size, attr.range_size.count(size)),
        attr.durable,
        core.tiers.home().id,
    );
    whole.counted = whole.ranges;
    let spread = whole_spread(core, id, identity, attr.range_size, whole)?;
    Ok(Layout::Spread(Box::new(spread)))
}

/// The live state of a whole file.
pub(super) fn whole_spread(
    core: &Core,
    id: ObjectId,
    identity: &Identity,
    range_size: RangeSize,
    whole: Whole,
) -> Result<Spread> {
    let header = Header {
        volume: core.id,
        id,
        range_size,
        ino: identity.ino(),
        btime_ns: identity.btime_ns(),
        plain_size: 0,
        handle: identity.handle.clone(),
    };
    let mut credits = Credits::new(identity.ino(), range_size.get());
    if whole.ranges > 0
        && let Ok(tier) = core.tiers.get(whole.tier)
    {
        credits.add(whole.tier, whole.ranges * range_size.bytes(), share_of(core, &tier));
    }
    Spread::load(Index::of_whole(header, core.tiers.home().id, whole), credits, &core.environment)
}
