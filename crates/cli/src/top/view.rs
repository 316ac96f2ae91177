//! What `braid top` shows: from the state of a volume to a picture, and nothing
//! else. Drawn to the terminal, or printed as text.

use crate::status::show_duration;
use crate::table::show_latency;
use braid_contract::Shown;
use braid_daemon::units::show_size;
use braid_ipc::protocol::{Amount, HotFile, Job, Latency, Status, ThreadStatus, TierStatus};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, Widget};
use std::collections::BTreeMap;

/// Lines for files when there is room for more.
const FILES_MIN: u16 = 3;
/// Jobs that are shown at most.
const JOBS_MAX: usize = 5;
/// Threads that are shown at most.
const THREADS_MAX: usize = 5;
/// Width of a job's bar.
const JOB_BAR: usize = 20;
/// Width of what a tier's row has besides the bar.
const TIER_WIDTHS: [u16; 8] = [12, 5, 11, 11, 7, 7, 14, 17];
/// Bounds of the width of a bar.
const BAR: (u16, u16) = (4, 40);

/// In which order tiers are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Home first, then by number.
    #[default]
    Number,
    Name,
    Read,
    Written,
    InFlight,
    Full,
}

impl Order {
    const ALL: [Self; 6] = [Self::Number, Self::Name, Self::Read, Self::Written, Self::InFlight, Self::Full];

    /// The one after this, or before it.
    pub(crate) fn step(self, forward: bool) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + if forward { 1 } else { Self::ALL.len() - 1 }) % Self::ALL.len()]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Name => "name",
            Self::Read => "read/s",
            Self::Written => "write/s",
            Self::InFlight => "in flight",
            Self::Full => "used",
        }
    }

    fn sort(self, tiers: &mut [&TierStatus]) {
        let falling = |value: fn(&TierStatus) -> f64| {
            move |a: &&TierStatus, b: &&TierStatus| value(b).total_cmp(&value(a))
        };
        match self {
            Self::Number => {}
            Self::Name => tiers.sort_by(|a, b| a.name.cmp(&b.name)),
            Self::Read => tiers.sort_by(falling(|tier| tier.read_rate)),
            Self::Written => tiers.sort_by(falling(|tier| tier.write_rate)),
            Self::InFlight => tiers.sort_by(falling(|tier| tier.in_flight)),
            Self::Full => tiers.sort_by(falling(used)),
        }
    }
}

/// The highest rates that were seen so far, for tiers of which no maximum is
/// known: read and written, by the tier's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks(BTreeMap<u8, [f64; 2]>);

impl Peaks {
    pub(crate) fn see(&mut self, status: &Status) {
        for tier in &status.tiers {
            let peak = self.0.entry(tier.id).or_default();
            peak[0] = peak[0].max(tier.read_rate);
            peak[1] = peak[1].max(tier.write_rate);
        }
    }

    fn of(&self, tier: &TierStatus, side: usize) -> f64 {
        self.0.get(&tier.id).map_or(0.0, |peak| peak[side])
    }
}

/// Everything that a frame shows.
pub(crate) struct View<'a> {
    pub(crate) status: &'a Status,
    /// Jobs, where they are told.
    pub(crate) jobs: Option<&'a [Job]>,
    pub(crate) peaks: &'a Peaks,
    pub(crate) order: Order,
    /// Hottest files that are passed over.
    pub(crate) scroll: usize,
    /// Tell which keys there are.
    pub(crate) keys: bool,
}

/// A frame as lines of text, as wide as need be.
pub(crate) fn text(view: &View<'_>, width: u16) -> String {
    let area = Rect::new(0, 0, width, view.height());
    let mut buffer = Buffer::empty(area);
    draw(area, &mut buffer, view);
    let line = |row: u16| {
        let cells = (0..width).filter_map(|column| buffer.cell((column, row)));
        let line: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    (0..area.height).map(line).collect()
}

/// Draws a frame.
pub(crate) fn draw(area: Rect, buffer: &mut Buffer, view: &View<'_>) {
    let [head, tiers, threads, jobs, files, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(view.tiers_height()),
        Constraint::Length(view.threads_height()),
        Constraint::Length(view.jobs_height()),
        Constraint::Min(FILES_MIN),
        Constraint::Length(u16::from(view.keys)),
    ])
    .areas(area);
    view.head().render(head, buffer);
    Widget::render(view.tiers(tiers.width), tiers, buffer);
    Widget::render(view.threads(), threads, buffer);
    Widget::render(view.jobs(), jobs, buffer);
    Widget::render(view.files(), files, buffer);
    let keys = format!(" q quit   ← → sort by: {}   ↑ ↓ scroll files", view.order.name());
    Line::styled(keys, Modifier::DIM).render(foot, buffer);
}

