//! The parts of a module: a name, settings, a file system over its child, and
//! state that it hands to its successor.

use crate::frames::Pipeline;
use braid_contract::{Crash, Errno, Error, Figure, FileSystem, HandleId, InodeId, Result};
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;

/// A module: a file system that wraps another one.
pub trait Module: FileSystem + Sized + 'static {
    /// The key that names the module in a stack file.
    const NAME: &'static str;

    /// Whether the module works on [frames](Self::frames).
    const IS_FRAMED: bool = false;

    /// The settings in a stack file, with `deny_unknown_fields`. Invalid values
    /// are refused while they are parsed (`try_from`), so that the refusal
    /// names their line.
    type Settings: DeserializeOwned + fmt::Debug + Send + Sync + 'static;

    /// Puts the module on top of `child`.
    ///
    /// # Errors
    /// The reason why it can't be there: `child` does not fit the settings.
    fn new(settings: &Self::Settings, child: Arc<dyn FileSystem>) -> Result<Self>;

    /// The settings of frames, if the module works on them. Modules of this kind that lie on each
    /// other are one [`Framed`](crate::frames::Framed).
    fn frames(_settings: &Self::Settings) -> Option<Pipeline> {
        None
    }

    /// Whether a sync that has returned may not have been done yet.
    fn puts_off_syncs(_settings: &Self::Settings) -> bool {
        false
    }

    /// No further operation comes: operations that wait here go on, without what they wait for.
    fn end(&self) {}

    /// The module's figures since it was made. Figures of one name have the same meaning in all
    /// modules. Cheap, and waits for no operation.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// The module's state, for its successor of the same name. A module without
    /// state exports the default. If the successor can't take it over, the module goes on: nothing
    /// may change by it.
    fn export(&self) -> State {
        State::default()
    }

    /// Takes over the state of a module of the same name. It is called once,
    /// and operations may be under way. `EINVAL` for an unknown version, or
    /// invalid bytes; then nothing has changed.
    fn import(&self, state: &State) -> Result<()> {
        state.expect_version(State::default().version)
    }

    /// The state that the next process would [import](Self::import) if this one crashed; `None` of
    /// a module that keeps none for that. It is called once a second, while operations are under
    /// way, and changes nothing.
    fn snapshot(&self) -> Option<State> {
        None
    }

    /// Repairs the leftovers of a crash of the process, after [`import`](Self::import) and before
    /// the first operation, when all modules below have done so (LabStor §3.3, `StateRepair`).
    ///
    /// # Errors
    /// If it can't: this is reported, and the module goes on; with `ENOTRECOVERABLE`, which says
    /// that this would be wrong, the mount does not.
    fn repair(&self, _after: Crash) -> Result<()> {
        Ok(())
    }
}

/// Exported state of a module: bytes in the format of its version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Version of the format of the bytes, each module's own. 0 is a module
    /// without state.
    pub version: u32,
    /// The state.
    pub bytes: Vec<u8>,
}

impl State {
    /// Refuses a state of another version.
    pub(crate) fn expect_version(&self, version: u32) -> Result<()> {
        if self.version == version {
            return Ok(());
        }
        let message = format!("a state of version {}, expected version {version}", self.version);
        Err(Error::new(Errno::EINVAL, message))
    }
}

/// A module in a running stack.
pub trait Member: FileSystem {
    /// [`Module::NAME`]
    fn name(&self) -> &str;

    /// Whether it comes in a library: it gives its state away, and takes one over, only
    /// while no operation is under way.
    fn is_loaded(&self) -> bool {
        false
    }

    /// Whether it can't go on without the state of the module before it.
    fn needs_state(&self) -> bool {
        self.is_loaded()
    }

    /// [`Module::figures`]; none of a loaded module.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// [`Module::export`]
    ///
    /// # Errors
    /// If a loaded module fails to export it.
    fn export(&self) -> Result<State>;

    /// Another process is about to go on. Does beforehand, while operations are under way, what
    /// would take [`give`](Self::give) long.
    fn prepare_to_give(&self) {}

    /// The [state](Self::export), for another process. No operation is under way or comes any more,
    /// and the module leaves what is below it alone from now on.
    ///
    /// # Errors
    /// As for [`export`](Self::export).
    fn give(&self) -> Result<State> {
        self.export()
    }

    /// [`Module::import`]
    fn import(&self, state: &State) -> Result<()>;

    /// The mark of the module's code, which other versions don't have: only the same code takes a
    /// [snapshot](Self::snapshot) over.
    fn origin(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// [`Module::snapshot`]
    ///
    /// # Errors
    /// If a loaded module can't give it; `EAGAIN` if it does not come back.
    fn snapshot(&self) -> Result<Option<State>> {
        Ok(None)
    }

    /// After a crash of the process before, and before [`repair`](Self::repair): these files are
    /// open below.
    fn take_open_files(&self, _open: &[(HandleId, InodeId)]) {}

    /// [`Module::repair`]
    fn repair(&self, _after: Crash) -> Result<()> {
        Ok(())
    }

    /// [`Module::end`]
    fn end(&self);
}

impl<M: Module> Member for M {
    fn name(&self) -> &str {
        M::NAME
    }

    fn figures(&self) -> Vec<Figure> {
        Module::figures(self)
    }

    fn export(&self) -> Result<State> {
        Ok(Module::export(self))
    }

    fn import(&self, state: &State) -> Result<()> {
        Module::import(self, state)
    }

    fn snapshot(&self) -> Result<Option<State>> {
        Ok(Module::snapshot(self))
    }

    fn repair(&self, after: Crash) -> Result<()> {
        Module::repair(self, after)
    }

    fn end(&self) {
        Module::end(self);
    }
}

/// A module with its settings, to be put on a child.
pub trait Configured: fmt::Debug + Send + Sync {
    /// [`Module::NAME`]
    fn name(&self) -> &str;

    /// [`Module::new`]
    fn wrap(&self, child: Arc<dyn FileSystem>) -> Result<Arc<dyn Member>>;

    /// [`Module::frames`]
    fn frames(&self) -> Option<Pipeline>;

    /// [`Module::puts_off_syncs`]
    fn puts_off_syncs(&self) -> bool {
        false
    }
}

/// `settings` as those of the module `M`.
pub(crate) fn configured<M: Module>(settings: M::Settings) -> Arc<dyn Configured> {
    Arc::new(With::<M>(settings))
}

struct With<M: Module>(M::Settings);

impl<M: Module> Configured for With<M> {
    fn name(&self) -> &str {
        M::NAME
    }

    fn wrap(&self, child: Arc<dyn FileSystem>) -> Result<Arc<dyn Member>> {
        Ok(Arc::new(M::new(&self.0, child)?))
    }

    fn frames(&self) -> Option<Pipeline> {
        M::frames(&self.0)
    }

    fn puts_off_syncs(&self) -> bool {
        M::puts_off_syncs(&self.0)
    }
}

impl<M: Module> fmt::Debug for With<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(M::NAME).field(&self.0).finish()
    }
}
