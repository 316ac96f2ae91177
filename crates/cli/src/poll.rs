//! Polling a daemon, for `braid top` and `braid status --watch`: reconnects if
//! needed, and distinguishes an unmount from a failure.

use crate::failure::{Failure, Result};
use crate::locate;
use braid_ipc::mounts::{self, Mount};
use braid_ipc::protocol::{Job, Reply, Request, Status};
use braid_ipc::{Client, ClientError};

pub(crate) struct Poller {
    mount: Mount,
    daemon: Option<Client>,
}

impl Poller {
    pub(crate) fn new(mount: Mount) -> Result<Self> {
        let daemon = Some(locate::need_daemon(&mount)?);
        Ok(Self { mount, daemon })
    }

    /// The state of the volume; `None` once it is unmounted.
    pub(crate) fn status(&mut self) -> Result<Option<Status>> {
        self.ask(&Request::Status, |reply| match reply {
            Reply::Status(status) => Some(status),
            _ => None,
        })
    }

    /// Sends a request; `None` once the volume is unmounted.
    pub(crate) fn ask<T>(
        &mut self,
        request: &Request,
        pick: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.request_anew(request) {
            Ok(reply) => match pick(reply) {
                Some(answer) => Ok(Some(answer)),
                None => Err(Failure::new("the daemon answered something else")),
            },
            Err(_) if self.is_unmounted() => Ok(None),
            Err(ClientError::Io(error)) => Err(locate::no_daemon(&self.mount, &error)),
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }

    /// The jobs of the volume; `None` if this user may not see them.
    pub(crate) fn jobs(&mut self) -> Option<Vec<Job>> {
        match self.request_anew(&Request::Jobs) {
            Ok(Reply::Jobs(jobs)) => Some(jobs),
            _ => None,
        }
    }

    fn request_anew(&mut self, request: &Request) -> std::result::Result<Reply, ClientError> {
        match self.request(request) {
            // A daemon closes connections that were silent for a while.
            Err(ClientError::Io(_)) => self.request(request),
            reply => reply,
        }
    }

    fn request(&mut self, request: &Request) -> std::result::Result<Reply, ClientError> {
        let mut daemon = match self.daemon.take() {
            Some(daemon) => daemon,
            // The number of a file system that is gone may belong to another
            // one by now.
            None if self.is_unmounted() => {
                return Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into());
            }
            None => locate::daemon(&self.mount)?,
        };
        let reply = daemon.request(request)?;
        self.daemon = Some(daemon);
        Ok(reply)
    }

    fn is_unmounted(&self) -> bool {
        let same = |other: &Mount| other.dev == self.mount.dev && other.point == self.mount.point;
        // Without the table nothing is known: an error is better than silence.
        mounts::list().is_ok_and(|table| !table.iter().any(same))
    }
}
