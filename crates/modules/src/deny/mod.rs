//! Keeps files from being changed, by their paths: an example of a module with
//! settings and state. `docs/configuration.md` describes it and its limits.

use crate::count::{Count, refused};
use crate::{Module, Names, Pattern, State};
use braid_contract::{
    Errno, Error, Figure, FileSystem, FileSystemCapabilities, Reply, Request, Result, Served, Service,
};
use serde::Deserialize;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The protected files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    paths: Vec<Pattern>,
}

/// The module.
pub type Deny = Served<Guard>;

/// Checks each request before it goes to the child.
pub struct Guard {
    settings: Settings,
    names: Names,
    refused: Count,
    child: Arc<dyn FileSystem>,
}

impl Module for Deny {
    const NAME: &'static str = "deny";
    type Settings = Settings;

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self(Guard {
            settings: settings.clone(),
            names: Names::default(),
            refused: Count::default(),
            child,
        }))
    }

    fn figures(&self) -> Vec<Figure> {
        vec![refused(&self.0.refused)]
    }

    fn export(&self) -> State {
        self.0.names.export()
    }

    fn import(&self, state: &State) -> Result<()> {
        self.0.names.import(state)
    }
}

impl Service for Guard {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.child.capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        match self.check(&request) {
            Ok(()) => self.names.carry(request, &*self.child),
            Err(error) => {
                self.refused.one();
                request.operation().failed(error)
            }
        }
    }
}

impl Guard {
    fn check(&self, request: &Request<'_>) -> Result<()> {
        let paths = self.names.changed_by(request, &*self.child)?;
        let denied = |pattern: &Pattern| paths.iter().any(|path| pattern.matches(path));
        match self.settings.paths.iter().any(denied) {
            true => Err(Error::new(Errno::EPERM, "the module 'deny' keeps this path as it is")),
            false => Ok(()),
        }
    }
}
