//! Learned streams, remembered from mount to mount in `.braid/streams` of home: a
//! volume that was in use knows its kinds of files, and the zones of their streams go
//! on. All of it may be lost: it is learned again.

use braid_contract::{Context, Errno, Error, Result};
use braid_core::Core;
use braid_format::{SAVED_KINDS_MAX, SavedKind, decode_kinds, encode_kinds};
use braid_hint::{LEARNED_MAX, RememberedKind, learned_most};
use braid_tiers::Tiers;

/// Where it is saved, below `.braid`.
const SAVED: &str = "streams";

/// Most streams that are learned: zoned tiers keep them apart, small ones few.
pub(crate) fn most(tiers: &Tiers) -> u16 {
    let zones = tiers.iter().filter_map(|tier| tier.zones()).map(|zones| zones.zones);
    zones.min().map_or(LEARNED_MAX, learned_most)
}

/// Goes on with the streams learned before.
pub(crate) fn load(core: &Core) {
    match read_saved(core) {
        Ok(Some(kinds)) => core.learning.go_on_with(&kinds, core.environment.monotonic_ns()),
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(%error, "what was learned of streams is of no use; they are learned again");
        }
    }
}

/// Saves learned streams for the next mount. An unusable file is removed, if there
/// are none.
pub(crate) fn save(core: &Core) -> Result<()> {
    let kinds = core.learning.remembered(core.environment.monotonic_ns());
    let braid = core.home.braid()?;
    if kinds.is_empty() {
        return braid.ensure_gone_at(SAVED);
    }
    let kinds: Vec<_> = kinds.into_iter().map(to_save).collect();
    braid.replace_small(SAVED, &encode_kinds(&kinds)).context("saving what was learned")
}

fn read_saved(core: &Core) -> Result<Option<Vec<RememberedKind>>> {
    let Some(bytes) = core.home.braid()?.read_small(SAVED, SAVED_KINDS_MAX + 1)? else { return Ok(None) };
    let saved = decode_kinds(&bytes).map_err(|error| Error::new(Errno::EUCLEAN, error.to_string()))?;
    Ok(Some(saved.into_iter().map(as_remembered).collect()))
}

fn to_save(kind: RememberedKind) -> SavedKind {
    let RememberedKind { name, stream, sync, direct, told, lived_ns, ended, writing } = kind;
    SavedKind { name, stream, sync, direct, told, lived_ns, ended, writing }
}

fn as_remembered(kind: SavedKind) -> RememberedKind {
    let SavedKind { name, stream, sync, direct, told, lived_ns, ended, writing } = kind;
    RememberedKind { name, stream, sync, direct, told, lived_ns, ended, writing }
}
