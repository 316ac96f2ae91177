//! The modules of a mounted stack. Their settings may change while it is mounted, and
//! modules may come and go: new modules replace the old ones, and take over the state of
//! those of the same name. Where there are modules that come in libraries, operations are
//! held up for that (LabStor §3.3): those under way end first. Modules of frames have open files,
//! and stay; those above and below them can be replaced.

mod deck;

use crate::after_crash;
use crate::config::StackNode;
use crate::guard::{Exchanged, KeptState};
use crate::refusal::{Place, Refusal};
use braid_contract::{AfterCrash, Errno, FileSystem, ModuleStatus, OpenBefore, Result};
use braid_modules::{Member, State};
use deck::{Built, Deck, Now};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The modules between the front end and the volume.
pub(crate) struct Modules {
    /// From the top down: one, or those above and below the modules of frames.
    decks: Vec<Deck>,
    /// The modules of frames, which are one.
    frames: Option<Arc<dyn Member>>,
    /// Held while decks are exchanged, and by those who look at all modules.
    exchanging: Mutex<()>,
    /// How all of these went on after a crash; empty if none of them has seen one.
    after_crash: Mutex<Vec<AfterCrash>>,
    /// The keeper of their states.
    exchanged: OnceLock<Exchanged>,
}

/// How long operations under way may take before modules are exchanged.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

/// Modules that are to replace those of a mounted stack.
pub(crate) struct Next(Vec<Built>);

impl Modules {
    /// Puts the modules of `stack` on the volume.
    ///
    /// # Errors
    /// The reason why a module can't be put on it, with the module's place.
    pub(crate) fn new(stack: &StackNode, volume: Arc<dyn FileSystem>) -> std::result::Result<Self, Refusal> {
        let (decks, frames) = match stack.first_frames() {
            None => {
                let now = Now::above(deck::build(stack, &volume)?, None);
                (vec![Deck::new(volume, now)], None)
            }
            Some((place, pipeline, rest)) => {
                let now_below = Now::below(deck::build(rest, &volume)?);
                let below = Deck::new(volume, Arc::clone(&now_below));
                let frames = braid_modules::wrap(pipeline, below.file_system());
                let frames = frames.map_err(|error| deck::unfit(place, &error))?;
                let on: Arc<dyn FileSystem> = frames.clone();
                let now = Now::above(deck::build(stack, &on)?, Some(&now_below));
                (vec![Deck::new(on, now), below], Some(frames))
            }
        };
        let (exchanging, after_crash) = Default::default();
        Ok(Self { decks, frames, exchanging, after_crash, exchanged: OnceLock::new() })
    }

    /// The file system will not be used any more.
    pub(crate) fn end(&self) {
        self.present().iter().for_each(|member| member.end());
    }

