//! A directory as keys and values, for an application: each operation is one request.

use super::Session;
use crate::layout::NAME_MAX;
use crate::values::wire::{self, ValueOperation};
use braid_contract::key_value::{check_len, name_of_key};
use braid_contract::{
    Caller, Errno, Error, InodeId, KeyChange, KeyValue, PutOptions, Result, ScanPage, ScanRange,
};
use braid_sdk::abi::{Answer, Message, Numbers};
use std::sync::Arc;

impl Session {
    /// A directory as keys and values. The callers that its operations are given do not
    /// matter: they act in the name of the session. Values, pages of scans, and batches are as
    /// long as a slot's [data](crate::Geometry::data) at most: longer ones answer `EFBIG`.
    ///
    /// # Errors
    /// If the session does not know the directory, or it is none.
    pub fn values(self: &Arc<Self>, dir: InodeId) -> Result<Arc<dyn KeyValue>> {
        let values = SessionValues { session: Arc::clone(self), dir };
        values.ask(ValueOperation::About, &[], &[], |_| {})?;
        Ok(Arc::new(values))
    }
}

struct SessionValues {
    session: Arc<Session>,
    dir: InodeId,
}

impl SessionValues {
    fn ask(
        &self,
        operation: ValueOperation,
        key: &[u8],
        data: &[u8],
        set: impl FnOnce(&mut Numbers),
    ) -> Result<Answer> {
        let most = self.session.link.geometry.data;
        if data.len() > most {
            let why = format!("{} bytes do not fit the {most} bytes of a slot of the session", data.len());
            return Err(Error::new(Errno::EFBIG, why));
        }
        if key.len() > NAME_MAX {
            // In the same words as a directory by itself.
            name_of_key(key)?;
        }
        let mut numbers = Numbers { operation: operation as u32, ino: self.dir.0, ..Numbers::default() };
        set(&mut numbers);
        let message = Message { name: key, data, ..Message::new(numbers) };
        self.session.queue().call(&self.session.link, message).map_err(braid_sdk::error_of)
    }
}

impl KeyValue for SessionValues {
    fn batch_is_atomic(&self) -> bool {
        // Modules may have come or gone.
        self.ask(ValueOperation::About, &[], &[], |_| {}).is_ok_and(|answer| answer.answers.count == 1)
    }

    fn read(&self, _: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        let Answer { answers, bytes, .. } = self.ask(ValueOperation::Get, key, &[], |_| {})?;
        check_len(bytes.len() as u64, most)?;
        *value = bytes;
        Ok(answers.count > 0)
    }

    fn len(&self, _: &Caller, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.ask(ValueOperation::Len, key, &[], |_| {})?.answers.count.checked_sub(1))
    }

    fn put(&self, _: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool> {
        let when = wire::WHEN.iter().position(|when| *when == options.when).unwrap_or_default();
        let answer = self.ask(ValueOperation::Put, key, value, |numbers| {
            numbers.how = when as u32;
            numbers.mode = options.mode.into();
        });
        Ok(answer?.answers.count == 1)
    }

    fn delete(&self, _: &Caller, key: &[u8]) -> Result<bool> {
        Ok(self.ask(ValueOperation::Delete, key, &[], |_| {})?.answers.count == 1)
    }

    fn scan(&self, _: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage> {
        let ScanRange { from, to, prefix, after } = range;
        let mut data = Vec::new();
        for string in [Some(from), to.as_ref(), Some(prefix), after.as_ref()] {
            wire::add(&mut data, string.map(Vec::as_slice));
        }
        let answer = self.ask(ValueOperation::Scan, &[], &data, |numbers| {
            numbers.count = count as u64;
            numbers.how = values.into();
        })?;
        page_of(&answer.bytes).ok_or_else(|| Error::new(Errno::EIO, "the runtime answers what can't be"))
    }

    fn batch(&self, _: &Caller, changes: &[KeyChange<'_>]) -> Result<()> {
        let mut data = Vec::new();
        for change in changes {
            wire::add(&mut data, Some(change.key()));
            wire::add(&mut data, if let KeyChange::Put(_, value) = change { Some(value) } else { None });
        }
        self.ask(ValueOperation::Batch, &[], &data, |_| {}).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.ask(ValueOperation::Sync, &[], &[], |_| {}).map(drop)
    }
}

fn page_of(mut bytes: &[u8]) -> Option<ScanPage> {
    let next = wire::take(&mut bytes)?.map(<[u8]>::to_vec);
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let key = wire::take(&mut bytes)??.to_vec();
        entries.push((key, wire::take(&mut bytes)?.map(<[u8]>::to_vec)));
    }
    Some(ScanPage { entries, next })
}
