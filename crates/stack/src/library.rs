//! Libraries with modules: trusted ones are loaded, others have processes of their own.

use crate::bounded::bounded;
use crate::isolated::{IsolatedLibrary, IsolatedModule};
use crate::trust;
use braid_sdk::abi::{Failure, LoadedModule, ModuleLibrary, Target, module_image};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The largest library, in bytes: it is copied to memory.
const SIZE_MAX: u64 = 256 << 20;

/// A library.
#[derive(Debug)]
pub(crate) enum Library {
    /// Its code runs in this process.
    Trusted(Arc<ModuleLibrary>),
    /// It does not, for a reason.
    Isolated(Arc<IsolatedLibrary>, String),
}

impl Library {
    /// # Errors
    /// Why the file is none.
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        let path = file.to_owned();
        // Its file system may not answer.
        let (image, owner, distrust) =
            bounded("reading it", move || read(&path)).map_err(|error| error.to_string())??;
        match distrust {
            None => ModuleLibrary::load(&image).map(|library| Self::Trusted(Arc::new(library))),
            Some(why) => {
                let library = IsolatedLibrary::open(image, owner)?;
                Ok(Self::Isolated(Arc::new(library), why))
            }
        }
    }

    /// The module's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Trusted(library) => library.name(),
            Self::Isolated(library, _) => &library.name,
        }
    }

    /// The module's version.
    pub(crate) fn version(&self) -> &str {
        match self {
            Self::Trusted(library) => library.version(),
            Self::Isolated(library, _) => &library.version,
        }
    }

    /// Why it is not trusted.
    pub(crate) fn distrust(&self) -> Option<&str> {
        match self {
            Self::Trusted(_) => None,
            Self::Isolated(_, why) => Some(why),
        }
    }

    /// Whether these settings, as JSON, are right.
    pub(crate) fn check(&self, settings: &str) -> Result<(), String> {
        match self {
            Self::Trusted(library) => library.check(settings),
            Self::Isolated(library, _) => library.check(settings),
        }
    }

    /// Makes a module on a child.
    pub(crate) fn create(
        &self,
        settings: &str,
        child: Box<dyn Target>,
    ) -> Result<Arc<dyn Instance>, Failure> {
        Ok(match self {
            Self::Trusted(library) => Arc::new(library.create(settings, child)?),
            Self::Isolated(library, _) => {
                Arc::new(IsolatedModule::create(Arc::clone(library), settings, child)?)
            }
        })
    }
}

/// A copy of a file in memory, its owner, and why it is not trusted.
fn read(path: &Path) -> Result<(File, u32, Option<String>), String> {
    let found = trust::find(path)?;
    let image = module_image(&found.file, SIZE_MAX);
    let image = image.map_err(|error| format!("it can't be copied to memory: {error}"))?;
    Ok((image, found.owner, found.distrust))
}

/// A module that was made.
pub(crate) trait Instance: Target {
    /// Its state and the version of that, for its successor; no call is under way.
    fn export(&self) -> Result<(u32, Vec<u8>), Failure>;

    /// Takes over the state of a module of the same name.
    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure>;

    /// It will not be used any more.
    fn end(&self);
}

impl Instance for LoadedModule {
    fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        Self::export(self)
    }

    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        Self::import(self, version, state)
    }

    fn end(&self) {
        Self::end(self);
    }
}

impl Instance for IsolatedModule {
    fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        Self::export(self)
    }

    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        Self::import(self, version, state)
    }

    fn end(&self) {
        Self::end(self);
    }
}
