//! The workers and queues of a runtime in `braid top`: their load between two looks.

use super::grid::{WIDE, fit, rows_in, table};
use braid_contract::units::show_latency;
use braid_contract::{QueueStatus, RuntimeStatus, WorkerStatus};
use ratatui::layout::Rect;
use ratatui::widgets::{Row, Table};
use std::cmp::Reverse;
use std::time::Instant;

/// Most workers, and most queues, that are shown.
const ROWS_MAX: usize = 5;

/// The runtime at the last two looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    before: Option<(Instant, RuntimeStatus)>,
    last: Option<(Instant, RuntimeStatus)>,
}

/// The load of a worker or a queue since a look.
struct Load {
    /// Requests a second; `None` at the first look.
    rate: Option<f64>,
    /// The share of the time that it took.
    busy: Option<f64>,
    /// The mean time of a request, in nanoseconds; of those before, if there were none since.
    mean_ns: Option<u64>,
}

/// Requests, and the nanoseconds that they took, since the beginning.
type Totals = (u64, u64);

impl Load {
    fn of(now: Totals, before: Option<Totals>, seconds: f64) -> Self {
        // One that begins anew counts from nothing.
        let before = before.filter(|before| before.0 <= now.0 && before.1 <= now.1 && seconds > 0.0);
        let Some(before) = before else {
            return Self { rate: None, busy: None, mean_ns: now.1.checked_div(now.0) };
        };
        let (requests, busy_ns) = (now.0 - before.0, now.1 - before.1);
        Self {
            rate: Some(requests as f64 / seconds),
            busy: Some((busy_ns as f64 / 1e9 / seconds).min(1.0)),
            mean_ns: busy_ns.checked_div(requests).or(now.1.checked_div(now.0)),
        }
    }

    fn cells(&self) -> [String; 3] {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        [
            shown(self.rate.map(|rate| format!("{rate:.0}"))),
            shown(self.busy.map(|busy| format!("{:.0}%", busy * 100.0))),
            shown(self.mean_ns.map(show_latency)),
        ]
    }
}

impl Looks {
    pub(crate) fn see(&mut self, runtime: Option<&RuntimeStatus>, now: Instant) {
        self.before = self.last.take();
        self.last = runtime.map(|runtime| (now, runtime.clone()));
    }

    fn seconds(&self) -> f64 {
        match (&self.before, &self.last) {
            (Some((before, _)), Some((last, _))) => last.duration_since(*before).as_secs_f64(),
            _ => 0.0,
        }
    }

    fn queues(&self) -> Vec<&QueueStatus> {
        let all = self.last.iter().flat_map(|(_, runtime)| &runtime.queues);
        let mut queues: Vec<_> = all.filter(|queue| queue.requests + queue.waiting > 0).collect();
        queues.sort_by_key(|queue| Reverse((self.requests_since(queue), queue.waiting)));
        queues.truncate(ROWS_MAX);
        queues
    }

    fn before_of(&self, queue: &QueueStatus) -> Option<Totals> {
        let (_, before) = self.before.as_ref()?;
        let is_it = |one: &&QueueStatus| (one.session, one.queue) == (queue.session, queue.queue);
        before.queues.iter().find(is_it).map(|queue| (queue.requests, queue.busy_ns))
    }

    fn requests_since(&self, queue: &QueueStatus) -> u64 {
        queue.requests.saturating_sub(self.before_of(queue).map_or(0, |(requests, _)| requests))
    }

    fn workers(&self) -> &[WorkerStatus] {
        self.last.as_ref().map_or(&[], |(_, runtime)| &runtime.workers)
    }

    /// Wanted rows of the two tables.
    pub(super) fn rows(&self) -> [usize; 2] {
        [self.workers().len().min(ROWS_MAX), self.queues().len()]
    }

    pub(super) fn workers_in(&self, area: Rect) -> Table<'static> {
        let before = |at: usize| {
            let (_, before) = self.before.as_ref()?;
            before.workers.get(at).map(|worker| (worker.requests, worker.busy_ns))
        };
        let row = |(at, worker): (usize, &WorkerStatus)| {
            let load = Load::of((worker.requests, worker.busy_ns), before(at), self.seconds());
            let [rate, busy, mean] = load.cells();
            Row::new([
                at.to_string(),
                if worker.latency { "latency" } else { "any" }.into(),
                worker.queues.to_string(),
                rate,
                busy,
                mean,
                if worker.asleep { "asleep" } else { "awake" }.into(),
            ])
        };
        let rows = self.workers().iter().enumerate().take(rows_in(area, true)).map(row);
        let columns = [
            ("WORKER", 8),
            ("FOR", 15),
            ("QUEUES", 8),
            ("REQUESTS/S", 11),
            ("BUSY", 6),
            ("MEAN", 9),
            ("NOW", 8),
        ];
        table(rows.collect(), &columns)
    }

    pub(super) fn queues_in(&self, area: Rect) -> Table<'static> {
        let process = |queue: &QueueStatus| {
            let (_, runtime) = self.last.as_ref()?;
            let session = runtime.sessions.iter().find(|session| session.session == queue.session)?;
            Some(session.pid.to_string())
        };
        let wide = if area.width >= WIDE { 15 } else { 8 };
        let row = |queue: &QueueStatus| {
            let load = Load::of((queue.requests, queue.busy_ns), self.before_of(queue), self.seconds());
            let [rate, busy, mean] = load.cells();
            Row::new([
                format!("{}.{}", queue.session, queue.queue),
                process(queue).unwrap_or_else(|| "-".into()),
                fit(queue.class.name(), wide),
                rate,
                busy,
                mean,
                queue.waiting.to_string(),
            ])
        };
        let queues = self.queues();
        let rows = queues.into_iter().take(rows_in(area, true)).map(row);
        let columns = [
            ("QUEUE", 8),
            ("PROCESS", 8),
            ("WANTS", wide as u16),
            ("REQUESTS/S", 11),
            ("BUSY", 6),
            ("MEAN", 9),
            ("WAITING", 8),
        ];
        table(rows.collect(), &columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_those_since_the_look_before() {
        let [rate, busy, mean] = Load::of((300, 3_000_000_000), Some((100, 2_000_000_000)), 2.0).cells();
        assert_eq!((&*rate, &*busy, &*mean), ("100", "50%", "5.0 ms"));
        // Nothing since: the mean of those before.
        let [rate, _, mean] = Load::of((100, 1_000_000), Some((100, 1_000_000)), 2.0).cells();
        assert_eq!((&*rate, &*mean), ("0", "10 µs"));
        for (before, seconds) in [(None, 2.0), (Some((1, 1)), 0.0), (Some((200, 1)), 1.0)] {
            assert_eq!(Load::of((100, 1_000_000), before, seconds).cells()[..2], ["-", "-"]);
        }
        assert_eq!(Load::of((0, 0), None, 1.0).cells(), ["-", "-", "-"]);
    }
}
