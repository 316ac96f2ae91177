//! Libraries with modules: trusted ones are loaded, others have processes of their own.

use crate::bounded::bounded;
use crate::instance::Instance;
use crate::isolated::{IsolatedLibrary, IsolatedModule};
use crate::trust;
use braid_sdk::abi::{Failure, ModuleLibrary, Target, module_image};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use twox_hash::XxHash3_128;

/// The largest library, in bytes: it is copied to memory.
const SIZE_MAX: u64 = 256 << 20;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) code: Code,
    /// The mark of its code, which no other has, of the same version or not.
    sum: u128,
}

/// Where the code of a library runs.
#[derive(Debug)]
pub(crate) enum Code {
    /// Its code runs in this process.
    Trusted(Arc<ModuleLibrary>),
    /// It does not, for a reason.
    Isolated(Arc<IsolatedLibrary>, String),
}

impl Library {
    /// # Errors
    /// The reason why the file is none, or why it is not trusted, if it has to be.
    pub(crate) fn open(file: &Path, trusted_only: bool) -> Result<Self, String> {
        let path = file.to_owned();
        // Its file system may not answer.
        let (image, owner, distrust) =
            bounded("reading it", move || read(&path)).map_err(|error| error.to_string())??;
        let sum = sum_of(&image).map_err(|error| error.to_string())?;
        let code = match distrust {
            None => ModuleLibrary::load(&image).map(|library| Code::Trusted(Arc::new(library)))?,
            Some(why) if trusted_only => {
                return Err(format!(
                    "it is not trusted ({why}), and only a mount runs it in a process of its own"
                ));
            }
            Some(why) => Code::Isolated(Arc::new(IsolatedLibrary::open(image, owner)?), why),
        };
        Ok(Self { code, sum })
    }

    /// Its version, and the mark that other code of this version doesn't have.
    pub(crate) fn origin(&self) -> String {
        format!("{} {:032x}", self.version(), self.sum)
    }

    /// Whether its modules' state may be asked for while operations are under way.
    pub(crate) fn exports_in_use(&self) -> bool {
        match &self.code {
            Code::Trusted(library) => library.exports_in_use(),
            Code::Isolated(library, _) => library.exports_in_use,
        }
    }

    /// The module's name.
    pub(crate) fn name(&self) -> &str {
        match &self.code {
            Code::Trusted(library) => library.name(),
            Code::Isolated(library, _) => &library.name,
        }
    }

    /// The module's version.
    pub(crate) fn version(&self) -> &str {
        match &self.code {
            Code::Trusted(library) => library.version(),
            Code::Isolated(library, _) => &library.version,
        }
    }

    /// The reason why it is not trusted.
    pub(crate) fn distrust(&self) -> Option<&str> {
        match &self.code {
            Code::Trusted(_) => None,
            Code::Isolated(_, why) => Some(why),
        }
    }

    /// Whether these settings, as JSON, are right.
    pub(crate) fn check(&self, settings: &str) -> Result<(), String> {
        match &self.code {
            Code::Trusted(library) => library.check(settings),
            Code::Isolated(library, _) => library.check(settings),
        }
    }

    /// Makes a module on a child.
    pub(crate) fn create(
        &self,
        settings: &str,
        child: Box<dyn Target>,
    ) -> Result<Arc<dyn Instance>, Failure> {
        Ok(match &self.code {
            Code::Trusted(library) => Arc::new(library.create(settings, child)?),
            Code::Isolated(library, _) => {
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

fn sum_of(image: &File) -> io::Result<u128> {
    let (mut sum, mut piece, mut at) = (XxHash3_128::new(), vec![0; 1 << 16], 0);
    loop {
        // The image is loaded from its start.
        match image.read_at(&mut piece, at)? {
            0 => return Ok(sum.finish_128()),
            len => {
                sum.write(&piece[..len]);
                at += len as u64;
            }
        }
    }
}