    /// The file system of the whole stack.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.decks[0].file_system()
    }

    /// Whether there are none at this moment. A question after an exchange has returned gets the
    /// answer for the new modules.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_none() && self.decks[0].now().members.is_empty()
    }

    /// The modules from the top down, with their figures.
    pub(crate) fn status(&self) -> Vec<ModuleStatus> {
        let members = self.present();
        let mut after_crash = self.after_crash().clone().into_iter();
        let status = |(place, member): (u32, &Arc<dyn Member>)| ModuleStatus {
            after_crash: after_crash.next(),
            ..ModuleStatus::new(member.name(), place, member.figures())
        };
        (1..).zip(members.iter()).map(status).collect()
    }

    fn after_crash(&self) -> MutexGuard<'_, Vec<AfterCrash>> {
        // Each change is a single assignment.
        self.after_crash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The modules from the top down.
    pub(crate) fn present(&self) -> Vec<Arc<dyn Member>> {
        let _settled = self.exchanging.lock().unwrap_or_else(PoisonError::into_inner);
        let decks: Vec<Arc<Now>> = self.decks.iter().map(Deck::now).collect();
        let members =
            |decks: &[Arc<Now>]| decks.iter().flat_map(|now| now.members.clone()).collect::<Vec<_>>();
        let (above, below) = decks.split_at(1);
        [members(above), self.frames.iter().cloned().collect(), members(below)].concat()
    }

    /// Has exchanges reported from now on. Only the first call counts.
    pub(crate) fn tell_exchanges(&self, exchanged: Exchanged) {
        let _ = self.exchanged.set(exchanged);
    }

    /// After a crash, before the first operation: has modules take over the files that are `open`
    /// below and their kept states, then repair leftovers, the lowest first (LabStor §3.3,
    /// `StateRepair`).
    ///
    /// # Errors
    /// If a module says that going on would be wrong.
    pub(crate) fn go_on_after_crash(
        &self,
        open: &[OpenBefore],
        kept: &[KeptState],
        count: u64,
    ) -> Result<()> {
        let members = self.present();
        let files = open.iter().filter(|open| open.flags.is_some());
        let files: Vec<_> = files.map(|file| (file.handle, file.ino)).collect();
        members.iter().for_each(|member| member.take_open_files(&files));
        *self.after_crash() = after_crash::go_on(&members, kept, count)?;
        Ok(())
    }

    /// Another process is about to go on: see [`Member::prepare_to_give`].
    pub(crate) fn prepare_to_give(&self) {
        self.present().iter().for_each(|member| member.prepare_to_give());
    }

    /// The names of the modules from the top down, and the state of each, for another process. No
    /// operation is under way or comes any more.
    pub(crate) fn give(&self) -> Vec<(String, State)> {
        let state = |member: &Arc<dyn Member>| {
            member.give().unwrap_or_else(|error| {
                tracing::error!(module = member.name(), %error, "what the module had gathered is lost");
                State::default()
            })
        };
        self.present().iter().map(|member| (member.name().to_owned(), state(member))).collect()
    }

    /// Takes over the states of the modules of another process, before the first operation.
    ///
    /// # Errors
    /// If a module that needs its state can't.
    pub(crate) fn import(&self, states: &[(String, State)]) -> Result<()> {
        for (member, (name, state)) in self.present().iter().zip(states) {
            let imported =
                if member.name() == name { member.import(state) } else { Err(Errno::EINVAL.into()) };
            took_over(&**member, imported)?;
        }
        Ok(())
    }

    /// Prepares the modules of another stack for this volume; its modules of frames are as in the
    /// present one. Refuses, with the reason, capabilities that the kernel would have to know since
    /// the mount; `file` describes the stack.
    pub(crate) fn prepare(&self, stack: &StackNode, file: &Place) -> std::result::Result<Next, Refusal> {
        let below_frames = stack.first_frames().map(|(_, _, rest)| rest);
        let stacks: Vec<&StackNode> = [Some(stack), below_frames].into_iter().flatten().collect();
        if stacks.len() != self.decks.len() {
            let found = "modules of frames can't come or go while the stack is mounted";
            return Err(file.key("stack").refuse(found, "unmount, and mount with these modules"));
        }
        let built = self.decks.iter().zip(stacks).map(|(deck, stack)| deck.prepare(stack, file));
        Ok(Next(built.collect::<std::result::Result<_, _>>()?))
    }

    /// Replaces all modules but those of frames. One that was there, on the same side of these,
    /// gives its state to the next of its name. Returns how long operations were held up, in
    /// nanoseconds.
    ///
    /// # Errors
    /// The reason why the earlier modules go on.
    pub(crate) fn exchange(&self, Next(next): Next) -> std::result::Result<u64, String> {
        let exchanging = self.exchanging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = next.into_iter();
        let (above, below) = (next.next(), next.next().map(Now::below));
        let above = above.map(|built| Now::above(built, below.as_deref()));
        let after: Vec<Arc<Now>> = above.into_iter().chain(below).collect();
        let before: Vec<Arc<Now>> = self.decks.iter().map(Deck::now).collect();
        let switch = |to: &[Arc<Now>]| {
            self.decks.iter().zip(to).for_each(|(deck, now)| deck.replace(Arc::clone(now)));
        };
        let begun = Instant::now();
        let mut gates = Vec::new();
        // From the top down: operations under way above wait for those below, and modules above may
        // use what is below as they give their states.
        let handed_over = before.iter().enumerate().try_for_each(|(at, now)| {
            match now.hold_up(Instant::now() + DRAINED_WITHIN) {
                Some(gate) => gates.push(gate?),
                // At once, so that no state from meanwhile is missed.
                None => self.decks[at].replace(Arc::clone(&after[at])),
            }
            hand_over(&now.members, &after[at].members).map_err(|error| error.to_string())
        });
        if let Err(error) = handed_over {
            switch(&before);
            return Err(format!("nothing is changed: {error}"));
        }
        switch(&after);
        gates.iter_mut().for_each(|is_past| **is_past = true);
        let paused = if gates.is_empty() { Duration::ZERO } else { begun.elapsed() };
        drop(gates);
        drop(exchanging);
        // What waits in them goes on. Those of libraries have nothing under way.
        let old = before.iter().flat_map(|now| &now.members);
        old.filter(|member| !member.is_loaded()).for_each(|member| member.end());
        self.after_crash().clear();
        self.exchanged.get().into_iter().for_each(Exchanged::now);
        Ok(u64::try_from(paused.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Has modules take over the states of those of the same name. If it fails, the old ones go on as
/// they are.
fn hand_over(old: &[Arc<dyn Member>], new: &[Arc<dyn Member>]) -> Result<()> {
    let stays = |old: &&Arc<dyn Member>| new.iter().any(|new| new.name() == old.name());
    let states = old.iter().filter(stays).map(|old| Ok((old.name(), old.export()?)));
    let mut states = states.collect::<Result<Vec<(&str, State)>>>()?;
    for new in new {
        let Some(at) = states.iter().position(|(name, _)| *name == new.name()) else { continue };
        let (_, state) = states.remove(at);
        if state != State::default() {
            took_over(&**new, new.import(&state))?;
        }
    }
    Ok(())
}

/// A module may need its predecessor's state; others go on without.
fn took_over(module: &dyn Member, imported: Result<()>) -> Result<()> {
    match imported {
        Err(error) if module.needs_state() => Err(error.context(format!("module {}", module.name()))),
        Err(error) => {
            tracing::error!(module = module.name(), %error, "what the module had gathered is lost");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
