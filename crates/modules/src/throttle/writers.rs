//! The client of data that the kernel writes back: the one that opened the file for writing last.

use super::who::Client;
use crate::sync::Mutex;
use braid_contract::{HandleId, InodeId};
use std::collections::HashMap;

/// Files that are open for writing.
#[derive(Default)]
pub(super) struct Writers(Mutex<Open>);

#[derive(Default)]
struct Open {
    handles: HashMap<HandleId, InodeId>,
    /// The last opener, and the number of handles.
    files: HashMap<InodeId, (Client, usize)>,
}

impl Writers {
    /// A file was opened for writing.
    pub(super) fn open(&self, handle: HandleId, ino: InodeId, client: Client) {
        let mut open = self.0.lock();
        if open.handles.insert(handle, ino).is_some() {
            return;
        }
        let (last, count) = open.files.entry(ino).or_insert((Client::Unknown, 0));
        (*last, *count) = (client, *count + 1);
    }

    /// The client of data that comes by this handle.
    pub(super) fn of(&self, handle: HandleId) -> Client {
        let open = self.0.lock();
        let file = open.handles.get(&handle).and_then(|ino| open.files.get(ino));
        file.map_or(Client::Unknown, |(client, _)| client.clone())
    }

    /// The handle is released.
    pub(super) fn close(&self, handle: HandleId) {
        let mut open = self.0.lock();
        let Some(ino) = open.handles.remove(&handle) else { return };
        if let Some((_, count)) = open.files.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                open.files.remove(&ino);
            }
        }
    }

    /// All of them, by handle.
    pub(super) fn all(&self) -> Vec<(u64, u64, Client)> {
        let open = self.0.lock();
        let client =
            |ino: &InodeId| open.files.get(ino).map_or(Client::Unknown, |(client, _)| client.clone());
        let mut all: Vec<_> =
            open.handles.iter().map(|(handle, ino)| (handle.0, ino.0, client(ino))).collect();
        all.sort_unstable_by_key(|(handle, ..)| *handle);
        all
    }
}
