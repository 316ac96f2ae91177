//! Measuring the rate of moved data.

/// The recent rate of something.
pub struct Meter {
    since_ns: u64,
    bytes: u64,
    rate: Option<f64>,
}

impl Meter {
    /// Shortest time to compute a rate over.
    const WINDOW_NS: u64 = 1_000_000_000;
    /// Weight of a new window against the earlier ones.
    const NEW: f64 = 0.4;

    /// A meter that starts at this time.
    pub fn new(now_ns: u64) -> Self {
        Self { since_ns: now_ns, bytes: 0, rate: None }
    }

    /// Counts moved bytes.
    pub fn add(&mut self, now_ns: u64, bytes: u64) {
        self.bytes += bytes;
        if now_ns.saturating_sub(self.since_ns) >= Self::WINDOW_NS {
            self.rate = Some(self.rate(now_ns));
            self.since_ns = now_ns;
            self.bytes = 0;
        }
    }

    /// Bytes a second.
    pub fn rate(&self, now_ns: u64) -> f64 {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let latest = self.bytes as f64 / (elapsed_ns.max(1) as f64 / 1e9);
        match self.rate {
            Some(rate) if elapsed_ns < Self::WINDOW_NS => rate,
            Some(rate) => rate * (1.0 - Self::NEW) + latest * Self::NEW,
            None if elapsed_ns < Self::WINDOW_NS / 10 => 0.0,
            None => latest,
        }
    }
}
