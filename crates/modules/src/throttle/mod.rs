//! Shares bandwidth and operations fairly between clients, and limits them.
//! `docs/configuration.md` describes the operations that it sees in each mode of the kernel's
//! cache.

mod gate;
mod settings;
mod share;
#[cfg(test)]
mod tests;
mod who;
mod writers;

use crate::traffic::{keep_in_sight, moved};
use crate::{Module, State};
use braid_contract::{
    Caller, Crash, Errno, Error, Figure, FileSystem, FileSystemCapabilities, HandleId, InodeId, Reply,
    Request, Result, Served, Service,
};
use gate::Gate;
use serde::{Deserialize, Serialize};
pub use settings::Settings;
use share::Debts;
use std::sync::Arc;
use who::{Client, Clients};
use writers::Writers;

/// Version of the format of the exported state.
const VERSION: u32 = 1;
/// Version of the format of the state kept for a crash.
const KEPT_VERSION: u32 = 2;

/// The state kept for a crash.
#[derive(Serialize, Deserialize)]
struct Kept {
    writers: Vec<(u64, u64, Client)>,
    debts: Debts,
}

/// The module.
pub type Throttle = Served<Throttled>;

/// Has requests wait for their turn.
pub struct Throttled {
    clients: Clients,
    writers: Writers,
    gate: Gate,
    /// Whether operations count that move no bytes.
    counts_operations: bool,
    child: Arc<dyn FileSystem>,
}

impl Module for Throttle {
    const NAME: &'static str = "throttle";
    type Settings = Settings;

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        let counts_operations = settings.all.operations.is_some() || settings.each.operations.is_some();
        let (clients, gate) = (Clients::new(settings.by), Gate::new(settings));
        Ok(Self(Throttled { clients, writers: Writers::default(), gate, counts_operations, child }))
    }

    fn figures(&self) -> Vec<Figure> {
        self.0.gate.figures()
    }

    fn end(&self) {
        self.0.gate.open();
    }

    fn export(&self) -> State {
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(&self.0.writers.all()).unwrap_or_default() }
    }

    fn import(&self, state: &State) -> Result<()> {
        let odd = |error| Error::new(Errno::EINVAL, format!("not a state of throttle: {error}"));
        let Kept { writers, debts } = match state.version {
            KEPT_VERSION => serde_json::from_slice(&state.bytes).map_err(odd)?,
            _ => {
                state.expect_version(VERSION)?;
                let writers = serde_json::from_slice(&state.bytes).map_err(odd)?;
                Kept { writers, debts: Debts::default() }
            }
        };
        for (handle, ino, client) in writers {
            self.0.writers.open(HandleId(handle), InodeId(ino), client);
        }
        self.0.gate.owe(&debts);
        Ok(())
    }

    /// The writers, and the debts of clients. No waiting request goes on by that.
    fn snapshot(&self) -> Option<State> {
        let kept = Kept { writers: self.0.writers.all(), debts: self.0.gate.debts() };
        // All of it can be serialized.
        Some(State { version: KEPT_VERSION, bytes: serde_json::to_vec(&kept).unwrap_or_default() })
    }

    /// Forgets closed files, and has debts paid for the time since.
    fn repair(&self, after: Crash) -> Result<()> {
        after.state_age.into_iter().for_each(|age| self.0.gate.pay(age));
        for (handle, _, _) in self.0.writers.all() {
            let handle = HandleId(handle);
            if self.0.child.getattr(&Caller::stack(), InodeId::ROOT, Some(handle)).is_err() {
                self.0.writers.close(handle);
            }
        }
        Ok(())
    }
}

impl Service for Throttled {
    fn capabilities(&self) -> FileSystemCapabilities {
        // I/O that the kernel does by itself is not seen.
        FileSystemCapabilities { passthrough: false, holds_up: true, ..self.child.capabilities() }
    }

