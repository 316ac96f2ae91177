//! The picture of `braid top`: a pure function of the state of a volume. Drawn
//! to the terminal, or printed as text.

use super::grid::{WIDE, fit, rows_in, table};
use super::history::History;
use crate::runtime;
use braid_contract::units::{show_duration, show_latency, show_size};
use braid_contract::{Shown, counted};
use braid_ipc::protocol::{Amount, HotFile, Job, Latency, Status, ThreadStatus, TierStatus};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

/// Most jobs that are shown.
const JOBS_MAX: usize = 5;
/// Most threads that are shown.
const THREADS_MAX: usize = 5;
/// Least lines of a section: its head, a line and a blank.
const SECTION_MIN: u16 = 3;
/// The sections of a frame, from the top down.
const SECTIONS: usize = 8;
const HEAD: usize = 0;
const TIERS: usize = 1;
const WORKERS: usize = 2;
const QUEUES: usize = 3;
const THREADS: usize = 4;
const JOBS: usize = 5;
const FILES: usize = 6;
const KEYS: usize = 7;
/// Bounds of the width of a tier's bar.
const BAR: (u16, u16) = (4, 40);

/// The order of tiers.
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

    /// The next or the previous one.
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

/// The contents of a frame.
pub(crate) struct View<'a> {
    pub(crate) status: &'a Status,
    /// Jobs, if this user may see them.
    pub(crate) jobs: Option<&'a [Job]>,
    pub(crate) history: &'a History,
    pub(crate) order: Order,
    /// Number of hottest files to skip.
    pub(crate) scroll: usize,
    /// Whether to list the keys.
    pub(crate) keys: bool,
}

/// A frame as lines of text, of any width.
pub(crate) fn text(view: &View<'_>, width: u16) -> String {
    let area = Rect::new(0, 0, width, view.height(width));
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
    let heights = view.heights(area.width, area.height);
    let [head, tiers, workers, queues, threads, jobs, files, foot] =
        Layout::vertical(heights.map(Constraint::Length)).areas(area);
    view.head(head.width).render(head, buffer);
    for (table, area) in [
        (view.tiers(tiers), tiers),
        (view.history.looks.workers_in(workers), workers),
        (view.history.looks.queues_in(queues), queues),
        (view.threads(threads), threads),
        (view.jobs(jobs), jobs),
        (view.files(files), files),
    ] {
        Widget::render(table, area, buffer);
    }
    let keys = format!(" q quit   ← → sort by: {}   ↑ ↓ scroll files", view.order.name());
    Line::styled(keys, Modifier::DIM).render(foot, buffer);
}

