//! The modules of a mounted stack. Their settings may change while it is
//! mounted: new modules with the new settings replace the old ones, and take
//! over their state.

use crate::config::StackNode;
use braid_contract::{
    Errno, FileSystem, FileSystemCapabilities, Reply, Request, Result, Served, Service, dispatch,
};
use braid_modules::{Member, State};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The modules between the front end and the volume.
pub(crate) struct Modules {
    volume: Arc<dyn FileSystem>,
    top: Arc<Served<Top>>,
    /// From the top down.
    members: Mutex<Vec<Arc<dyn Member>>>,
}

/// The file system that is at the top now. An operation that is under way
/// during a change ends in the old one.
struct Top(RwLock<Arc<dyn FileSystem>>);

impl Service for Top {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.now().capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        dispatch(&*self.now(), request)
    }
}

impl Top {
    fn now(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Modules {
    /// Puts the modules of `stack` on the volume.
    ///
    /// # Errors
    /// What keeps a module from it.
    pub(crate) fn new(stack: &StackNode, volume: Arc<dyn FileSystem>) -> Result<Self> {
        let (top, members) = build(stack, &volume)?;
        Ok(Self { volume, top: Arc::new(Served(Top(RwLock::new(top)))), members: Mutex::new(members) })
    }

    /// The file system will not be used any more.
    pub(crate) fn end(&self) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().for_each(|member| member.end());
    }

    /// The file system of the whole stack.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        // A volume without modules needs no indirection: there is nothing to
        // exchange.
        if members.is_empty() { Arc::clone(&self.volume) } else { self.top.clone() }
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

    /// Replaces all modules by those of `stack`, which are the same with other
    /// settings.
    ///
    /// # Errors
    /// What keeps a module from it; then nothing has changed.
    pub(crate) fn exchange(&self, stack: &StackNode) -> Result<()> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let (top, new) = build(stack, &self.volume)?;
        *self.top.0.0.write().unwrap_or_else(PoisonError::into_inner) = top;
        // After the switch, so that state from meanwhile is not missed.
        for (old, new) in members.iter().zip(&new) {
            if let Err(error) = new.import(&old.export()) {
                tracing::error!(module = new.name(), %error, "what the module had gathered is lost");
            }
        }
        *members = new;
        Ok(())
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
