//! The settings of a tier that may change while it is in use: its weight, its
//! reserve, and whether it takes new ranges. `membership` and jobs of the
//! volume set them; placement reads them.

use braid_placement::Reserve;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings of one tier.
#[derive(Debug)]
pub(crate) struct Settings {
    weight: Mutex<Option<f64>>,
    reserve: Mutex<Reserve>,
    readonly: AtomicBool,
    draining: AtomicBool,
    /// Held shared while the tier is given a range; held exclusively for a
    /// moment to close it to new ones.
    admission: RwLock<()>,
}

/// While it is held, the tier may be given a range.
pub(crate) type Admission<'a> = RwLockReadGuard<'a, ()>;

impl Settings {
    pub(crate) fn new(weight: Option<f64>, reserve: Reserve) -> Self {
        Self {
            weight: Mutex::new(weight),
            reserve: Mutex::new(reserve),
            readonly: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            admission: RwLock::new(()),
        }
    }

    /// The configured weight, if any.
    pub(crate) fn weight(&self) -> Option<f64> {
        *self.weight.lock()
    }

    pub(crate) fn set_weight(&self, weight: Option<f64>) {
        *self.weight.lock() = weight;
    }

    /// Space to be left free.
    pub(crate) fn reserve(&self) -> Reserve {
        *self.reserve.lock()
    }

    pub(crate) fn set_reserve(&self, reserve: Reserve) {
        *self.reserve.lock() = reserve;
    }

    /// Whether the tier is being emptied, or was.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// When this returns, all earlier [`Admission`]s have ended.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.close(&self.draining, draining);
    }

    /// Whether the tier was set to be read only.
    pub(crate) fn is_readonly(&self) -> bool {
        self.readonly.load(Ordering::Acquire)
    }

    /// As [`set_draining`](Self::set_draining).
    pub(crate) fn set_readonly(&self, readonly: bool) {
        self.close(&self.readonly, readonly);
    }

    /// An admission to give the tier a range, or why it takes none.
    pub(crate) fn admit(&self) -> Result<Admission<'_>, &'static str> {
        let admission = self.admission.read();
        if self.is_draining() {
            return Err("draining");
        }
        if self.is_readonly() {
            return Err("set to read-only");
        }
        Ok(admission)
    }

    fn close(&self, flag: &AtomicBool, closed: bool) {
        // Nothing waits where nothing changes: a tier that hangs is not asked.
        if flag.swap(closed, Ordering::AcqRel) != closed {
            drop(self.admission.write());
        }
    }
}
