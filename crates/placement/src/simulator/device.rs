//! The timing of a tier. A real device does one thing after another, in both
//! directions; one that the kernel throttles has a budget for each direction,
//! in slices: the budget of a slice may be used up at once at its start.

use crate::load::Direction;

/// Bytes a second of a device within its throttle's budget.
const UNTHROTTLED: f64 = 2e9;

/// The queue of a tier.
#[derive(Clone, Debug)]
pub(super) enum Device {
    /// One thing after another.
    Serial {
        bandwidth: [f64; 2],
        /// When it has finished its work.
        free_ns: u64,
    },
    /// A budget for each direction.
    Throttled { slice_ns: u64, ways: [Throttle; 2] },
}

/// The budget of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    bandwidth: f64,
    /// When it was last idle, and the bytes since.
    began_ns: u64,
    sent: f64,
    last_ns: u64,
}

impl Device {
    pub(super) fn new(bandwidth: [f64; 2], throttle_ns: Option<u64>) -> Self {
        match throttle_ns {
            None => Self::Serial { bandwidth, free_ns: 0 },
            Some(slice_ns) => {
                let ways = bandwidth.map(|bandwidth| Throttle { bandwidth, ..Throttle::default() });
                Self::Throttled { slice_ns, ways }
            }
        }
    }

    /// When an operation that arrives now ends.
    pub(super) fn submit(&mut self, direction: Direction, now_ns: u64, bytes: u64) -> u64 {
        match self {
            Self::Serial { bandwidth, free_ns } => {
                let takes_ns = bytes as f64 / bandwidth[direction as usize] * 1e9;
                *free_ns = now_ns.max(*free_ns).saturating_add(takes_ns as u64);
                *free_ns
            }
            Self::Throttled { slice_ns, ways } => ways[direction as usize].submit(now_ns, bytes, *slice_ns),
        }
    }

    /// Changes its bandwidth.
    #[cfg(test)]
    pub(super) fn change(&mut self, now_ns: u64, to: [f64; 2]) {
        match self {
            Self::Serial { bandwidth, .. } => *bandwidth = to,
            Self::Throttled { ways, .. } => {
                ways.iter_mut().zip(to).for_each(|(way, bandwidth)| way.change(now_ns, bandwidth));
            }
        }
    }
}

impl Throttle {
    fn submit(&mut self, now_ns: u64, bytes: u64, slice_ns: u64) -> u64 {
        if now_ns >= self.last_ns.max(self.began_ns) + slice_ns {
            (self.began_ns, self.sent) = (now_ns, 0.0);
        }
        self.sent += bytes as f64;
        let slices = self.sent / (self.bandwidth * slice_ns as f64 / 1e9);
        let allowed_ns = self.began_ns + (slices.ceil() as u64).saturating_sub(1) * slice_ns;
        let begins_ns = allowed_ns.max(now_ns).max(self.last_ns);
        self.last_ns = begins_ns + (bytes as f64 / UNTHROTTLED * 1e9) as u64;
        self.last_ns
    }

    #[cfg(test)]
    fn change(&mut self, now_ns: u64, bandwidth: f64) {
        (self.bandwidth, self.began_ns, self.sent) = (bandwidth, now_ns.max(self.last_ns), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_device_does_one_thing_after_another_and_a_throttled_one_its_slice_at_once() {
        let mut serial = Device::new([200e6, 100e6], None);
        assert_eq!(serial.submit(Direction::Write, 0, 1_000_000), 10_000_000);
        assert_eq!(serial.submit(Direction::Read, 0, 1_000_000), 15_000_000);
        assert_eq!(serial.submit(Direction::Read, 100_000_000, 1_000_000), 105_000_000);
        let mut throttled = Device::new([200e6, 100e6], Some(100_000_000));
        assert_eq!(throttled.submit(Direction::Write, 0, 10_000_000), 5_000_000);
        assert_eq!(throttled.submit(Direction::Write, 0, 10_000_000), 105_000_000);
        assert_eq!(throttled.submit(Direction::Read, 0, 10_000_000), 5_000_000);
    }
}
