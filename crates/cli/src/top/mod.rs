//! `braid top`: what a volume is doing, live on a terminal or as text.

mod view;

use crate::args::TopArgs;
use crate::failure::{Failure, Result};
use crate::poll::Poller;
use crate::{locate, table};
use braid_ipc::protocol::{Job, Status};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use view::{Order, Peaks, View};

/// Columns of a frame that does not go to a terminal.
const TEXT_WIDTH: u16 = 120;
/// How long a key or a signal may wait for its effect.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let mount = match &args.mountpoint {
        Some(path) => locate::containing(path)?,
        None => locate::only()?,
    };
    let mut poller = Poller::new(mount)?;
    if args.json {
        return stream(&mut poller, args);
    }
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let Some(state) = State::ask(&mut poller)? else { return Ok(()) };
        return table::print(&once(&state));
    }
    live(&mut poller, args.interval)
}

/// What is shown: the objects of `braid status --json` and `braid job list
/// --json` in one.
#[derive(serde::Serialize)]
struct State {
    #[serde(flatten)]
    status: Status,
    /// `None` where they are not told.
    jobs: Option<Vec<Job>>,
}

impl State {
    /// `None` once the volume is unmounted.
    fn ask(poller: &mut Poller) -> Result<Option<Self>> {
        let Some(status) = poller.status()? else { return Ok(None) };
        Ok(Some(Self { status, jobs: poller.jobs() }))
    }
}

/// One object a line for each interval, or one.
fn stream(poller: &mut Poller, args: &TopArgs) -> Result<()> {
    loop {
        let Some(state) = State::ask(poller)? else { return Ok(()) };
        if !table::print_to_reader(&table::json_line(&state)?)? || args.once {
            return Ok(());
        }
        std::thread::sleep(args.interval);
    }
}

/// One frame as text.
fn once(State { status, jobs }: &State) -> String {
    let mut peaks = Peaks::default();
    peaks.see(status);
    let (order, jobs) = (Order::default(), jobs.as_deref());
    view::text(&View { status, jobs, peaks: &peaks, order, scroll: 0, keys: false }, TEXT_WIDTH)
}

/// What the keys have changed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    order: Order,
    scroll: usize,
    quit: bool,
}

impl Choice {
    fn press(&mut self, key: &KeyEvent, files: usize) {
        match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('q') | KeyCode::Esc, _) | (KeyCode::Char('c'), true) => self.quit = true,
            (KeyCode::Right, _) => self.order = self.order.step(true),
            (KeyCode::Left, _) => self.order = self.order.step(false),
            (KeyCode::Down, _) => self.scroll = (self.scroll + 1).min(files.saturating_sub(1)),
            (KeyCode::Up, _) => self.scroll = self.scroll.saturating_sub(1),
            _ => {}
        }
    }
}

fn live(poller: &mut Poller, interval: Duration) -> Result<()> {
    let asked_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&asked_to_end))
            .map_err(|error| no_terminal(&error))?;
    }
    let Some(state) = State::ask(poller)? else { return Ok(()) };
    // It has panics restore the terminal, too.
    let mut terminal = ratatui::try_init().map_err(|error| no_terminal(&error))?;
    let shown = show(&mut terminal, poller, state, interval, &asked_to_end);
    ratatui::restore();
    shown
}

/// Draws until somebody wants an end or the volume is unmounted.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    poller: &mut Poller,
    mut state: State,
    interval: Duration,
    asked_to_end: &AtomicBool,
) -> Result<()> {
    let (mut choice, mut peaks) = (Choice::default(), Peaks::default());
    let mut next = Instant::now() + interval;
    while !choice.quit && !asked_to_end.load(Ordering::Relaxed) {
        let State { status, jobs } = &state;
        peaks.see(status);
        choice.scroll = choice.scroll.min(status.hottest.len().saturating_sub(1));
        let (order, scroll) = (choice.order, choice.scroll);
        let view = View { status, jobs: jobs.as_deref(), peaks: &peaks, order, scroll, keys: true };
        let drawn = terminal.draw(|frame| view::draw(frame.area(), frame.buffer_mut(), &view));
        drawn.map_err(|error| no_terminal(&error))?;
        if let Some(key) = key(next.saturating_duration_since(Instant::now()).min(PATIENCE))? {
            choice.press(&key, status.hottest.len());
        }
        if Instant::now() >= next {
            let Some(fresh) = State::ask(poller)? else { return Ok(()) };
            state = fresh;
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

/// A key that is pressed within this time.
fn key(patience: Duration) -> Result<Option<KeyEvent>> {
    let event = event::poll(patience).and_then(|some| some.then(event::read).transpose());
    match event {
        Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => Ok(Some(key)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(no_terminal(&error)),
    }
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::new(format!("the terminal can't be used: {error}\n  help: print one frame: braid top --once"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_the_order_scroll_within_the_files_and_quit() {
        let mut choice = Choice::default();
        for code in
            [KeyCode::Right, KeyCode::Right, KeyCode::Left, KeyCode::Down, KeyCode::Down, KeyCode::Char('x')]
        {
            choice.press(&KeyEvent::new(code, KeyModifiers::NONE), 2);
        }
        assert_eq!(choice, Choice { order: Order::Name, scroll: 1, quit: false });
        choice.press(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE), 2);
        assert!(!choice.quit);
        choice.press(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 2);
        assert!(choice.quit);
    }
}
