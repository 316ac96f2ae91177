//! The daemons of this machine, by their sockets: including those whose file
//! system is unmounted but still in use.

use crate::Client;
use crate::mounts::{FS_TYPE, Mount};
use crate::protocol::{Hello, Reply, Request, Status};
use crate::socket;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// A daemon that answers.
#[derive(Debug)]
pub struct Daemon {
    /// Device number of its file system.
    pub dev: u64,
    /// Its user.
    pub owner: u32,
    /// Its description of itself.
    pub hello: Hello,
    client: Client,
}

impl Daemon {
    /// The state of its volume; `None` without an answer.
    pub fn status(&mut self) -> Option<Status> {
        match self.client.request(&Request::Status) {
            Ok(Reply::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// The mount of its file system.
    #[must_use]
    pub fn mount(&self) -> Mount {
        Mount {
            dev: self.dev,
            root: "/".into(),
            point: PathBuf::from(&self.hello.mountpoint),
            fs_type: FS_TYPE.into(),
            source: String::new(),
            options: format!("user_id={}", self.owner),
        }
    }
}

/// The daemons that this user may contact: root's and her own; for root, all.
#[must_use]
pub fn list() -> Vec<Daemon> {
    socket::all(geteuid().as_raw())
        .into_iter()
        .filter_map(|(path, dev, owner)| ask(&path, dev, owner))
        .collect()
}

fn ask(path: &Path, dev: u64, owner: u32) -> Option<Daemon> {
    let mut client = Client::connect(path, owner).ok()?;
    match client.request(&Request::Hello) {
        Ok(Reply::Hello(hello)) => Some(Daemon { dev, owner, hello, client }),
        _ => None,
    }
}
