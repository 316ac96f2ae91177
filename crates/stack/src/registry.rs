//! Modules by name: those in force, and those available.

use crate::library::Library;
use crate::loaded::Configuration;
use crate::repositories::Repositories;
use braid_modules::Configured;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Modules in libraries, by name. A library is in force as long as a stack has it, even if its file
/// changes or goes, until it is [exchanged](Self::with).
#[derive(Debug, Default)]
pub struct Registry {
    in_force: Mutex<BTreeMap<String, InForce>>,
    /// Libraries that are not trusted are refused: this is not the program that runs those in
    /// processes of their own.
    trusted_only: bool,
}

#[derive(Clone, Debug)]
struct InForce {
    /// It lives in the modules made from it.
    library: Weak<Library>,
    /// The same, until a module was made.
    chosen: Option<Arc<Library>>,
    version: String,
    file: PathBuf,
}

impl InForce {
    fn of(library: &Arc<Library>, file: PathBuf) -> Self {
        let (version, library) = (library.version().to_owned(), Arc::downgrade(library));
        Self { library, chosen: None, version, file }
    }

    fn is_alive(&self) -> bool {
        self.library.strong_count() > 0
    }
}

/// A module that a stack file may name.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// Its version, or why it can't be loaded.
    pub version: Result<String, String>,
    /// Why it runs in a process of its own, if it does.
    pub isolated: Option<String>,
}

impl Registry {
    /// The same without libraries that are not trusted, for any program: only `braid` runs those
    /// in processes of their own.
    #[must_use]
    pub fn trusted_only() -> Self {
        Self { trusted_only: true, ..Self::default() }
    }

    fn in_force(&self) -> MutexGuard<'_, BTreeMap<String, InForce>> {
        // Each change is a single insertion.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all modules that are in a repository.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.files().into_keys().collect();
        let repositories = Repositories::read().ok();
        for dir in repositories.iter().flat_map(Repositories::all) {
            names.extend(files(dir).into_iter().map(|(name, _)| name));
        }
        names.sort();
        names.dedup();
        names
    }

    /// All modules that are in a repository; of several of a name, the first counts.
    ///
    /// # Errors
    /// If the list of repositories can't be read.
    pub fn known(&self) -> Result<Vec<Known>, String> {
        let mut known = Vec::new();
        for dir in Repositories::read()?.all() {
            for (name, file) in files(dir) {
                if !known.iter().any(|known: &Known| known.name == name) {
                    let library = load(&file, self.trusted_only);
                    let isolated =
                        library.as_ref().ok().and_then(|library| library.distrust().map(str::to_owned));
                    let version = library.map(|library| library.version().to_owned());
                    known.push(Known { name, file, version, isolated });
                }
            }
        }
        Ok(known)
    }

    /// The module of this name with settings (as JSON); `None` if there is none in any repository.
    pub fn configure(&self, name: &str, settings: &str) -> Option<Result<Arc<dyn Configured>, String>> {
        let library = match self.library(name)? {
            Ok(library) => library,
            Err(why) => return Some(Err(why)),
        };
        let settings = settings.to_owned();
        Some(
            library
                .check(&settings)
                .map(|()| Arc::new(Configuration { library, settings }) as Arc<dyn Configured>),
        )
    }

    /// The library in force of this name; the first that a repository has, if there is none yet.
    fn library(&self, name: &str) -> Option<Result<Arc<Library>, String>> {
        let in_force = |in_force: &mut InForce| in_force.chosen.take().or(in_force.library.upgrade());
        if let Some(library) = self.in_force().get_mut(name).and_then(in_force) {
            return Some(Ok(library));
        }
        let file = match find(name) {
            Ok(file) => file?,
            Err(why) => return Some(Err(why)),
        };
        let library = match load(&file, self.trusted_only) {
            Ok(library) => Arc::new(library),
            Err(why) => return Some(Err(format!("{}: {why}", file.to_string_lossy()))),
        };
        self.in_force().insert(name.to_owned(), InForce::of(&library, file));
        Some(Ok(library))
    }

    /// The same with another library for the module `name`: that of `file`, or of the first
    /// repository that has one now.
    ///
    /// # Errors
    /// The reason why it can't be that.
    pub fn with(&self, name: &str, file: Option<&Path>) -> Result<Self, String> {
        let file = match file {
            Some(file) => std::path::absolute(file).map_err(|error| error.to_string())?,
            None => find(name)?.ok_or("no repository has it: braid module repo list")?,
        };
        let library =
            load_any(&file, self.trusted_only).map_err(|why| format!("{}: {why}", file.to_string_lossy()))?;
        if library.name() != name {
            return Err(format!("{} is module {}", file.to_string_lossy(), library.name()));
        }
        let (mut in_force, library) = (self.in_force().clone(), Arc::new(library));
        let chosen = InForce { chosen: Some(Arc::clone(&library)), ..InForce::of(&library, file) };
        in_force.insert(name.to_owned(), chosen);
        Ok(Self { in_force: Mutex::new(in_force), trusted_only: self.trusted_only })
    }

    /// The version of a module that is or was in force.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<String> {
        self.in_force().get(name).map(|in_force| in_force.version.clone())
    }

    /// The files of the modules in force, for another process.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, PathBuf> {
        let in_force = self.in_force();
        let alive = in_force.iter().filter(|(_, in_force)| in_force.is_alive());
        alive.map(|(name, in_force)| (name.clone(), in_force.file.clone())).collect()
    }

    /// With the modules of these files in force.
    ///
    /// # Errors
    /// The reason why one can't be.
    pub fn of_files(files: &BTreeMap<String, PathBuf>) -> Result<Self, String> {
        files.iter().try_fold(Self::default(), |registry, (name, file)| registry.with(name, Some(file)))
    }
}

/// The modules of a directory, by the names of their files.
fn files(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".so")?.to_owned();
            Some((name, path))
        })
        .collect();
    files.sort();
    files
}

/// The first file that a repository has for a module.
fn find(name: &str) -> Result<Option<PathBuf>, String> {
    let repositories = Repositories::read()?;
    let mut files = repositories.all().map(|dir| dir.join(format!("{name}.so")));
    Ok(files.find(|file| file.exists()))
}

/// The library of a repository, whose name is that of its file.
fn load(file: &Path, trusted_only: bool) -> Result<Library, String> {
    let library = load_any(file, trusted_only)?;
    if file.file_stem().is_none_or(|stem| stem != library.name()) {
        return Err(format!("it is module '{0}': call it {0}.so", library.name()));
    }
    Ok(library)
}

fn load_any(file: &Path, trusted_only: bool) -> Result<Library, String> {
    let library = Library::open(file, trusted_only)?;
    if braid_modules::NAMES.contains(&library.name()) {
        return Err(format!("its name, '{}', is that of a module that is built in", library.name()));
    }
    tracing::debug!(module = library.name(), version = library.version(), ?file, "loaded");
    Ok(library)
}
