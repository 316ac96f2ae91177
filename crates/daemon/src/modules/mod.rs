//! The modules of a mounted stack. Their settings may change while it is mounted, and
//! modules may come and go: new modules replace the old ones, and take over the state of
//! those of the same name. Where there are modules that come in libraries, operations are
//! held up for that (LabStor §3.3): those under way end first.

use crate::after_crash;
use crate::config::StackNode;
use crate::guard::{Exchanged, KeptState};
use crate::refusal::{Place, Refusal};
use arc_swap::ArcSwap;
use braid_contract::{
    AfterCrash, Errno, Error, FileSystem, FileSystemCapabilities, HandleId, InodeId, ModuleStatus, Reply,
    Request, Result, Served, Service, dispatch,
};
use braid_modules::{Member, State};
use parking_lot::RwLock;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The modules between the front end and the volume.
pub(crate) struct Modules {
    volume: Arc<dyn FileSystem>,
    top: Arc<Served<Top>>,
    /// The capabilities that the front end got when the stack was mounted.
    told: FileSystemCapabilities,
    /// A module that keeps open files to itself.
    fixed: Option<String>,
    /// From the top down.
    members: Mutex<Vec<Arc<dyn Member>>>,
    /// How these went on after a crash; empty if none of them has seen one.
    after_crash: Mutex<Vec<AfterCrash>>,
    /// The keeper of their states.
    exchanged: OnceLock<Exchanged>,
}

/// How long operations under way may take before modules are exchanged.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

/// The file system that is at the top now. An operation that is under way
/// during a change ends in the old one.
struct Top(ArcSwap<Now>);

/// A file system, and a gate if operations have to be held up to replace it.
struct Now {
    top: Arc<dyn FileSystem>,
    /// It is the volume itself.
    is_bare: bool,
    /// Operations read it; it is written, and then true, when another one has replaced this.
    is_past: Option<RwLock<bool>>,
}

impl Now {
    fn of((top, members): (Arc<dyn FileSystem>, &[Arc<dyn Member>])) -> Self {
        let is_past = members.iter().any(|member| member.is_loaded()).then(RwLock::default);
        Self { top, is_bare: members.is_empty(), is_past }
    }
}

impl Service for Top {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.0.load().top.capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        loop {
            let now = self.0.load();
            let Some(gate) = &now.is_past else { return dispatch(&*now.top, request) };
            let is_past = gate.read();
            if !*is_past {
                return dispatch(&*now.top, request);
            }
        }
    }
}

/// Modules that are to replace those of a mounted stack.
pub(crate) struct Next {
    top: Arc<dyn FileSystem>,
    members: Vec<Arc<dyn Member>>,
}

impl Modules {
    /// Puts the modules of `stack` on the volume.
    ///
    /// # Errors
    /// The reason why a module can't be put on it, with the module's place.
    pub(crate) fn new(stack: &StackNode, volume: Arc<dyn FileSystem>) -> std::result::Result<Self, Refusal> {
        let (top, members) = build(stack, &volume)?;
        let told = top.capabilities();
        let top = Arc::new(Served(Top(ArcSwap::from_pointee(Now::of((top, &members))))));
        let fixed = stack.fixed_module().map(str::to_owned);
        let (members, after_crash) = (Mutex::new(members), Mutex::default());
        Ok(Self { volume, top, told, fixed, members, after_crash, exchanged: OnceLock::new() })
    }

