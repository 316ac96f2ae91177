//! The modules of a mounted stack. Their settings may change while it is mounted, and
//! modules may come and go: new modules replace the old ones, and take over the state of
//! those of the same name.

use crate::config::StackNode;
use crate::refusal::{Place, Refusal};
use arc_swap::ArcSwap;
use braid_contract::{
    Errno, FileSystem, FileSystemCapabilities, Reply, Request, Result, Served, Service, dispatch,
};
use braid_modules::{Member, State};
use std::sync::{Arc, Mutex, PoisonError};

/// The modules between the front end and the volume.
pub(crate) struct Modules {
    volume: Arc<dyn FileSystem>,
    top: Arc<Served<Top>>,
    /// What the front end was told when the stack was mounted.
    told: FileSystemCapabilities,
    /// A module that keeps open files to itself.
    fixed: Option<&'static str>,
    /// From the top down.
    members: Mutex<Vec<Arc<dyn Member>>>,
}

/// The file system that is at the top now. An operation that is under way
/// during a change ends in the old one.
struct Top(ArcSwap<Arc<dyn FileSystem>>);

impl Service for Top {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.0.load().capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let now = self.0.load();
        dispatch(&***now, request)
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
    /// What keeps a module from it.
    pub(crate) fn new(stack: &StackNode, volume: Arc<dyn FileSystem>) -> Result<Self> {
        let (top, members) = build(stack, &volume)?;
        let told = top.capabilities();
        let top = Arc::new(Served(Top(ArcSwap::from_pointee(top))));
        Ok(Self { volume, top, told, fixed: stack.fixed_module(), members: Mutex::new(members) })
    }

    /// The file system will not be used any more.
    pub(crate) fn end(&self) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().for_each(|member| member.end());
    }

    /// A module that keeps open files to itself, so that no other process can go on.
    pub(crate) fn fixed(&self) -> Option<&'static str> {
        self.fixed
    }

    /// The file system of the whole stack.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.top.clone()
    }

    /// The names of the modules from the top down, and what each has gathered.
    pub(crate) fn export(&self) -> Vec<(String, State)> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().map(|member| (member.name().to_owned(), member.export())).collect()
    }

    /// Takes over what the modules of another process had gathered.
    pub(crate) fn import(&self, states: &[(String, State)]) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        for (member, (name, state)) in members.iter().zip(states) {
            let imported =
                if member.name() == name { member.import(state) } else { Err(Errno::EINVAL.into()) };
            if let Err(error) = imported {
                tracing::error!(module = member.name(), %error, "what the module had gathered is lost");
            }
        }
    }

    /// Prepares the modules of another stack for this volume. Refuses, with the reason,
    /// what the kernel would have to know since the mount; `file` describes the stack.
    pub(crate) fn prepare(&self, stack: &StackNode, file: &Place) -> std::result::Result<Next, Refusal> {
        let refuse = |why: &str| Err(file.key("stack").refuse(why, "unmount, and mount with these modules"));
        if let Some(name) = stack.fixed_module().or(self.fixed) {
            return refuse(&format!(
                "modules can't be exchanged while the stack has '{name}', which keeps open files to itself"
            ));
        }
        let built = build(stack, &self.volume);
        let (top, members) = built.map_err(|error| {
            file.key("stack").refuse(error.to_string(), "put the settings of modules back")
        })?;
        let (told, now) = (self.told, top.capabilities());
        if now.flush_at_close && !told.flush_at_close {
            return refuse(
                "the kernel was told at the mount that closes need not wait for Braid, as they have to for \
                        'consistency'",
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
    pub(crate) fn exchange(&self, next: Next) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        self.top.0.0.store(Arc::new(next.top));
        // After the switch, so that state from meanwhile is not missed. Those that are
        // gone are asked too: what waits in them goes on.
        let mut states: Vec<(&str, State)> = members.iter().map(|old| (old.name(), old.export())).collect();
        for new in &next.members {
            let Some(at) = states.iter().position(|(name, _)| *name == new.name()) else { continue };
            let (_, state) = states.remove(at);
            if let Err(error) = new.import(&state) {
                tracing::error!(module = new.name(), %error, "what the module had gathered is lost");
            }
        }
        *members = next.members;
    }
}

/// A file system, and the modules that it is made of, from the top down.
type Built = (Arc<dyn FileSystem>, Vec<Arc<dyn Member>>);

/// The file system of a stack, and its modules from the top down. Those of frames that lie
/// on each other are one.
fn build(stack: &StackNode, volume: &Arc<dyn FileSystem>) -> Result<Built> {
    let StackNode::Wrapper { module, child } = stack else { return Ok((Arc::clone(volume), Vec::new())) };
    let (mut members, member) = match stack.frames() {
        Some((pipeline, rest)) => {
            let (below, members) = build(rest, volume)?;
            (members, braid_modules::wrap(pipeline, below)?)
        }
        None => {
            let (below, members) = build(child, volume)?;
            (members, module.wrap(below)?)
        }
    };
    members.insert(0, Arc::clone(&member));
    Ok((member, members))
}
