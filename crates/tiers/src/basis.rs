//! The basis of the figures of a tier's speed, and since when, for `status` and
//! for the next mount.

use braid_contract::SpeedBasis;
use parking_lot::Mutex;

/// The bandwidths of reads and writes in bytes a second, where known.
type Bandwidth = [Option<f64>; 2];

/// The basis of one tier's figures.
#[derive(Debug, Default)]
pub(crate) struct Basis(Mutex<Option<Known>>);

#[derive(Clone, Copy, Debug)]
struct Known {
    from: SpeedBasis,
    /// Nanoseconds since 1970.
    since_ns: i64,
    /// The figures then: use changes them.
    bandwidth: Bandwidth,
}

impl Basis {
    /// The figures are these from now on.
    pub(crate) fn set(&self, from: SpeedBasis, since_ns: i64, bandwidth: Bandwidth) {
        *self.0.lock() = Some(Known { from, since_ns, bandwidth });
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Looks at the figures after an epoch of use, at a time.
    pub(crate) fn note_use(&self, bandwidth: Bandwidth, now_ns: i64) {
        let mut known = self.0.lock();
        let before = known.map_or([None; 2], |known| known.bandwidth);
        if bandwidth != before {
            *known = Some(Known { from: SpeedBasis::Use, since_ns: now_ns, bandwidth });
        }
    }

    /// The basis of the figures, and when they were last seen to be so, in
    /// nanoseconds since 1970; `None` if there are none.
    pub(crate) fn get(&self) -> Option<(SpeedBasis, i64)> {
        (*self.0.lock()).map(|known| (known.from, known.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_rest_on_use_once_it_changes_them() {
        let basis = Basis::default();
        basis.note_use([None; 2], 1);
        assert_eq!(basis.get(), None);
        basis.set(SpeedBasis::LastMount, 5, [Some(1.0), None]);
        basis.note_use([Some(1.0), None], 6);
        assert_eq!(basis.get(), Some((SpeedBasis::LastMount, 5)));
        basis.note_use([Some(1.0), Some(2.0)], 7);
        assert_eq!(basis.get(), Some((SpeedBasis::Use, 7)));
        basis.forget();
        assert_eq!(basis.get(), None);
    }
}
