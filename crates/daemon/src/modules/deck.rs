//! Modules that lie on each other and are replaced together, on a file system that stays: the one
//! at the bottom, or the modules of frames. [`super`] alone uses this.

use crate::config::StackNode;
use crate::refusal::{Place, Refusal};
use arc_swap::ArcSwap;
use braid_contract::{Error, FileSystem, FileSystemCapabilities, Reply, Request, Served, Service, dispatch};
use braid_modules::Member;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::Arc;
use std::time::Instant;

/// A file system, and the modules that it is made of, from the top down.
pub(super) type Built = (Arc<dyn FileSystem>, Vec<Arc<dyn Member>>);

/// Modules that are replaced together, and the place of their top in the stack.
pub(super) struct Deck {
    below: Arc<dyn FileSystem>,
    top: Arc<Served<Top>>,
    /// The capabilities that were seen above when the stack was mounted.
    told: FileSystemCapabilities,
}

/// The file system that is at the top of a deck now. An operation that is under way
/// during a change ends in the old one.
struct Top(ArcSwap<Now>);

/// A file system, and a gate if operations have to be held up to replace it.
pub(super) struct Now {
    top: Arc<dyn FileSystem>,
    /// Its modules, from the top down.
    pub(super) members: Vec<Arc<dyn Member>>,
    /// Frames are above it, which may begin an operation within another one.
    is_below: bool,
    /// Operations read it; it is written, and then true, when another one has replaced this.
    is_past: Option<RwLock<bool>>,
}

impl Now {
    /// The top of the whole stack. Where what is below frames has a gate, this has one too: what is
    /// under way there ends soon then.
    pub(super) fn above(built: Built, below: Option<&Self>) -> Arc<Self> {
        let is_gated = has_loaded(&built.1) || below.is_some_and(|below| below.is_past.is_some());
        Self::of(built, is_gated, false)
    }

    /// The file system below frames.
    pub(super) fn below(built: Built) -> Arc<Self> {
        let is_gated = has_loaded(&built.1);
        Self::of(built, is_gated, true)
    }

    fn of((top, members): Built, is_gated: bool, is_below: bool) -> Arc<Self> {
        Arc::new(Self { top, members, is_below, is_past: is_gated.then(RwLock::default) })
    }

    /// Holds operations up if it has to; they go on when the lock is dropped, in what is at the
    /// top then if it is set to true.
    ///
    /// # Errors
    /// Those under way do not end in time.
    pub(super) fn hold_up(&self, until: Instant) -> Option<Result<RwLockWriteGuard<'_, bool>, String>> {
        let hangs = || "operations under way do not end, perhaps since a module or a tier hangs".to_owned();
        self.is_past.as_ref().map(|gate| gate.try_write_until(until).ok_or_else(hangs))
    }
}

/// Whether any of these modules comes in a library.
fn has_loaded(members: &[Arc<dyn Member>]) -> bool {
    members.iter().any(|member| member.is_loaded())
}

impl Service for Top {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.0.load().top.capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        loop {
            let now = self.0.load();
            let Some(gate) = &now.is_past else { return dispatch(&*now.top, request) };
            // One from within another one does not wait for an exchange that waits for that.
            let is_past = if now.is_below { gate.read_recursive() } else { gate.read() };
            if !*is_past {
                return dispatch(&*now.top, request);
            }
        }
    }
}

impl Deck {
    pub(super) fn new(below: Arc<dyn FileSystem>, now: Arc<Now>) -> Self {
        let told = now.top.capabilities();
        Self { below, top: Arc::new(Served(Top(ArcSwap::new(now)))), told }
    }

    pub(super) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.top.clone()
    }

    /// What is there at this moment. A question after an exchange has returned gets the new ones.
    pub(super) fn now(&self) -> Arc<Now> {
        self.top.0.0.load_full()
    }

    pub(super) fn replace(&self, now: Arc<Now>) {
        self.top.0.0.store(now);
    }

    /// Puts other modules on the file system below, for it to be replaced by. Refuses, with the
    /// reason, capabilities that the kernel would have to know since the mount; `file` describes
    /// the stack.
    pub(super) fn prepare(&self, stack: &StackNode, file: &Place) -> Result<Built, Refusal> {
        let refuse = |why: &str| Err(file.key("stack").refuse(why, "unmount, and mount with these modules"));
        let built = build(stack, &self.below)?;
        let (told, now) = (self.told, built.0.capabilities());
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
        Ok(built)
    }
}

/// The modules of a stack down to those of frames or the bottom, on what is there.
pub(super) fn build(stack: &StackNode, below: &Arc<dyn FileSystem>) -> Result<Built, Refusal> {
    let StackNode::Wrapper { module, place, child } = stack else {
        return Ok((Arc::clone(below), Vec::new()));
    };
    if module.frames().is_some() {
        return Ok((Arc::clone(below), Vec::new()));
    }
    let (below, mut members) = build(child, below)?;
    let member = module.wrap(below).map_err(|error| unfit(place, &error))?;
    members.insert(0, Arc::clone(&member));
    Ok((member, members))
}

/// Refuses a module at this place for an error when it was put on what is below.
pub(super) fn unfit(place: &Place, error: &Error) -> Refusal {
    let advice = "docs/configuration.md has what each module needs of what is below it";
    place.refuse(error.to_string(), advice).about(error.errno())
}
