//! The doors to keys and values: bound before anything is mounted, opened when it is.

use super::buckets::{Buckets, Owner};
use super::settings::{CONNECTIONS_DEFAULT, KvSettings};
use crate::metrics::Listener;
use crate::refusal::{Located, Refusal};
use crate::text_file;
use braid_contract::{Caller, Shown};
use braid_kv::{Door, Server, Settings};
use braid_sys::check_owner;
use rustix::process::{getegid, geteuid};
use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest password in bytes.
const PASSWORD_MAX: usize = 512;

/// Keys and values that are ready to be served.
pub(crate) struct Prepared {
    listeners: Vec<Listener>,
    password: Option<Vec<u8>>,
    directory: Located<PathBuf>,
    /// The user whose rights clients of TCP ports have.
    caller: Caller,
    connections: usize,
}

/// Keys and values that are served; ends when dropped.
pub(crate) struct KvServer {
    // Before the listeners, which remove their sockets.
    _server: Server,
    _listeners: Vec<Listener>,
}

/// Reads the password and binds the addresses.
///
/// # Errors
/// If that fails.
pub(crate) fn prepare(settings: Option<&KvSettings>) -> Result<Option<Prepared>, Refusal> {
    let Some(settings) = settings else { return Ok(None) };
    let password = settings.password_file.as_ref().map(password).transpose()?;
    let listeners = settings.listen.iter().map(Listener::at).collect::<Result<_, _>>()?;
    let own = || Caller { uid: geteuid().as_raw(), gid: getegid().as_raw(), ..Caller::root() };
    let caller = settings.user.as_ref().map_or_else(own, |user| Caller {
        uid: user.value.uid,
        gid: user.value.gid,
        groups: Some(user.value.groups.as_slice().into()),
        ..Caller::root()
    });
    let connections = settings.connections.as_ref().map_or(CONNECTIONS_DEFAULT, |count| count.value);
    Ok(Some(Prepared { listeners, password, directory: settings.directory.clone(), caller, connections }))
}

/// The password in the first line of a file, which only this user may read.
fn password(file: &Located<PathBuf>) -> Result<Vec<u8>, Refusal> {
    let Located { value: path, place } = file;
    let refuse =
        |found: &dyn Display, advice: &str| place.refuse(format!("{}: {found}", path.shown()), advice);
    // The file that is checked is the one that is read, whatever comes to its name.
    let file =
        text_file::open(path).map_err(|error| refuse(&error, "make the file, with the password in it"))?;
    let unreadable = |error: io::Error| refuse(&error, "write the password in the first line");
    let found = file.metadata().map_err(unreadable)?;
    if check_owner(&found).is_err() || found.mode() & 0o077 != 0 {
        let advice = "give it to the user who mounts, with mode 0600";
        return Err(refuse(&"others could know the password", advice));
    }
    let text = text_file::read_open(file).map_err(unreadable)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() || line.len() > PASSWORD_MAX {
        let advice = format!("write one of up to {PASSWORD_MAX} bytes in the first line");
        return Err(refuse(&"no password", &advice));
    }
    Ok(line.as_bytes().to_vec())
}

impl Prepared {
    /// Refuses a directory that is not there, before anything is mounted.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn look(&self, owner: &Owner) -> Result<(), Refusal> {
        let Located { value: path, place } = &self.directory;
        owner.look(path).map_err(|error| {
            let advice = "mount without keys and values, and make it there";
            place.refuse(format!("{}: {error}", path.shown()), advice)
        })
    }

    /// Opens the doors.
    ///
    /// # Errors
    /// If there are no descriptors or threads left.
    pub(crate) fn serve(self, buckets: &Arc<Buckets>) -> io::Result<KvServer> {
        // The user who mounts may choose any directory.
        let values = buckets.open(&Caller::root(), &self.directory.value)?;
        let identify = {
            let (buckets, directory) = (Arc::clone(buckets), self.directory.value.clone());
            Box::new(move |stream: &std::os::unix::net::UnixStream| {
                let caller = braid_ipc::caller_of(stream)?;
                // A user who can't get to the directory can't get to its values.
                buckets.open(&caller, &directory)?;
                Ok(caller)
            })
        };
        let doors = self.listeners.iter().map(|listener| {
            Ok(match listener {
                Listener::Tcp(listener) => Door::Tcp(listener.try_clone()?, self.caller.clone()),
                Listener::Unix { listener, .. } => Door::Unix(listener.try_clone()?),
            })
        });
        let doors = doors.collect::<io::Result<Vec<Door>>>()?;
        let settings = Settings { password: self.password, connections: self.connections, identify };
        let server = Server::start(values, doors, settings)?;
        Ok(KvServer { _server: server, _listeners: self.listeners })
    }
}
