//! The records of a replacement, and the atomic step that completes the new
//! home. The old home is marked before the new one can be complete, so that a
//! mount never accepts both.

use super::copier::Copier;
use braid_contract::{Access, Fd, Result};
use braid_core::Core;
use braid_format::{BRAID_DIR, Label, RehomeRecord, RehomeStage};
use braid_home::{LIMBO, write_record};
use braid_index::IndexDir;
use std::ffi::OsStr;

fn home_label(core: &Core) -> Label {
    let home = core.tiers.home();
    Label {
        volume: core.id,
        tier: home.id,
        home: true,
        user_xattr: core.user_xattr,
        range_size: core.range_size,
        name: home.name.clone(),
        secret: core.home.seal().secret,
    }
}

fn record(core: &Core, copy: [u8; 16], stage: RehomeStage, place: &str) -> RehomeRecord {
    RehomeRecord { volume: core.id, copy, stage, place: place.to_owned() }
}

/// Writes the records to both homes, to the old one first, and lays the new one
/// out.
pub(super) fn begin_copy(core: &Core, new: &Fd, copy: [u8; 16], location: &str) -> Result<()> {
    write_record(&core.home.root(), &record(core, copy, RehomeStage::Copying, location))?;
    new.ensure_dir_at(BRAID_DIR)?;
    let braid = new.open_at(OsStr::new(BRAID_DIR), Access::Directory)?;
    braid.replace_small("label", &home_label(core).encode_incoming())?;
    new.sync(false)?;
    write_record(new, &record(core, copy, RehomeStage::Incoming, &core.tiers.home().location()))?;
    IndexDir::create(&*braid)?;
    braid.ensure_dir_at(LIMBO)
}

impl Copier<'_> {
    /// Makes the new home, which is durable, the volume's home, and ends the
    /// old one. After an error the old one still is home.
    pub(super) fn commit(&self, copy: [u8; 16], location: &str) -> Result<()> {
        let (core, old) = (self.core, self.core.home.root());
        write_record(&old, &record(core, copy, RehomeStage::Committing, location))?;
        let label = home_label(core);
        if let Err(error) = self.braid.replace_small("label", &label.encode()) {
            // The label may be complete nevertheless. With this record, the old
            // home is home whatever the label says.
            write_record(&old, &record(core, copy, RehomeStage::Copying, location))?;
            if let Err(again) = self.braid.replace_small("label", &label.encode_incoming()) {
                tracing::error!(%location, error = %again, "the directory must not be mounted any more");
            }
            return Err(error);
        }
        if let Err(error) = write_record(&old, &record(core, copy, RehomeStage::Moved, location)) {
            // A mount of the old home would look at the new one, and find out.
            tracing::warn!(%error, "the earlier home directory could not be told that home has moved");
        }
        Ok(())
    }
}