    /// The file system will not be used any more.
    pub(crate) fn end(&self) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().for_each(|member| member.end());
    }

    /// A module that keeps open files to itself, so that modules can't be exchanged.
    pub(crate) fn fixed(&self) -> Option<&str> {
        self.fixed.as_deref()
    }

    /// The file system of the whole stack.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.top.clone()
    }

    /// Whether there are none at this moment. A question after an exchange has returned gets the
    /// answer for the new modules.
    pub(crate) fn is_empty(&self) -> bool {
        self.top.0.0.load().is_bare
    }

    /// The modules from the top down, with their figures.
    pub(crate) fn status(&self) -> Vec<ModuleStatus> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        open: &[(HandleId, InodeId)],
        kept: &[KeptState],
        count: u64,
    ) -> Result<()> {
        let members = self.present();
        members.iter().for_each(|member| member.take_open_files(open));
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
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |member: &Arc<dyn Member>| {
            member.give().unwrap_or_else(|error| {
                tracing::error!(module = member.name(), %error, "what the module had gathered is lost");
                State::default()
            })
        };
        members.iter().map(|member| (member.name().to_owned(), state(member))).collect()
    }

    /// Takes over the states of the modules of another process, before the first operation.
    ///
    /// # Errors
    /// If a module that needs its state can't.
    pub(crate) fn import(&self, states: &[(String, State)]) -> Result<()> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        for (member, (name, state)) in members.iter().zip(states) {
            let imported =
                if member.name() == name { member.import(state) } else { Err(Errno::EINVAL.into()) };
            took_over(&**member, imported)?;
        }
        Ok(())
    }

    /// Prepares the modules of another stack for this volume. Refuses, with the reason,
    /// capabilities that the kernel would have to know since the mount; `file` describes the stack.
    pub(crate) fn prepare(&self, stack: &StackNode, file: &Place) -> std::result::Result<Next, Refusal> {
        let refuse = |why: &str| Err(file.key("stack").refuse(why, "unmount, and mount with these modules"));
        if let Some(name) = stack.fixed_module().or(self.fixed()) {
            return Err(refuse_fixed(name, file));
        }
        let (top, members) = build(stack, &self.volume)?;
        let (told, now) = (self.told, top.capabilities());
        if now.flush_at_close && !told.flush_at_close {
            return refuse(
                "the kernel was told at the mount that closes need not wait for Braid, as they have to for \
                        'consistency'",
            );
        }
        if now.writes_through && !told.writes_through {
            return refuse(
                "the kernel may keep writes back since the mount, as it may not for 'consistency' in the mode \
                 'strict'",
            );
        }
        if (now.cache_ttl, now.rename_modes, now.posix_acl)
            != (told.cache_ttl, told.rename_modes, told.posix_acl)
        {
            return refuse("the kernel was told other things at the mount of what it may cache and do");
        }
        Ok(Next { top, members })
    }

    /// Replaces all modules. One that was there gives its state to the next of its name.
    /// Returns how long operations were held up, in nanoseconds.
    ///
    /// # Errors
    /// The reason why the earlier modules go on.
    pub(crate) fn exchange(&self, next: Next) -> std::result::Result<u64, String> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.top.0.0.load_full();
        let after = Arc::new(Now::of((next.top, &next.members)));
        let begun = Instant::now();
        let paused_ns = match &before.is_past {
            None => {
                self.top.0.0.store(after);
                // After the switch, so that state from meanwhile is not missed.
                hand_over(&members, &next.members).map_err(|error| error.to_string())?;
                0
            }
            Some(gate) => {
                let Some(mut is_past) = gate.try_write_for(DRAINED_WITHIN) else {
                    let message = "operations under way do not end, perhaps since a module or a tier hangs";
                    return Err(format!("nothing is changed: {message}"));
                };
                hand_over(&members, &next.members).map_err(|error| format!("nothing is changed: {error}"))?;
                self.top.0.0.store(after);
                *is_past = true;
                u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
        };
        let old = std::mem::replace(&mut *members, next.members);
        drop(members);
        // What waits in them goes on. Those of libraries have nothing under way.
        old.iter().filter(|member| !member.is_loaded()).for_each(|member| member.end());
        self.after_crash().clear();
        self.exchanged.get().into_iter().for_each(Exchanged::now);
        Ok(paused_ns)
    }
}

/// Refuses to exchange modules where one stays as long as the stack is mounted.
pub(crate) fn refuse_fixed(name: &str, file: &Place) -> Refusal {
    let why =
        format!("modules can't be exchanged while the stack has '{name}', which keeps open files to itself");
    file.key("stack").refuse(why, "unmount, and mount with these modules")
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

/// A file system, and the modules that it is made of, from the top down.
type Built = (Arc<dyn FileSystem>, Vec<Arc<dyn Member>>);

/// The file system of a stack, and its modules from the top down. Those of frames that lie
/// on each other are one.
fn build(stack: &StackNode, volume: &Arc<dyn FileSystem>) -> std::result::Result<Built, Refusal> {
    let StackNode::Wrapper { module, place, child } = stack else {
        return Ok((Arc::clone(volume), Vec::new()));
    };
    let unfit = |error: Error| {
        let advice = "docs/configuration.md has what each module needs of what is below it";
        place.refuse(error.to_string(), advice).about(error.errno())
    };
    let (mut members, member) = match stack.frames() {
        Some((pipeline, rest)) => {
            let (below, members) = build(rest, volume)?;
            (members, braid_modules::wrap(pipeline, below).map_err(unfit)?)
        }
        None => {
            let (below, members) = build(child, volume)?;
            (members, module.wrap(below).map_err(unfit)?)
        }
    };
    members.insert(0, Arc::clone(&member));
    Ok((member, members))
}
