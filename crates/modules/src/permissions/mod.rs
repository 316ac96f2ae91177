//! Access rules for reading, changing and listing files (LabStor §3, tunable access control):
//! islands of data on one volume. `docs/configuration.md` describes the rules and their limits.
//!
//! Rules are asked where something is opened or changed. The kernel asks for that each time, even
//! if it has cached data; names and attributes it answers by itself, to all users alike, so that no
//! rule is about these.

mod asked;
mod rules;
#[cfg(test)]
mod tests;

use crate::count::{Count, refused};
use crate::sync::Mutex;
use crate::{Module, Names, State};
use asked::{Judge, caller};
use braid_contract::{
    Errno, Error, Figure, FileSystem, FileSystemCapabilities, HandleId, InodeId, OpenFlags, Reply, Request,
    Result, Served, Service,
};
pub use rules::Settings;
use rules::Who;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// Version of the format of the exported state.
const VERSION: u32 = 1;

/// The module.
pub type Permissions = Served<Guard>;

/// Judges each request before it goes to the child.
pub struct Guard {
    rules: Settings,
    names: Names,
    /// Handles that are open for writing.
    writers: Mutex<HashSet<HandleId>>,
    refused: Count,
    child: Arc<dyn FileSystem>,
}

/// The state in exported form.
#[derive(Serialize, Deserialize)]
struct Exported {
    names: String,
    names_version: u32,
    writers: Vec<u64>,
}

impl Module for Permissions {
    const NAME: &'static str = "permissions";
    type Settings = Settings;

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        if child.path(InodeId::ROOT).is_err_and(|error| error.errno() == Errno::EOPNOTSUPP) {
            let found = "its rules go by paths, which a view of another user's mount tells to root only";
            return Err(Error::new(Errno::EOPNOTSUPP, found));
        }
        let (names, writers) = (Names::default(), Mutex::default());
        Ok(Self(Guard { rules: settings.clone(), names, writers, refused: Count::default(), child }))
    }

    fn figures(&self) -> Vec<Figure> {
        vec![refused(&self.0.refused)]
    }

    fn export(&self) -> State {
        let State { version: names_version, bytes } = self.0.names.export();
        let names = String::from_utf8_lossy(&bytes).into_owned();
        let writers = self.0.writers.lock().iter().map(|handle| handle.0).collect();
        let exported = Exported { names, names_version, writers };
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(&exported).unwrap_or_default() }
    }

    fn import(&self, state: &State) -> Result<()> {
        state.expect_version(VERSION)?;
        let Exported { names, names_version, writers } = serde_json::from_slice(&state.bytes)
            .map_err(|error| Error::new(Errno::EINVAL, format!("not a state of permissions: {error}")))?;
        self.0.names.import(&State { version: names_version, bytes: names.into_bytes() })?;
        self.0.writers.lock().extend(writers.into_iter().map(HandleId));
        Ok(())
    }
}

impl Service for Guard {
    fn capabilities(&self) -> FileSystemCapabilities {
        let below = self.child.capabilities();
        FileSystemCapabilities { caller_groups: below.caller_groups || self.rules.asks_for_groups(), ..below }
    }

    fn call(&self, request: Request<'_>) -> Reply {
        if let Err(error) = self.check(&request) {
            self.refused.one();
            return request.operation().failed(error);
        }
        let flags = opened(&request);
        if let Request::Release { handle } = &request {
            self.writers.lock().remove(handle);
        }
        let reply = self.names.carry(request, &*self.child);
        if flags.is_some_and(|flags| flags.write)
            && let Reply::Open(Ok(opened)) | Reply::Create(Ok((_, opened))) | Reply::Tmpfile(Ok((_, opened))) =
                &reply
        {
            self.writers.lock().insert(opened.handle);
        }
        reply
    }
}

impl Guard {
    fn check(&self, request: &Request<'_>) -> Result<()> {
        let Some(caller) = caller(request).filter(|caller| !caller.of_stack) else { return Ok(()) };
        let who = Who { uid: caller.uid, gid: caller.gid, groups: caller.groups.as_deref() };
        let writes = |handle| self.writers.lock().contains(&handle);
        let judge =
            Judge { rules: &self.rules, who, names: &self.names, child: &*self.child, writes: &writes };
        match judge.judge(request)? {
            true => Ok(()),
            false => Err(Error::new(Errno::EACCES, "a rule of the module 'permissions' denies it")),
        }
    }
}

/// The flags of a request that opens a file.
fn opened(request: &Request<'_>) -> Option<OpenFlags> {
    match request {
        Request::Open { request, .. }
        | Request::Create { request, .. }
        | Request::Tmpfile { request, .. } => Some(request.flags),
        _ => None,
    }
}
