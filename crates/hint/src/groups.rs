//! Lifetime groups: what a stream writes within an interval of time or of space is
//! expected to die together (Reshim §3.2.2).

use braid_contract::{LifetimeGroup, StreamId};
use std::collections::HashMap;

/// When a stream's next group begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupInterval {
    /// After so many nanoseconds.
    Time(u64),
    /// After so many bytes.
    Space(u64),
}

/// The groups of all streams; data without a stream has them too.
#[derive(Clone, Debug)]
pub struct Groups {
    interval: GroupInterval,
    current: HashMap<Option<StreamId>, Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    group: u32,
    began_ns: u64,
    bytes: u64,
}

impl Groups {
    /// No group has begun.
    #[must_use]
    pub fn new(interval: GroupInterval) -> Self {
        Self { interval, current: HashMap::new() }
    }

    /// The group of `len` bytes that a stream writes now.
    pub fn of(&mut self, stream: Option<StreamId>, len: u64, now_ns: u64) -> LifetimeGroup {
        let new = Current { group: 0, began_ns: now_ns, bytes: 0 };
        let current = self.current.entry(stream).or_insert(new);
        let is_over = match self.interval {
            GroupInterval::Time(interval) => now_ns.saturating_sub(current.began_ns) >= interval.max(1),
            GroupInterval::Space(interval) => current.bytes >= interval.max(1),
        };
        if is_over {
            *current = Current { group: current.group.wrapping_add(1), began_ns: now_ns, bytes: 0 };
        }
        current.bytes = current.bytes.saturating_add(len);
        LifetimeGroup(current.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(interval: GroupInterval, writes: &[(u16, u64, u64)]) -> Vec<u32> {
        let mut groups = Groups::new(interval);
        writes.iter().map(|(stream, len, at)| groups.of(Some(StreamId(*stream)), *len, *at).0).collect()
    }

    #[test]
    fn each_stream_has_its_own_intervals() {
        let writes = [(1, 60, 0), (1, 60, 5), (2, 10, 6), (1, 1, 9), (2, 1, 16), (1, 1, 40)];
        assert_eq!(groups(GroupInterval::Space(100), &writes), [0, 0, 0, 1, 0, 1]);
        assert_eq!(groups(GroupInterval::Time(10), &writes), [0, 0, 0, 0, 1, 1]);
    }
}
