//! The device: so many operations at a time, each of which takes its latency, and one way
//! through which all their bytes go. It knows no clock.

/// The figures of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Figures {
    pub(super) read_latency_ns: u64,
    pub(super) write_latency_ns: u64,
    pub(super) sync_latency_ns: u64,
    /// Additional time of an operation that does not go on where the last one ended.
    pub(super) seek_ns: u64,
    /// Bytes a second.
    pub(super) read_bandwidth: u64,
    pub(super) write_bandwidth: u64,
    /// Operations that it works on at a time.
    pub(super) depth: usize,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Work {
    Read { file: u64, offset: u64, bytes: u64 },
    Write { file: u64, offset: u64, bytes: u64, is_synced: bool },
    Sync,
}

impl Work {
    /// The same, once it is known how much it moves.
    pub(super) fn moving(self, count: u64) -> Self {
        match self {
            Self::Read { file, offset, .. } => Self::Read { file, offset, bytes: count },
            Self::Write { file, offset, is_synced, .. } => {
                Self::Write { file, offset, bytes: count, is_synced }
            }
            Self::Sync => Self::Sync,
        }
    }
}

/// The device, as far as it is busy.
pub(super) struct Device {
    figures: Figures,
    /// When each place in its queue is free again.
    places: Vec<u64>,
    /// When its way is free again.
    way_ns: u64,
    /// File and offset where the last operation ended.
    head: (u64, u64),
}

impl Device {
    pub(super) fn new(figures: Figures) -> Self {
        Self { figures, places: vec![0; figures.depth], way_ns: 0, head: (0, 0) }
    }

    /// The time at which it is done with an operation asked for at this time.
    pub(super) fn done_at(&mut self, work: Work, asked_ns: u64) -> u64 {
        let Figures { read_latency_ns, write_latency_ns, sync_latency_ns, .. } = self.figures;
        let (mut latency, transfer) = match work {
            Work::Read { file, offset, bytes } => (
                read_latency_ns + self.seek(file, offset, bytes),
                transfer_ns(bytes, self.figures.read_bandwidth),
            ),
            Work::Write { file, offset, bytes, .. } => (
                write_latency_ns + self.seek(file, offset, bytes),
                transfer_ns(bytes, self.figures.write_bandwidth),
            ),
            Work::Sync => (sync_latency_ns, 0),
        };
        if matches!(work, Work::Write { is_synced: true, .. }) {
            latency += sync_latency_ns;
        }
        let Some(place) = self.places.iter_mut().min() else { return asked_ns };
        let begun = asked_ns.max(*place);
        let found = begun + latency;
        let done = if transfer == 0 { found } else { found.max(self.way_ns) + transfer };
        if transfer > 0 {
            self.way_ns = done;
        }
        *place = done;
        done
    }

    /// The time to get there.
    fn seek(&mut self, file: u64, offset: u64, bytes: u64) -> u64 {
        let is_there = self.head == (file, offset);
        self.head = (file, offset + bytes);
        if is_there { 0 } else { self.figures.seek_ns }
    }
}

fn transfer_ns(bytes: u64, bandwidth: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX / 4)
}
