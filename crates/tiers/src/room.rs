//! The room of a tier, without a request to its file system for each write.

use braid_contract::Usage;
use parking_lot::Mutex;

/// Age after which figures are measured again. Others may use the same file
/// system, so they can't be kept long.
pub(super) const AGE_MAX_NS: u64 = 250_000_000;

/// The last figures. The lock is never held during a request.
#[derive(Debug)]
pub(super) struct Room {
    figures: Mutex<Option<Figures>>,
}

/// The measured space, and the bytes placed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) measured_ns: u64,
    pub(super) usage: Usage,
    /// Bytes that may be placed.
    pub(super) room: u64,
    /// Bytes that are left free.
    pub(super) reserve: u64,
}

impl Figures {
    /// Used share of the space for data, 0 to 1.
    pub(super) fn used(&self) -> f64 {
        match self.capacity() {
            0 => 1.0,
            capacity => 1.0 - self.usage.free.saturating_sub(self.reserve) as f64 / capacity as f64,
        }
    }

    /// Bytes that data may take.
    pub(super) fn capacity(&self) -> u64 {
        self.usage.total.saturating_sub(self.reserve)
    }
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { figures: Mutex::new(None) }
    }

    pub(crate) fn figures(&self) -> Option<Figures> {
        *self.figures.lock()
    }

    pub(super) fn set(&self, figures: Figures) {
        *self.figures.lock() = Some(figures);
    }

    /// Notes that `bytes` were placed.
    pub(crate) fn took(&self, bytes: u64) {
        if let Some(figures) = &mut *self.figures.lock() {
            figures.room = figures.room.saturating_sub(bytes);
        }
    }

    /// Notes that there is no room.
    pub(super) fn exhausted(&self) {
        if let Some(figures) = &mut *self.figures.lock() {
            figures.room = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_placed_counts_before_the_next_measurement() {
        let room = Room::new();
        let usage = Usage { total: 200, free: 100, available: 100, device: 0 };
        room.set(Figures { measured_ns: 0, usage, room: 100, reserve: 0 });
        room.took(30);
        assert_eq!(room.figures().map(|figures| figures.room), Some(70));
        room.took(300);
        assert_eq!(room.figures().map(|figures| (figures.used(), figures.room)), Some((0.5, 0)));
    }
}