impl View<'_> {
    /// Lines needed to show everything at this width.
    fn height(&self, width: u16) -> u16 {
        self.wanted(width).iter().fold(0, |all: u16, lines| all.saturating_add(*lines))
    }

    /// Wanted lines of each section, in the order of the frame.
    fn wanted(&self, width: u16) -> [u16; SECTIONS] {
        let lines = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX);
        // A section without rows is left out with its head.
        let table = |rows: usize| if rows > 0 { lines(rows + 2) } else { 0 };
        let [workers, queues] = self.history.looks.rows();
        let head = if width < WIDE { 3 } else { 2 } + u16::from(self.status.runtime.is_some());
        if self.status.tiers.is_empty() {
            return [head, 0, table(workers), table(queues), 0, 0, 0, u16::from(self.keys)];
        }
        [
            head,
            lines(self.status.tiers.len() * 2 + 2),
            table(workers),
            table(queues),
            lines(self.busiest_threads().len().max(1) + 2),
            lines(self.current_jobs().count().clamp(1, JOBS_MAX) + 2),
            lines(self.status.hottest.len().max(1) + 1),
            u16::from(self.keys),
        ]
    }

    /// Lines that they get of `height`: keys, head and tiers first, then some
    /// for each of the others, then more for each; the rest goes to the files.
    fn heights(&self, width: u16, height: u16) -> [u16; SECTIONS] {
        let wanted = self.wanted(width);
        let mut got = [0; SECTIONS];
        let mut left = height;
        let mut give = |section: usize, lines: u16| {
            let lines = lines.min(left);
            got[section] += lines;
            left -= lines;
            left
        };
        for section in [KEYS, HEAD, TIERS] {
            give(section, wanted[section]);
        }
        let mut rest = [0; SECTIONS];
        for section in [WORKERS, QUEUES, THREADS, JOBS, FILES] {
            let least = wanted[section].min(SECTION_MIN);
            if give(section, 0) >= least {
                give(section, least);
                rest[section] = wanted[section] - least;
            }
        }
        for section in [JOBS, WORKERS, QUEUES, THREADS, FILES] {
            give(section, rest[section]);
        }
        if wanted[FILES] > 0 {
            give(FILES, u16::MAX);
        }
        got
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

    fn threads(&self, area: Rect) -> Table<'static> {
        let wide = area.width >= WIDE;
        let took = |op_rate: f64, nanos: u64| if op_rate > 0.0 { show_latency(nanos) } else { "-".into() };
        let row = |(tier, thread): &(&str, &ThreadStatus)| {
            let program = thread.program.as_deref().map_or("-".into(), |name| name.shown().to_string());
            let ops = [thread.read_op_rate, thread.write_op_rate].map(|rate| format!("{rate:.0}"));
            let mut cells = vec![
                thread.thread.to_string(),
                fit(&program, 15),
                fit(tier, if wide { 12 } else { 10 }),
                rate(thread.read_rate, wide),
                rate(thread.write_rate, wide),
            ];
            cells.extend(ops.into_iter().filter(|_| wide));
            cells.push(took(thread.read_op_rate, thread.read_latency_ns));
            cells.push(took(thread.write_op_rate, thread.write_latency_ns));
            cells.push(format!("{:.1}", thread.in_flight));
            Row::new(cells)
        };
        let mut rows: Vec<Row<'_>> =
            self.busiest_threads().iter().take(rows_in(area, true)).map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-"]));
        }
        let columns: &[(&str, u16)] = match wide {
            true => &[
                ("THREAD", 8),
                ("PROGRAM", 15),
                ("TIER", 12),
                ("READ", 11),
                ("WRITE", 11),
                ("READS/S", 8),
                ("WRITES/S", 8),
                ("READ TOOK", 9),
                ("WRITE TOOK", 10),
                ("IN FLIGHT", 9),
            ],
            false => &[
                ("THREAD", 7),
                ("PROGRAM", 15),
                ("TIER", 10),
                ("READ/S", 8),
                ("WRITE/S", 8),
                ("READ", 6),
                ("WRITE", 6),
                ("LOAD", 5),
            ],
        };
        table(rows, columns)
    }

    /// Jobs that have not ended, latest first.
    fn current_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.unwrap_or_default().iter().rev().filter(|job| !job.is_over())
    }

    fn jobs(&self, area: Rect) -> Table<'static> {
        let wide = area.width >= WIDE;
        let (bar_width, left) = if wide { (20, 12) } else { (8, 11) };
        let others = 7 + 7 + bar_width + 4 + 11 + left + 6;
        let text = usize::from(area.width).saturating_sub(others);
        let row = |job: &Job| {
            let share = |total: Amount| job.done.bytes as f64 / total.bytes.max(1) as f64;
            let share = job.what.is_some().then(|| job.total.map_or(0.0, share));
            Row::new([
                job.id.to_string(),
                job.state.name().to_owned(),
                // A mover has no end to approach.
                share.map_or_else(|| show_size(job.done.bytes), |share| bar(share, bar_width)),
                share.map_or(String::new(), |share| format!("{:.0}%", share.min(1.0) * 100.0)),
                if job.rate > 0.0 { rate(job.rate, true) } else { "-".into() },
                job.eta_seconds.map_or("-".into(), show_duration),
                fit(&what(job), text),
            ])
        };
        let mut rows: Vec<Row<'_>> =
            self.current_jobs().take(rows_in(area, true).min(JOBS_MAX)).map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-"]));
        }
        let width = |width: usize| u16::try_from(width).unwrap_or(u16::MAX);
        table(
            rows,
            &[
                ("JOB", 7),
                ("STATE", 7),
                ("DONE", width(bar_width)),
                ("", 4),
                ("RATE", 11),
                ("LEFT", width(left)),
                ("WHAT", width(text)),
            ],
        )
    }

    /// The mount point and the open files; in two lines if one is too short.
    fn head(&self, width: u16) -> Paragraph<'static> {
        let Status { mountpoint, policy, open_files, known_inodes, pending_removals, .. } = self.status;
        let (open, known) = (counted(*open_files, "open file"), counted(*known_inodes, "inode"));
        let counts = format!("{open}, {known} in memory, {} pending", counted(*pending_removals, "removal"));
        let point = mountpoint.shown().to_string();
        let mut lines = if width >= WIDE {
            let rest = format!("  policy {policy}  {counts}");
            vec![Line::from(vec![Span::styled(point, Modifier::BOLD), Span::raw(rest)])]
        } else {
            let counts = format!("{counts}  policy {policy}");
            let point = Line::styled(fit_end(&point, width.into()), Modifier::BOLD);
            vec![point, fit(&counts, width.into()).into()]
        };
        let runtime = self.status.runtime.as_ref().map(runtime::summary);
        lines.extend(runtime.map(|summary| fit(&summary, width.into()).into()));
        Paragraph::new(lines)
    }

    fn tiers(&self, area: Rect) -> Table<'static> {
        let wide = area.width >= WIDE;
        let widths: [u16; 8] = if wide { [12, 5, 11, 11, 7, 7, 14, 17] } else { [10, 5, 8, 8, 6, 6, 10, 11] };
        // A blank separates columns.
        let others: u16 = widths.iter().sum::<u16>() + widths.len() as u16;
        let bar = area.width.saturating_sub(others).clamp(BAR.0, BAR.1);
        let mut tiers: Vec<&TierStatus> = self.status.tiers.iter().collect();
        self.order.sort(&mut tiers);
        // Columns without room are left out completely.
        let room = rows_in(area, false) / 2;
        let rows = tiers.iter().take(room).flat_map(|tier| self.tier(tier, usize::from(bar), wide));
        let [name, side, rate, most, p50, p99, load, space] = widths;
        let unit = if wide { "" } else { "/S" };
        table(
            rows.collect(),
            &[
                ("TIER", name),
                ("", side),
                (if wide { "BANDWIDTH" } else { "BANDW." }, bar),
                (unit, rate),
                ("OF", most),
                ("P50", p50),
                ("P99", p99),
                ("LOAD", load),
                ("SPACE", space),
            ],
        )
    }

    /// The two rows of a tier: reads and writes.
    fn tier(&self, tier: &TierStatus, bar_width: usize, wide: bool) -> [Row<'static>; 2] {
        let home = if tier.home { "*" } else { "" };
        let name = format!("{}{home}", fit(&tier.name, if wide { 12 } else { 10 } - home.len()));
        let flight = if wide { "in flight" } else { "ops" };
        let threads =
            if wide { counted(tier.threads.into(), "thread") } else { format!("{} thr.", tier.threads) };
        let load = [format!("{:.1} {flight}", tier.in_flight), threads];
        let (share, of) = (used(tier), if wide { "of " } else { "" });
        let space = [
            bar(share, if wide { 16 } else { 11 }),
            format!("{:.0}% {of}{}", share * 100.0, show_size(tier.total)),
        ];
        let sides = [
            (tier.read_rate, tier.read_bandwidth, &tier.read_latency_ns),
            (tier.write_rate, tier.write_bandwidth, &tier.write_latency_ns),
        ];
        let first = [
            Cell::from(name).style(Modifier::BOLD),
            Cell::from(tier.state.name()).style(state_style(tier.state.name())),
        ];
        let mut first = first.into_iter().zip(["read", "write"]);
        let mut rest = load.into_iter().zip(space);
        let mut side = 0;
        sides.map(|(now, most, latency)| {
            let (seen, most) = match most {
                Some(most) => ("", most),
                None => ("~", self.history.peaks.of(tier, side)),
            };
            side += 1;
            let (label, what) = first.next().unwrap_or_default();
            let (load, space) = rest.next().unwrap_or_default();
            let known = if most > 0.0 { format!("{seen}{}", rate(most, wide)) } else { "-".into() };
            Row::new([
                label,
                Cell::from(what),
                Cell::from(bar(if most > 0.0 { now / most } else { 0.0 }, bar_width)),
                Cell::from(rate(now, wide)),
                Cell::from(known),
                Cell::from(show_percentile(latency, latency.p50_ns)),
                Cell::from(show_percentile(latency, latency.p99_ns)),
                Cell::from(load),
                Cell::from(space),
            ])
        })
    }

    fn files(&self, area: Rect) -> Table<'static> {
        let (tiers, heat) = (if area.width >= WIDE { 24 } else { 14 }, 5);
        let text = area.width.saturating_sub(heat + 7 + tiers + 3);
        let row = |file: &HotFile| {
            let path = file.path.as_ref().map(|path| path.shown().to_string());
            let path = path.unwrap_or_else(|| format!("inode {}", file.ino));
            Row::new([
                format!("{}%", file.heat),
                file.ranges.to_string(),
                fit(&file.tier_names.join(" "), tiers.into()),
                fit_end(&path, text.into()),
            ])
        };
        let mut rows: Vec<Row<'_>> = self.status.hottest.iter().skip(self.scroll).map(row).collect();
        if rows.is_empty() {
            rows.push(Row::new(["-"]));
        }
        table(rows, &[("HEAT", heat), ("RANGES", 7), ("TIERS", tiers), ("HOTTEST FILES", text)])
    }
}

