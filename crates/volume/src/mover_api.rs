//! The movers, as they can be looked at and controlled.

use crate::Volume;
use crate::movers::MoverStatus;
use braid_contract::{Mover, Result};

impl Volume {
    /// The movers that are switched on.
    #[must_use]
    pub fn movers(&self) -> Vec<MoverStatus> {
        self.movers.rounds.all()
    }

    /// One mover.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub fn mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.one(mover)
    }

    /// Stops a mover until it is resumed, or the volume is opened anew.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is paused.
    pub fn pause_mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.pause(mover)
    }

    /// Lets a paused mover go on.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is not paused.
    pub fn resume_mover(&self, mover: Mover) -> Result<MoverStatus> {
        self.movers.rounds.resume(mover)
    }

    /// Changes how fast a mover may go on all tiers together, in bytes a second,
    /// until the volume is opened anew; `None` leaves it the tiers' caps.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub fn set_mover_bandwidth(&self, mover: Mover, bandwidth: Option<u64>) -> Result<MoverStatus> {
        self.movers.rounds.set_bandwidth(mover, bandwidth)
    }

    /// What movers read from a tier and write to it in a second at most.
    #[must_use]
    pub fn mover_bandwidth(&self) -> u64 {
        self.throttles.mover_bandwidth()
    }
}
