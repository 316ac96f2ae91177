//! A module of a library, as one of a stack.

use crate::bounded::bounded;
use crate::instance::Instance;
use crate::library::Library;
use braid_contract::{Crash, Errno, Error, FileSystem, Layer, Result, Served};
use braid_modules::{Configured, Member, Pipeline, State};
use braid_sdk::{Below, crash_to, error_of};
use std::fmt;
use std::sync::Arc;

/// A library with settings, to be put on a child.
pub(crate) struct Configuration {
    pub(crate) library: Arc<Library>,
    /// As JSON.
    pub(crate) settings: String,
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.library.name()).field(&self.settings).finish()
    }
}

impl Configured for Configuration {
    fn name(&self) -> &str {
        self.library.name()
    }

    fn wrap(&self, child: Arc<dyn FileSystem>) -> Result<Arc<dyn Member>> {
        let (library, settings) = (Arc::clone(&self.library), self.settings.clone());
        let what = format!("making module {}", self.library.name());
        let create = move || library.create(&settings, Box::new(Below(child))).map_err(error_of);
        let module = bounded(&what, create)??;
        let through = Served(braid_sdk::Served(Arc::clone(&module)));
        Ok(Arc::new(Loaded { library: Arc::clone(&self.library), module, through }))
    }

    fn frames(&self) -> Option<Pipeline> {
        None
    }
}

/// A module of a library, on its child.
struct Loaded {
    /// Which is in force as long as it has modules.
    library: Arc<Library>,
    module: Arc<dyn Instance>,
    /// The same, as a file system.
    through: Served<braid_sdk::Served<Arc<dyn Instance>>>,
}

impl Layer for Loaded {
    fn child(&self) -> &dyn FileSystem {
        &self.through
    }
}

impl Member for Loaded {
    fn name(&self) -> &str {
        self.library.name()
    }

    fn is_loaded(&self) -> bool {
        true
    }

    fn export(&self) -> Result<State> {
        let module = Arc::clone(&self.module);
        let export = move || module.export().map_err(error_of);
        let (version, bytes) = bounded(&format!("the state of module {}", self.name()), export)??;
        Ok(State { version, bytes })
    }

    fn origin(&self) -> String {
        self.library.origin()
    }

    fn snapshot(&self) -> Result<Option<State>> {
        if self.library.exports_in_use() { self.export().map(Some) } else { Ok(None) }
    }

    fn import(&self, state: &State) -> Result<()> {
        let (module, state) = (Arc::clone(&self.module), state.clone());
        let import = move || module.import(state.version, &state.bytes).map_err(error_of);
        bounded(&format!("taking over the state of module {}", self.name()), import)?
    }

    fn repair(&self, after: Crash) -> Result<()> {
        let module = Arc::clone(&self.module);
        let repair = move || module.repair(&crash_to(after)).map_err(error_of);
        // Nothing may come to a module that is still being repaired.
        let late = |error: Error| Error::new(Errno::ENOTRECOVERABLE, error.to_string());
        bounded(&format!("repairing module {}", self.name()), repair).map_err(late)?
    }

    fn end(&self) {
        self.module.end();
    }
}