impl View<'_> {
    /// Lines that it takes to show everything.
    fn height(&self) -> u16 {
        let files = u16::try_from(self.status.hottest.len()).unwrap_or(u16::MAX);
        (2 + self.tiers_height())
            .saturating_add(self.threads_height())
            .saturating_add(self.jobs_height())
            .saturating_add(files.max(2))
            .saturating_add(1)
    }

    fn tiers_height(&self) -> u16 {
        u16::try_from(self.status.tiers.len() * 2 + 2).unwrap_or(u16::MAX)
    }

    fn threads_height(&self) -> u16 {
        // As for jobs.
        u16::try_from(self.busiest_threads().len().max(1) + 2).unwrap_or(u16::MAX)
    }

    fn jobs_height(&self) -> u16 {
        // A head and a blank line; a line too for there being none.
        u16::try_from(self.current_jobs().count().clamp(1, JOBS_MAX) + 2).unwrap_or(u16::MAX)
    }

    /// The threads that move most bytes on some tier, and its name.
    fn busiest_threads(&self) -> Vec<(&str, &ThreadStatus)> {
        let mut threads = Vec::new();
        for tier in &self.status.tiers {
            threads.extend(tier.busiest_threads.iter().map(|thread| (&*tier.name, thread)));
        }
        let rate = |(_, thread): &(&str, &ThreadStatus)| thread.read_rate + thread.write_rate;
        threads.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        threads.truncate(THREADS_MAX);
        threads
    }

    fn threads(&self) -> Table<'static> {
        let took = |op_rate: f64, nanos: u64| if op_rate > 0.0 { show_latency(nanos) } else { "-".into() };
        let row = |(tier, thread): &(&str, &ThreadStatus)| {
            Row::new([
                thread.thread.to_string(),
                (*tier).to_owned(),
                format!("{}/s", show_size(thread.read_rate as u64)),
                format!("{}/s", show_size(thread.write_rate as u64)),
                format!("{:.0}", thread.read_op_rate),
                format!("{:.0}", thread.write_op_rate),
                took(thread.read_op_rate, thread.read_latency_ns),
                took(thread.write_op_rate, thread.write_latency_ns),
                format!("{:.1}", thread.in_flight),
            ])
        };
        let mut rows: Vec<Row<'_>> = self.busiest_threads().iter().map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-"]));
        }
        let widths = [8, 12, 11, 11, 8, 8, 9, 10, 9].map(Constraint::Length);
        let head = [
            "THREAD",
            "TIER",
            "READ",
            "WRITE",
            "READS/S",
            "WRITES/S",
            "READ TOOK",
            "WRITE TOOK",
            "IN FLIGHT",
        ];
        Table::new(rows, widths).header(header(&head)).column_spacing(1)
    }

    /// Jobs that have not ended, the latest first.
    fn current_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.unwrap_or_default().iter().rev().filter(|job| !job.is_over())
    }

    fn jobs(&self) -> Table<'static> {
        let row = |job: &Job| {
            let share = |total: Amount| job.done.bytes as f64 / total.bytes.max(1) as f64;
            let share = job.what.is_some().then(|| job.total.map_or(0.0, share));
            let rate = if job.rate > 0.0 { format!("{}/s", show_size(job.rate as u64)) } else { "-".into() };
            Row::new([
                job.id.to_string(),
                job.state.name().to_owned(),
                // A mover has no end that it comes nearer to.
                share.map_or_else(|| show_size(job.done.bytes), |share| bar(share, JOB_BAR)),
                share.map_or(String::new(), |share| format!("{:.0}%", share.min(1.0) * 100.0)),
                rate,
                job.eta_seconds.map_or("-".into(), show_duration),
                what(job),
            ])
        };
        let mut rows: Vec<Row<'_>> = self.current_jobs().take(JOBS_MAX).map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-"]));
        }
        let widths = [7, 8, JOB_BAR as u16, 5, 11, 12].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(20)]);
        let head = ["JOB", "STATE", "DONE", "", "RATE", "LEFT", "WHAT"];
        Table::new(rows, widths).header(header(&head)).column_spacing(1)
    }

    fn head(&self) -> Line<'static> {
        let Status { mountpoint, policy, open_files, known_inodes, pending_removals, .. } = self.status;
        Line::from(vec![
            Span::styled(mountpoint.shown().to_string(), Modifier::BOLD),
            Span::raw(format!(
                "  policy {policy}  {open_files} open files, {known_inodes} inodes in memory, \
                 {pending_removals} removals pending"
            )),
        ])
    }

    fn tiers(&self, width: u16) -> Table<'static> {
        // A blank stands between any two columns.
        let others: u16 = TIER_WIDTHS.iter().sum::<u16>() + TIER_WIDTHS.len() as u16;
        let bar = width.saturating_sub(others).clamp(BAR.0, BAR.1);
        let mut tiers: Vec<&TierStatus> = self.status.tiers.iter().collect();
        self.order.sort(&mut tiers);
        let rows = tiers.iter().flat_map(|tier| self.tier(tier, usize::from(bar)));
        let [name, side, rate, most, p50, p99, load, space] = TIER_WIDTHS;
        let widths = [name, side, bar, rate, most, p50, p99, load, space].map(Constraint::Length);
        let head = ["TIER", "", "BANDWIDTH", "", "OF", "P50", "P99", "LOAD", "SPACE"];
        Table::new(rows, widths).header(header(&head)).column_spacing(1)
    }

    /// The two rows of a tier: what is read and what is written.
    fn tier(&self, tier: &TierStatus, bar_width: usize) -> [Row<'static>; 2] {
        let name = format!("{}{}", tier.name, if tier.home { "*" } else { "" });
        let threads = format!("{} thread{}", tier.threads, if tier.threads == 1 { "" } else { "s" });
        let load = [format!("{:.1} in flight", tier.in_flight), threads];
        let share = used(tier);
        let space = [bar(share, 16), format!("{:.0}% of {}", share * 100.0, show_size(tier.total))];
        let sides = [
            (tier.read_rate, tier.read_bandwidth, &tier.read_latency_ns),
            (tier.write_rate, tier.write_bandwidth, &tier.write_latency_ns),
        ];
        let first = [
            Cell::from(name).style(Modifier::BOLD),
            Cell::from(tier.state.clone()).style(state_style(&tier.state)),
        ];
        let mut first = first.into_iter().zip(["read", "write"]);
        let mut rest = load.into_iter().zip(space);
        let mut side = 0;
        sides.map(|(rate, most, latency)| {
            let (seen, most) = match most {
                Some(most) => ("", most),
                None => ("~", self.peaks.of(tier, side)),
            };
            side += 1;
            let (label, what) = first.next().unwrap_or_default();
            let (load, space) = rest.next().unwrap_or_default();
            let known = if most > 0.0 { format!("{seen}{}/s", show_size(most as u64)) } else { "-".into() };
            Row::new([
                label,
                Cell::from(what),
                Cell::from(bar(if most > 0.0 { rate / most } else { 0.0 }, bar_width)),
                Cell::from(format!("{}/s", show_size(rate as u64))),
                Cell::from(known),
                Cell::from(show_percentile(latency, latency.p50)),
                Cell::from(show_percentile(latency, latency.p99)),
                Cell::from(load),
                Cell::from(space),
            ])
        })
    }

    fn files(&self) -> Table<'static> {
        let row = |file: &HotFile| {
            let path = file.path.as_ref().map(|path| path.shown().to_string());
            let path = path.unwrap_or_else(|| format!("inode {}", file.ino));
            Row::new([format!("{:.2}", file.heat), file.tier_names.join(" "), path])
        };
        let mut rows: Vec<Row<'_>> = self.status.hottest.iter().skip(self.scroll).map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-", "", ""]));
        }
        let widths = [Constraint::Length(8), Constraint::Length(24), Constraint::Min(20)];
        Table::new(rows, widths).header(header(&["HEAT", "TIERS", "HOTTEST FILES"])).column_spacing(1)
    }
}

