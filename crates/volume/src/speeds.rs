//! How fast tiers are, remembered from mount to mount in `.braid/speeds` of
//! home: a volume that was in use knows its tiers before it places anything.
//! Figures of another device do not count. All of it may be lost: it is
//! measured or learned again.

use braid_contract::{Context, Errno, Error, Result, SpeedBasis};
use braid_core::Core;
use braid_format::{SavedBandwidth, SavedSpeed, SavedSpeeds};
use braid_placement::Direction;
use braid_tiers::Tier;

/// Where speeds are saved, below `.braid`.
const SAVED: &str = "speeds";

/// Gives the tiers their earlier figures.
pub(crate) fn load(core: &Core) {
    let saved = match read_saved(core) {
        Ok(Some(saved)) => saved,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, "the remembered speeds of tiers are of no use; they are learned again");
            return;
        }
    };
    for tier in core.tiers.iter().filter(|tier| !tier.is_absent()) {
        let usage = tier.last_usage();
        let known = saved.0.get(usize::from(tier.id.0)).copied().flatten();
        let Some(known) = known.filter(|known| (known.device, known.total) == (usage.device, usage.total))
        else {
            continue;
        };
        let seen_ns = i64::try_from(known.seen).unwrap_or(0).saturating_mul(1_000_000_000);
        let bandwidth = known.bandwidth.map(|known| Some((known?.bandwidth as f64, known?.threads)));
        tier.believe(bandwidth, SpeedBasis::LastMount, seen_ns);
    }
}

/// Saves the tiers' known speeds for the next mount.
pub(crate) fn save(core: &Core) -> Result<()> {
    let mut saved = SavedSpeeds::default();
    for tier in core.tiers.iter().filter(|tier| !tier.is_absent()) {
        if let Some(place) = saved.0.get_mut(usize::from(tier.id.0)) {
            *place = speed_of(&tier);
        }
    }
    if saved == SavedSpeeds::default() {
        return Ok(());
    }
    core.home.braid()?.replace_small(SAVED, &saved.encode()).context("saving the speeds of tiers")
}

/// The known speed of a tier; `None` if it was never observed.
fn speed_of(tier: &Tier) -> Option<SavedSpeed> {
    let (basis, since_ns) = tier.speed_basis()?;
    if matches!(basis, SpeedBasis::Profile | SpeedBasis::DeviceKind) {
        return None;
    }
    let bandwidth = Direction::BOTH.map(|direction| {
        let bandwidth = tier.load.bandwidth(direction).filter(|bandwidth| *bandwidth >= 1.0)? as u64;
        Some(SavedBandwidth { bandwidth, threads: tier.load.saturating(direction).unwrap_or(1) })
    });
    let usage = tier.last_usage();
    let seen = u64::try_from(since_ns / 1_000_000_000).unwrap_or(0);
    Some(SavedSpeed { device: usage.device, total: usage.total, seen, bandwidth })
}

fn read_saved(core: &Core) -> Result<Option<SavedSpeeds>> {
    let Some(bytes) = core.home.braid()?.read_small(SAVED, SavedSpeeds::LEN)? else { return Ok(None) };
    let saved = SavedSpeeds::decode(&bytes);
    saved.map(Some).map_err(|error| Error::new(Errno::EUCLEAN, error.to_string()))
}
