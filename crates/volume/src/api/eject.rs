//! Taking a volume apart.

use crate::config::VolumeConfig;
use crate::eject::{EjectOptions, EjectProgress, Ejection, begun, clear, eject_open, end_hollow, go_on};
use crate::volume::Volume;
use braid_format::TABLE_LEN;
use braid_home::OpenError;

impl Volume {
    /// Brings all data of the volume that `config` describes home, except files
    /// that may stay on their tier, and takes the volume apart. Calls
    /// `progress` after each file, and ends early when that answers `false`. An
    /// interrupted ejection continues in the way in which it began.
    ///
    /// # Errors
    /// An [`OpenError`] if the volume can't be opened, or a tier fails in a way
    /// that is not one file's. The volume is then still one.
    pub fn eject(
        config: VolumeConfig,
        options: EjectOptions,
        progress: &mut dyn FnMut(EjectProgress) -> bool,
    ) -> std::result::Result<Ejection, OpenError> {
        if begun(&config.home.root)? {
            if options.dry_run {
                let hindrance = "it was begun, and every file has its place; what is left is to be cleared";
                return Ok(Ejection { hindrance: Some(hindrance.into()), ..Ejection::default() });
            }
            go_on(&config)?;
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        if !options.dry_run && end_hollow(&config)? {
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        refuse_what_is_none(&config)?;
        let volume = Self::open(config)?;
        volume.jobs.list.stop();
        volume.movers.rounds.stop();
        let result = eject_open((&volume.core, &volume.throttles), options, progress);
        let ended = volume.shutdown();
        let ejection = result?;
        ended?;
        if ejection.done {
            clear(&volume.core, options.in_place)?;
        }
        Ok(ejection)
    }
}

/// Refuses a home without a volume: an ejection creates none.
fn refuse_what_is_none(config: &VolumeConfig) -> std::result::Result<(), OpenError> {
    match config.home.root.read_small(".braid/label", TABLE_LEN)? {
        Some(_) => Ok(()),
        None => Err(OpenError::NoVolume { tier: config.home.name.clone() }),
    }
}