fn header(names: &[&'static str]) -> Row<'static> {
    Row::new(names.iter().map(|name| Cell::from(*name)).collect::<Vec<_>>())
        .style(Style::new().add_modifier(Modifier::DIM))
}

fn used(tier: &TierStatus) -> f64 {
    if tier.total > 0 { tier.used as f64 / tier.total as f64 } else { 0.0 }
}

/// What a job is to do, and what keeps it from it.
fn what(job: &Job) -> String {
    let slowed: Vec<&str> = job.slowed.keys().map(String::as_str).collect();
    let slowed = match slowed.is_empty() {
        true => String::new(),
        false => format!(", slowed down on {}", slowed.join(", ")),
    };
    let why = job.message.as_ref().map_or(String::new(), |why| format!(": {why}"));
    format!("{}{slowed}{why}", job.text)
}

/// `share` of `width` characters.
fn bar(share: f64, width: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    "█".repeat(full) + &"░".repeat(width - full)
}

fn show_percentile(latency: &Latency, nanos: u64) -> String {
    if latency.ops > 0 { show_latency(nanos) } else { "-".into() }
}

fn state_style(state: &str) -> Style {
    match state {
        "failing" | "hanging" | "absent" => Style::new().fg(Color::Red),
        "full" | "read-only" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// A status as a daemon tells it, with what an older one leaves out.
    fn status() -> Status {
        let tier = |id: u8, name: &str, write_rate: f64| {
            serde_json::json!({
                "id": id, "name": name, "location": "/t", "home": id == 0, "state": "online", "weight": 1.0,
                "reserve": 0, "total": 100_u64 << 30, "free": 75_u64 << 30, "available": 75_u64 << 30,
                "used": 25_u64 << 30, "ranges": 1, "read_bytes": 0, "read_ops": 0, "write_bytes": 0,
                "write_ops": 0, "read_rate": 0.0, "write_rate": write_rate,
            })
        };
        let mut fast = tier(0, "fast", 100.0 * 1024.0 * 1024.0);
        fast["write_bandwidth"] = (200 << 20).into();
        fast["write_latency_ns"] =
            serde_json::json!({ "ops": 5, "mean": 0, "p50": 1_500_000, "p99": 84_000_000 });
        let thread = |thread: u32, write_rate: f64| {
            serde_json::json!({
                "thread": thread, "read_rate": 0.0, "write_rate": write_rate, "read_op_rate": 0.0,
                "write_op_rate": 50.0, "read_latency_ns": 0, "write_latency_ns": 1_500_000, "in_flight": 0.75,
            })
        };
        fast["busiest_threads"] = serde_json::json!([thread(77, 3e6), thread(78, 1e6)]);
        let mut slow = tier(1, "slow", 250.0 * 1024.0 * 1024.0);
        slow["busiest_threads"] = serde_json::json!([thread(77, 2_097_152.0)]);
        let hot = serde_json::json!([
            { "ino": 7, "path": "a/b", "heat": 2.5, "tier_names": ["slow"] },
            { "ino": 8, "heat": 0.5, "tier_names": ["fast", "slow"] },
        ]);
        serde_json::from_value(serde_json::json!({
            "volume": "v", "mountpoint": "/mnt", "version": "1", "pid": 1, "range_size": 65536,
            "policy": "weighted", "open_files": 3, "known_inodes": 4, "pending_removals": 0,
            "tiers": [fast, slow], "hottest": hot,
        }))
        .unwrap()
    }

    fn job(state: &str) -> Job {
        let amount = |bytes: u64| serde_json::json!({ "bytes": bytes, "ranges": 1, "files": 1 });
        serde_json::from_value(serde_json::json!({
            "id": 3, "what": { "kind": "move", "path": "a/b", "to": "slow" }, "text": "a/b to slow",
            "state": state, "done": amount(50), "total": amount(100), "skipped": {}, "errors": 0,
            "waiting_for": 0, "bandwidth": null, "rate": f64::from(10 << 20), "eta_seconds": 65.0,
            "created_ns": 0, "started_ns": null, "ended_ns": null, "message": null,
        }))
        .unwrap()
    }

    fn screen(view: &View<'_>, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame.area(), frame.buffer_mut(), view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_frame_has_tiers_with_bars_the_hottest_files_and_the_keys() {
        let (status, mut peaks) = (status(), Peaks::default());
        peaks.see(&status);
        let (order, jobs) = (Order::default(), [job("running"), job("done")]);
        let mut view =
            View { status: &status, jobs: Some(&jobs), peaks: &peaks, order, scroll: 0, keys: true };
        let shown = screen(&view, 110, 23);
        for words in [
            "/mnt  policy weighted  3 open files",
            "fast*        read  ░░░░░░░░░░░░░░░░░░ 0 B/s       -           -       -",
            "online       write █████████░░░░░░░░░ 100 MiB/s   200 MiB/s   1.5 ms  84 ms",
            // Nothing is known of it but what it did so far.
            "online       write ██████████████████ 250 MiB/s   ~250 MiB/s  -       -",
            "0 threads      25% of 100 GiB",
            "77       slow         0 B/s       2.00 MiB/s  0        50       -         1.5 ms     0.8",
            "2.50     slow                     a/b",
            "0.50     fast slow                inode 8",
            "3       running  ██████████░░░░░░░░░░ 50%   10.0 MiB/s  1 min 5 s    a/b to slow",
            "q quit   ← → sort by: number",
        ] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
        let first = |shown: &str| shown.find("slow  ").unwrap() < shown.find("fast*").unwrap();
        assert!(!first(&shown));
        (view.order, view.scroll) = (Order::Written, 1);
        let shown = screen(&view, 110, 23);
        assert!(first(&shown) && !shown.contains("2.50  ") && shown.contains("inode 8"), "{shown}");
    }

    #[test]
    fn no_size_is_too_small() {
        let (status, peaks) = (status(), Peaks::default());
        let view =
            View { status: &status, jobs: None, peaks: &peaks, order: Order::Full, scroll: 9, keys: true };
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            screen(&view, width, height);
        }
        let text = text(&view, 100);
        assert!(text.lines().count() >= 9 && text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn going_through_the_orders_comes_back() {
        let mut order = Order::default();
        for _ in Order::ALL {
            order = order.step(true);
        }
        assert_eq!(order, Order::Number);
        assert_eq!(order.step(false), Order::Full);
    }
}
