//! Keys and values for sessions (`LabKVS` behind the runtime): the side of the daemon. A
//! request about a directory that the session knows is carried out by the directory's
//! [`KeyValue`]; all others are about files.

pub(crate) mod wire;

use crate::handover::Terms;
use crate::view::View;
use braid_contract::{
    Caller, Errno, Error, FileSystem, InodeId, KeyChange, KeyValue, PutOptions, Result, ScanPage, ScanRange,
    Served,
};
use braid_sdk::Below;
use braid_sdk::abi::{Answer, Capabilities, Failure, Message, Target};
use parking_lot::Mutex;
use std::sync::Arc;
use wire::ValueOperation;

/// Directories that stay open for further requests.
const OPEN_MAX: usize = 8;
/// Keys of a page, at most.
const PAGE_MAX: u64 = 1 << 16;

/// The directories of a mount as keys and values.
pub trait Values: Send + Sync {
    /// A directory as keys and values. The session knows it, and each of its operations
    /// looks at the caller's rights.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    fn bucket(&self, dir: InodeId) -> Result<Arc<dyn KeyValue>>;
}

/// All requests of a session.
pub(crate) struct Requests {
    files: Below,
    view: Arc<Served<View>>,
    values: Option<Arc<dyn Values>>,
    /// The session's application.
    caller: Caller,
    /// Bytes of data of an answer.
    room: usize,
    /// The last one used is the last.
    open: Mutex<Vec<(InodeId, Arc<dyn KeyValue>)>>,
}

impl Requests {
    pub(crate) fn new(view: &Arc<Served<View>>, values: Option<Arc<dyn Values>>, terms: &Terms) -> Self {
        let files = Below(Arc::clone(view) as Arc<dyn FileSystem>);
        let (caller, room) = (terms.caller.clone(), terms.geometry.data);
        Self { files, view: Arc::clone(view), values, caller, room, open: Mutex::default() }
    }

    fn bucket(&self, dir: InodeId) -> Result<Arc<dyn KeyValue>> {
        self.view.0.bounds.known.has(dir)?;
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(ino, _)| *ino == dir) {
            let last = open.len() - 1;
            open.swap(at, last);
            return Ok(Arc::clone(&open[last].1));
        }
        let values = self.values.as_ref().ok_or(Errno::EOPNOTSUPP)?;
        let bucket = values.bucket(dir)?;
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push((dir, Arc::clone(&bucket)));
        Ok(bucket)
    }

    fn carry_out(&self, operation: ValueOperation, message: &Message<'_>) -> Result<Answer> {
        let Message { numbers, name: key, data, .. } = message;
        if operation.changes() {
            self.view.0.bounds.writable()?;
        }
        let bucket = self.bucket(InodeId(numbers.ino))?;
        let caller = &self.caller;
        let (mut answer, mut bytes) = (Answer::default(), Vec::new());
        answer.answers.count = match operation {
            ValueOperation::About => u64::from(bucket.batch_is_atomic()),
            ValueOperation::Get => {
                let is_there = bucket.read(caller, key, &mut bytes, self.room)?;
                one_more(is_there.then_some(bytes.len() as u64))
            }
            ValueOperation::Len => one_more(bucket.len(caller, key)?),
            ValueOperation::Put => {
                let when = *wire::WHEN.get(numbers.how as usize).ok_or(Errno::EINVAL)?;
                let options = PutOptions { when, mode: (numbers.mode & 0o777) as u16 };
                u64::from(bucket.put(caller, key, data, options)?)
            }
            ValueOperation::Delete => u64::from(bucket.delete(caller, key)?),
            ValueOperation::Scan => {
                let range = range_of(data).ok_or(Errno::EINVAL)?;
                let count = numbers.count.min(PAGE_MAX) as usize;
                bytes = self.page(bucket.scan(caller, &range, count, numbers.how == 1)?)?;
                0
            }
            ValueOperation::Batch => {
                bucket.batch(caller, &changes_of(data).ok_or(Errno::EINVAL)?)?;
                0
            }
            ValueOperation::Sync => {
                bucket.sync()?;
                0
            }
        };
        answer.bytes = bytes;
        Ok(answer)
    }

    fn too_large(&self, len: usize) -> Error {
        let why = format!("{len} bytes do not fit the {} bytes of a slot of the session", self.room);
        Error::new(Errno::EFBIG, why)
    }

    /// The part of a page that fits.
    fn page(&self, page: ScanPage) -> Result<Vec<u8>> {
        let ScanPage { entries, mut next } = page;
        let size = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            wire::taken(Some(key)) + wire::taken(value.as_deref())
        };
        let mut room = self.room.saturating_sub(wire::taken(Some(&[0; crate::layout::NAME_MAX])));
        let fitting = entries.iter().take_while(|entry| {
            let fits = size(entry) <= room;
            room = room.saturating_sub(size(entry));
            fits
        });
        let fitting = fitting.count();
        if let Some(first) = entries.get(fitting) {
            let last = fitting.checked_sub(1).ok_or_else(|| self.too_large(size(first)))?;
            next = Some(entries[last].0.clone());
        }
        let mut bytes = Vec::new();
        wire::add(&mut bytes, next.as_deref());
        for (key, value) in &entries[..fitting] {
            wire::add(&mut bytes, Some(key));
            wire::add(&mut bytes, value.as_deref());
        }
        Ok(bytes)
    }
}

impl Target for Requests {
    fn call(&self, message: Message<'_>) -> std::result::Result<Answer, Failure> {
        let Some(operation) = ValueOperation::of(message.numbers.operation) else {
            return self.files.call(message);
        };
        let failed = |error: Error| Failure { errno: error.errno().0, why: error.to_string() };
        self.carry_out(operation, &message).map_err(failed)
    }

    fn capabilities(&self) -> Capabilities {
        self.files.capabilities()
    }
}

fn one_more(len: Option<u64>) -> u64 {
    len.map_or(0, |len| len + 1)
}

fn range_of(mut data: &[u8]) -> Option<ScanRange> {
    let mut next = || wire::take(&mut data);
    let (from, to, prefix, after) = (next()??, next()?, next()??, next()?);
    let owned = |string: &[u8]| string.to_vec();
    Some(ScanRange { from: owned(from), to: to.map(owned), prefix: owned(prefix), after: after.map(owned) })
}

fn changes_of(mut data: &[u8]) -> Option<Vec<KeyChange<'_>>> {
    let mut changes = Vec::new();
    while !data.is_empty() {
        let key = wire::take(&mut data)??;
        changes.push(match wire::take(&mut data)? {
            Some(value) => KeyChange::Put(key, value),
            None => KeyChange::Delete(key),
        });
    }
    Some(changes)
}