/// Bytes a second; if there is little room, the head of the column has the
/// unit.
fn rate(rate: f64, wide: bool) -> String {
    let size = show_size(rate as u64);
    if wide { format!("{size}/s") } else { size.replace(' ', "").replace("iB", "") }
}

/// The end of a path, as much as fits: it says more than the beginning.
fn fit_end(text: &str, width: usize) -> String {
    match (text.chars().count() + 1).checked_sub(width) {
        Some(over) if over > 1 => ['…'].into_iter().chain(text.chars().skip(over)).collect(),
        _ => text.to_owned(),
    }
}

fn used(tier: &TierStatus) -> f64 {
    if tier.total > 0 { tier.used as f64 / tier.total as f64 } else { 0.0 }
}

/// The goal of a job, and its obstacle.
fn what(job: &Job) -> String {
    let slowed: Vec<&str> = job.slowed.keys().map(String::as_str).collect();
    let slowed = match slowed.is_empty() {
        true => String::new(),
        false => format!(", slowed down on {}", slowed.join(", ")),
    };
    let why = job.message.as_ref().map_or(String::new(), |why| format!(": {why}"));
    format!("{}{slowed}{why}", job.text)
}

/// A bar of `width` characters, filled to `share`.
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
    use std::time::{Duration, Instant};

    /// A status as from a daemon, without the fields that an older one leaves
    /// out.
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
                "thread": thread, "program": "wri\nter", "read_rate": 0.0, "write_rate": write_rate, "read_op_rate": 0.0,
                "write_op_rate": 50.0, "read_latency_ns": 0, "write_latency_ns": 1_500_000, "in_flight": 0.75,
            })
        };
        fast["busiest_threads"] = serde_json::json!([thread(77, 3e6), thread(78, 1e6)]);
        let mut slow = tier(1, "slow", 250.0 * 1024.0 * 1024.0);
        slow["busiest_threads"] = serde_json::json!([thread(77, 2_097_152.0)]);
        let hot = serde_json::json!([
            { "ino": 7, "path": "a/b", "heat": 83, "ranges": 3, "tier_names": ["slow"] },
            { "ino": 8, "heat": 33, "ranges": 1, "tier_names": ["fast", "slow"] },
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

    fn view<'a>(status: &'a Status, jobs: Option<&'a [Job]>, history: &'a History) -> View<'a> {
        View { status, jobs, history, order: Order::default(), scroll: 0, keys: true }
    }

    fn screen(view: &View<'_>, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame.area(), frame.buffer_mut(), view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_frame_has_tiers_with_bars_the_hottest_files_and_the_keys() {
        let (status, mut history) = (status(), History::default());
        history.see(&status, Instant::now());
        let jobs = [job("running"), job("done")];
        let mut view = view(&status, Some(&jobs), &history);
        let shown = screen(&view, 110, 23);
        for words in [
            "/mnt  policy weighted  3 open files",
            "fast*        read  ░░░░░░░░░░░░░░░░░░ 0 B/s       -           -       -",
            "online       write █████████░░░░░░░░░ 100 MiB/s   200 MiB/s   1.5 ms  84 ms",
            // Only the rates so far are known.
            "online       write ██████████████████ 250 MiB/s   ~250 MiB/s  -       -",
            "0 threads      25% of 100 GiB",
            "77       $'wri\\nter'     slow         0 B/s       2.00 MiB/s  0        50       -         1.5 ms     0.8",
            "83%   3       slow                     a/b",
            "33%   1       fast slow                inode 8",
            "3       running ██████████░░░░░░░░░░ 50%  10.0 MiB/s  1 min 5 s    a/b to slow",
            "q quit   ← → sort by: number",
        ] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
        let first = |shown: &str| shown.find("slow  ").unwrap() < shown.find("fast*").unwrap();
        assert!(!first(&shown));
        (view.order, view.scroll) = (Order::Written, 1);
        let shown = screen(&view, 110, 23);
        assert!(first(&shown) && !shown.contains("83%  ") && shown.contains("inode 8"), "{shown}");
    }

    #[test]
    fn eighty_columns_and_24_lines_have_room_for_all_that_matters() {
        let (mut status, mut history) = (status(), History::default());
        status.tiers[0].name = "the-fastest-of-all-tiers".into();
        status.tiers[0].busiest_threads[0].program = Some("a-long-programm".into());
        status.tiers[1].threads = 12;
        status.hottest[0].path = Some(format!("{}/the-end", "directory/".repeat(20)));
        history.see(&status, Instant::now());
        let mut jobs = [job("running")];
        jobs[0].text = format!("{} to slow", "x".repeat(80));
        let view = view(&status, Some(&jobs), &history);
        let shown = screen(&view, 80, 24);
        for words in [
            "3 open files, 4 inodes in memory, 0 removals pending  policy weighted",
            "the-fast…* read  ",
            "online     write ████░░░░ 100M     200M     1.5 ms 84 ms  0 thr.     25% 100 GiB",
            "12 thr.    25% 100 GiB",
            "77      a-long-programm the-faste… 0B",
            "3       running ████░░░░ 50%  10.0 MiB/s  1 min 5 s   xxxxx",
            "…",
            "/the-end",
            "q quit",
        ] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
        // A higher screen adds only empty lines.
        let lines =
            |shown: &str| shown.lines().filter(|line| !line.trim_matches([' ', '"']).is_empty()).count();
        assert_eq!(lines(&shown), lines(&screen(&view, 80, 60)), "{shown}");
        let narrow = text(&view, 80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    }

    #[test]
    fn workers_and_queues_have_their_load_since_the_look_before() {
        let runtime = |requests: u64| {
            let json = serde_json::json!({
                "policy": "dynamic", "scheduler": "blk-switch", "workers_max": 2,
                "workers": [{ "queues": 1, "latency": true, "requests": requests, "busy_ns": requests * 1_000_000,
                              "slept": 0, "asleep": false }],
                "queues": [{ "session": 4, "queue": 1, "class": "latency", "requests": requests,
                             "busy_ns": requests * 1_000_000, "waiting": 9 }],
                "sessions": [{ "session": 4, "pid": 4711, "uid": 0 }],
            });
            serde_json::from_value::<braid_contract::RuntimeStatus>(json).unwrap()
        };
        let (mut status, mut history) = (status(), History::default());
        let begun = Instant::now();
        status.runtime = Some(runtime(100));
        history.see(&status, begun);
        status.runtime = Some(runtime(600));
        history.see(&status, begun + Duration::from_secs(1));
        for has_tiers in [true, false] {
            if !has_tiers {
                status.tiers.clear();
            }
            let view = view(&status, None, &history);
            let shown = screen(&view, 110, 40);
            for words in [
                "0        latency         1        500         50%    1.0 ms    awake",
                "4.1      4711     latency         500         50%    1.0 ms    9",
            ] {
                assert!(shown.contains(words), "{words}\n{shown}");
            }
            assert_eq!(shown.contains("HOTTEST FILES"), has_tiers, "{shown}");
        }
    }

    #[test]
    fn no_size_is_too_small() {
        let (status, history) = (status(), History::default());
        let view = View { order: Order::Full, scroll: 9, ..view(&status, None, &history) };
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
