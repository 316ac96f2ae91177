//! How much room a tier has, without asking its file system at each write.

use crate::sync::Mutex;
use braid_contract::Environment;
use std::sync::Arc;

/// Figures older than this are measured again. Others may use the same file
/// system, so they can't be kept long.
const AGE_MAX_NS: u64 = 250_000_000;

#[derive(Debug)]
pub(super) struct Room {
    figures: Mutex<Option<Figures>>,
    environment: Arc<dyn Environment>,
}

#[derive(Clone, Copy, Debug)]
struct Figures {
    measured_ns: u64,
    /// Share of space in use, 0 to 1.
    used: f64,
    /// Bytes that may be placed.
    room: u64,
}

impl Room {
    pub(super) fn new(environment: Arc<dyn Environment>) -> Self {
        Self { figures: Mutex::new(None), environment }
    }

    /// Share in use and room in bytes; measured by `measure` if they are old.
    pub(super) fn get(&self, measure: impl FnOnce() -> (f64, u64)) -> (f64, u64) {
        let now_ns = self.environment.monotonic_ns();
        let mut figures = self.figures.lock();
        match *figures {
            Some(recent) if now_ns.saturating_sub(recent.measured_ns) < AGE_MAX_NS => {
                (recent.used, recent.room)
            }
            _ => {
                let (used, room) = measure();
                *figures = Some(Figures { measured_ns: now_ns, used, room });
                (used, room)
            }
        }
    }

    /// `bytes` were placed since.
    pub(super) fn took(&self, bytes: u64) {
        if let Some(figures) = &mut *self.figures.lock() {
            figures.room = figures.room.saturating_sub(bytes);
        }
    }

    /// The figures are not true any more.
    pub(super) fn forget(&self) {
        *self.figures.lock() = None;
    }

    /// There turned out to be none.
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
        let room = Room::new(Arc::new(crate::Machine));
        assert_eq!(room.get(|| (0.5, 100)), (0.5, 100));
        room.took(30);
        assert_eq!(room.get(|| (0.0, 0)), (0.5, 70));
        room.took(300);
        assert_eq!(room.get(|| (0.0, 7)), (0.5, 0));
    }
}
