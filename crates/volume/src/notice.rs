//! `.braid/README`: explains a tier's directory, and that a copy of one tier is
//! no backup.

use braid_contract::Store;
use braid_core::Core;

/// Its name on the home tier; other stores choose their own.
const NAME: &str = "README";

/// Its text, on each tier.
pub(crate) const NOTICE: &[u8] = b"\
This directory is a tier of a Braid volume.

Do not back up or copy the tree that this .braid is in, but the mounted volume:
larger files are spread over several such directories. Here they look complete,
at their full size, and read as zeros where another tier has the data. The
small files of the home tier alone are whole here.

While the volume is mounted, change nothing here: neither in .braid nor beside
it. Without the contents of .braid, spread files are lost.

To read the files without Braid, give the directories of all tiers to
rescue.py, which needs nothing but Python. It comes with Braid, in
/usr/share/braid or, with the source, in tools.

Mounted where, and by what: braid status DIRECTORY, findmnt -t fuse.braid.
";

/// Leaves the notice on every tier where it is missing, such as those of older
/// volumes. Nothing depends on it.
pub(crate) fn leave_notices(core: &Core) {
    let home = core.home.braid().and_then(|braid| match braid.read_small(NAME, NOTICE.len() + 1) {
        Ok(Some(found)) if found == NOTICE => Ok(()),
        _ => braid.replace_small(NAME, NOTICE),
    });
    if let Err(error) = home {
        tracing::debug!(%error, "the home tier has no README");
    }
    for (tier, store) in core.tiers.stores() {
        if !tier.is_absent() && tier.is_healthy() {
            leave_notice(&tier.name, &*store);
        }
    }
}

/// Leaves the notice on a tier that joins.
pub(crate) fn leave_notice(tier: &str, store: &dyn Store) {
    if let Err(error) = store.leave_notice(NOTICE) {
        tracing::debug!(tier, %error, "the tier has no README");
    }
}
