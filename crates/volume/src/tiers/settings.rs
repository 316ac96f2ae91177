//! What may be changed of a tier while it is in use: its weight, its reserve,
//! and whether it takes new ranges. Set through `lifecycle`; asked by whoever
//! looks for a tier.

use super::Tier;
use braid_contract::{Errno, Error, Result};
use braid_placement::Reserve;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings of one tier.
#[derive(Debug)]
pub(super) struct Settings {
    weight: Mutex<Option<f64>>,
    reserve: Mutex<Reserve>,
    readonly: AtomicBool,
    draining: AtomicBool,
    /// Shared by whoever gives the tier a range; held alone for a moment by
    /// whoever closes it to new ones.
    admission: RwLock<()>,
}

/// While it is held, the tier may be given a range.
pub(crate) type Admission<'a> = RwLockReadGuard<'a, ()>;

impl Settings {
    pub(super) fn new(weight: Option<f64>, reserve: Reserve) -> Self {
        Self {
            weight: Mutex::new(weight),
            reserve: Mutex::new(reserve),
            readonly: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            admission: RwLock::new(()),
        }
    }
}

impl Tier {
    /// Bandwidth relative to the others: as given, or as measured; `None`
    /// while nothing was measured.
    pub(crate) fn weight(&self) -> Option<f64> {
        self.given_weight().or_else(|| self.load.measured_bandwidth())
    }

    /// The weight that was given, if one was.
    pub(crate) fn given_weight(&self) -> Option<f64> {
        *self.settings.weight.lock()
    }

    pub(crate) fn set_weight(&self, weight: Option<f64>) {
        *self.settings.weight.lock() = weight;
    }

    /// Space to be left free.
    pub(crate) fn reserve(&self) -> Reserve {
        match *self.settings.reserve.lock() {
            Reserve::Unset if self.is_home() => Reserve::Names,
            reserve => reserve,
        }
    }

    pub(crate) fn set_reserve(&self, reserve: Reserve) {
        *self.settings.reserve.lock() = reserve;
        self.measure_again();
    }

    /// Whether it is on its way out: it takes no new ranges, and what is on it
    /// is read and written as ever.
    pub(crate) fn is_draining(&self) -> bool {
        self.settings.draining.load(Ordering::Acquire)
    }

    /// Closes the tier to new ranges, or opens it again. When this returns,
    /// nobody is about to give it a range who did not see it.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.close(&self.settings.draining, draining);
    }

    /// Whether it was set to be read only: it takes no new ranges, and a range
    /// on it that is written to goes to another tier first.
    pub(crate) fn is_set_readonly(&self) -> bool {
        self.settings.readonly.load(Ordering::Acquire)
    }

    pub(crate) fn set_readonly(&self, readonly: bool) {
        self.close(&self.settings.readonly, readonly);
    }

    /// Whether it may be given new ranges, as far as its settings go.
    pub(crate) fn takes_ranges(&self) -> bool {
        !self.is_draining() && !self.is_set_readonly()
    }

    /// The right to give the tier a range.
    ///
    /// # Errors
    /// `ENOSPC` if it takes none: whoever asks looks for another.
    pub(crate) fn admit(&self) -> Result<Admission<'_>> {
        let admission = self.settings.admission.read();
        if self.takes_ranges() {
            return Ok(admission);
        }
        let why = if self.is_draining() { "draining" } else { "set to read-only" };
        Err(Error::new(Errno::ENOSPC, format!("tier {} takes no new ranges: it is {why}", self.name)))
    }

    /// Refuses to write to a range on a tier that is set to be read only, in
    /// the way that makes it go to another.
    pub(crate) fn refuse_if_readonly(&self) -> Result<()> {
        if self.is_set_readonly() {
            return Err(Error::new(Errno::ENOSPC, format!("tier {} is set to read-only", self.name)));
        }
        Ok(())
    }

    fn close(&self, flag: &AtomicBool, closed: bool) {
        flag.store(closed, Ordering::Release);
        // Who was let in before has done what they came for.
        drop(self.settings.admission.write());
    }
}
