//! `braid top`: the activity of a volume, live on a terminal or as text.

mod grid;
mod history;
mod input;
mod view;
mod workers;

use crate::args::TopArgs;
use crate::failure::{Failure, Result};
use crate::locate;
use crate::poll::Poller;
use crate::table;
use braid_ipc::protocol::{Job, Status};
use history::History;
use input::{Input, Key, Waker, Woken};
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use view::{Order, View};

/// Width of a frame that does not go to a terminal.
const TEXT_WIDTH: u16 = 120;

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let mut poller = Poller::new(mount)?;
    if args.json {
        return stream(&mut poller, args);
    }
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let Some(state) = State::ask(&mut poller)? else { return Ok(()) };
        return table::print(&once(&state));
    }
    live(poller, args.interval)
}

/// The data of a frame: the objects of `braid status --json` and `braid job
/// list --json` in one.
#[derive(serde::Serialize)]
struct State {
    #[serde(flatten)]
    status: Status,
    /// `None` if this user may not see them.
    jobs: Option<Vec<Job>>,
}

impl State {
    /// `None` once the volume is unmounted.
    fn ask(poller: &mut Poller) -> Result<Option<Self>> {
        let Some(status) = poller.status()? else { return Ok(None) };
        if let Some((why, _)) = status.without_tiers().filter(|_| status.runtime.is_none()) {
            let advice = "braid status shows its figures";
            return Err(Failure::new(format!("{why}, and this one has no runtime\n  help: {advice}")));
        }
        Ok(Some(Self { status, jobs: poller.jobs() }))
    }
}

/// Prints one object per line for each interval, or just one.
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
    let mut history = History::default();
    history.see(status, Instant::now());
    let (order, jobs) = (Order::default(), jobs.as_deref());
    view::text(&View { status, jobs, history: &history, order, scroll: 0, keys: false }, TEXT_WIDTH)
}

/// The settings that keys change.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    order: Order,
    scroll: usize,
    quit: bool,
}

impl Choice {
    fn press(&mut self, key: Key, files: usize) {
        match key {
            Key::Quit => self.quit = true,
            Key::Right => self.order = self.order.step(true),
            Key::Left => self.order = self.order.step(false),
            Key::Down => self.scroll = (self.scroll + 1).min(files.saturating_sub(1)),
            Key::Up => self.scroll = self.scroll.saturating_sub(1),
        }
    }
}

/// Draws until the user ends it, the terminal is gone or the volume is
/// unmounted.
fn live(mut poller: Poller, interval: Duration) -> Result<()> {
    // Before the terminal is changed: a signal then ends it cleanly.
    let input = Input::open().map_err(|error| no_terminal(&error))?;
    let Some(state) = State::ask(&mut poller)? else { return Ok(()) };
    let states = ask_every(poller, interval, input.waker().map_err(|error| no_terminal(&error))?)?;
    // This also makes panics restore the terminal. If the terminal is gone,
    // dropping it would print an error there.
    let mut terminal = ManuallyDrop::new(ratatui::try_init().map_err(|error| no_terminal(&error))?);
    let shown = show(&mut terminal, &states, state, input);
    let _ = ratatui::try_restore();
    let _ = terminal.show_cursor();
    shown
}

/// Polls in a thread of its own, since a daemon may be slow, and wakes the
/// thread that waits for keys. It ends when the receiver is dropped.
fn ask_every(
    mut poller: Poller,
    interval: Duration,
    waker: Waker,
) -> Result<Receiver<Result<Option<State>>>> {
    let (sender, states) = mpsc::sync_channel(1);
    let ask = move || {
        loop {
            std::thread::sleep(interval);
            let state = State::ask(&mut poller);
            let last = !matches!(state, Ok(Some(_)));
            if sender.send(state).is_err() || last {
                waker.wake();
                return;
            }
            waker.wake();
        }
    };
    let started = std::thread::Builder::new().name("poll".into()).spawn(ask);
    started.map_err(|error| Failure::new(format!("no thread can be started: {error}")))?;
    Ok(states)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    states: &Receiver<Result<Option<State>>>,
    mut state: State,
    mut input: Input,
) -> Result<()> {
    let (mut choice, mut history) = (Choice::default(), History::default());
    history.see(&state.status, Instant::now());
    while !choice.quit {
        let State { status, jobs } = &state;
        choice.scroll = choice.scroll.min(status.hottest.len().saturating_sub(1));
        let (order, scroll) = (choice.order, choice.scroll);
        let view = View { status, jobs: jobs.as_deref(), history: &history, order, scroll, keys: true };
        let drawn = terminal.draw(|frame| view::draw(frame.area(), frame.buffer_mut(), &view));
        if let Err(error) = drawn {
            return if input.is_gone() { Ok(()) } else { Err(no_terminal(&error)) };
        }
        match input.wait().map_err(|error| no_terminal(&error))? {
            Woken::End => return Ok(()),
            Woken::Keys(keys) => keys.into_iter().for_each(|key| choice.press(key, status.hottest.len())),
            Woken::Other => {}
        }
        match states.try_recv() {
            Ok(fresh) => {
                let Some(fresh) = fresh? else { return Ok(()) };
                state = fresh;
                history.see(&state.status, Instant::now());
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
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
        for key in [Key::Right, Key::Right, Key::Left, Key::Down, Key::Down] {
            choice.press(key, 2);
        }
        assert_eq!(choice, Choice { order: Order::Name, scroll: 1, quit: false });
        choice.press(Key::Quit, 2);
        assert!(choice.quit);
    }
}
