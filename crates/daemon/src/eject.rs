//! Taking Braid out of a tree whose volume is not mounted. The command line
//! calls this.

use crate::config::Config;
use crate::refusal::Refusal;
use crate::{rehome, validate, wire};
use braid_volume::Ejection;
pub use braid_volume::{Amounts, EjectOptions, EjectProgress};

/// Brings all data of the volume that `config` describes home, except files
/// that may stay on their tier, and takes the volume apart. `progress` is
/// called with the progress, and ends it by answering `false`.
///
/// # Errors
/// If the volume can't be opened, or the ejection fails midway: it can be
/// resumed then.
pub fn run(
    config: &Config,
    options: EjectOptions,
    progress: &mut dyn FnMut(EjectProgress) -> bool,
) -> Result<Ejection, Refusal> {
    let volume = config.stack.need_volume()?;
    validate::tiers(volume)?;
    let volume_config = wire::volume_config(volume, None)?;
    rehome::settle(&volume_config.home.root);
    braid_volume::Volume::eject(volume_config, options, progress)
        .map_err(|error| wire::refuse(&error, volume))
}
