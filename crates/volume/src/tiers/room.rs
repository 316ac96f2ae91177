//! How much room a tier has, without asking its file system at each write.

use crate::sync::Mutex;
use std::time::{Duration, Instant};

/// Figures older than this are measured again. Others may use the same file
/// system, so they can't be kept long.
const AGE_MAX: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Room {
    figures: Mutex<Option<Figures>>,
}

#[derive(Clone, Copy, Debug)]
struct Figures {
    measured: Instant,
    /// Share of space in use, 0 to 1.
    used: f64,
    /// Bytes that may be placed.
    room: u64,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { figures: Mutex::new(None) }
    }

    /// Share in use and room in bytes; measured by `measure` if they are old.
    pub(super) fn get(&self, measure: impl FnOnce() -> (f64, u64)) -> (f64, u64) {
        let mut figures = self.figures.lock();
        match *figures {
            Some(recent) if recent.measured.elapsed() < AGE_MAX => (recent.used, recent.room),
            _ => {
                let (used, room) = measure();
                *figures = Some(Figures { measured: Instant::now(), used, room });
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
        let room = Room::new();
        assert_eq!(room.get(|| (0.5, 100)), (0.5, 100));
        room.took(30);
        assert_eq!(room.get(|| (0.0, 0)), (0.5, 70));
        room.took(300);
        assert_eq!(room.get(|| (0.0, 7)), (0.5, 0));
    }
}