    fn call(&self, mut request: Request<'_>) -> Reply {
        keep_in_sight(&mut request);
        if let Request::Release { handle } = &request {
            self.writers.close(*handle);
        }
        let opened =
            opens_for_writing(&request).map(|caller| (self.clients.of(caller), opened_ino(&request)));
        let asked = self.asked(&request);
        if let Some((client, bytes)) = &asked {
            self.gate.enter(client, *bytes);
        }
        let reply = braid_contract::dispatch(&*self.child, request);
        if let Some((client, bytes)) = &asked
            && *bytes > 0
        {
            let unused = bytes.saturating_sub(moved(&reply).unwrap_or(0));
            if unused > 0 {
                self.gate.give_back(client, unused);
            }
        }
        if let Some((client, ino)) = opened {
            self.is_open(&reply, ino, client);
        }
        reply
    }
}

impl Throttled {
    /// The client of the request, and the bytes that it is to move; `None` if it need not wait.
    fn asked(&self, request: &Request<'_>) -> Option<(Client, u64)> {
        let (caller, bytes) = match request {
            // No client waits for what the stack reads for itself, such as a scrub.
            Request::Read { caller, .. } if caller.of_stack => return None,
            Request::Read { caller, buf, .. } => (*caller, buf.len() as u64),
            Request::Write { handle, data, flags, .. } if flags.write_back => {
                return Some((self.writers.of(*handle), data.len() as u64));
            }
            Request::Write { caller, data, .. } => (*caller, data.len() as u64),
            Request::CopyRange { caller, len, .. } => (*caller, *len),
            other if self.counts_operations => (counted(other)?, 0),
            _ => return None,
        };
        Some((self.clients.of(caller), bytes))
    }

    /// Notes a file that was opened for writing.
    fn is_open(&self, reply: &Reply, ino: Option<InodeId>, client: Client) {
        let (handle, ino) = match reply {
            Reply::Open(Ok(opened)) => (opened.handle, ino),
            Reply::Create(Ok((entry, opened))) | Reply::Tmpfile(Ok((entry, opened))) => {
                (opened.handle, Some(entry.attr.ino))
            }
            _ => return,
        };
        if let Some(ino) = ino {
            self.writers.open(handle, ino, client);
        }
    }
}

/// The caller of an operation without bytes that counts as one. Closes and forgets never wait: the
/// kernel asks for them by itself.
fn counted<'a>(request: &Request<'a>) -> Option<&'a Caller> {
    match request {
        Request::Lookup { caller, .. }
        | Request::Getattr { caller, .. }
        | Request::Setattr { caller, .. }
        | Request::Readlink { caller, .. }
        | Request::Mknod { caller, .. }
        | Request::Mkdir { caller, .. }
        | Request::Symlink { caller, .. }
        | Request::Link { caller, .. }
        | Request::Unlink { caller, .. }
        | Request::Rmdir { caller, .. }
        | Request::Rename { caller, .. }
        | Request::Open { caller, .. }
        | Request::Create { caller, .. }
        | Request::Tmpfile { caller, .. }
        | Request::Fsync { caller, .. }
        | Request::Fallocate { caller, .. }
        | Request::Seek { caller, .. }
        | Request::OpenDir { caller, .. }
        | Request::ReadDir { caller, .. }
        | Request::SyncDir { caller, .. }
        | Request::Getxattr { caller, .. }
        | Request::Listxattr { caller, .. }
        | Request::Setxattr { caller, .. }
        | Request::Removexattr { caller, .. } => Some(caller),
        _ => None,
    }
}

fn opens_for_writing<'a>(request: &Request<'a>) -> Option<&'a Caller> {
    match request {
        Request::Open { caller, request, .. }
        | Request::Create { caller, request, .. }
        | Request::Tmpfile { caller, request, .. }
            if request.flags.write =>
        {
            Some(caller)
        }
        _ => None,
    }
}

fn opened_ino(request: &Request<'_>) -> Option<InodeId> {
    match request {
        Request::Open { ino, .. } => Some(*ino),
        _ => None,
    }
}
