//! Keys and values through the control socket.

use super::buckets::Buckets;
use braid_contract::key_value::name_of_key;
use braid_contract::{Caller, Errno, Error, KeyValue, PutOptions, PutWhen, Result, ScanPage, ScanRange};
use braid_ipc::protocol::{ErrorReply, KvAnswer, KvKey, KvOperation, KvRequest, KvWhen};
use std::path::Path;

/// Most keys of a page.
const PAGE_MAX: usize = 1000;

/// Carries out a request; returns the answer, and the bytes that follow it.
pub(crate) fn answer(
    buckets: &Buckets,
    caller: &Caller,
    request: &KvRequest,
    value: &[u8],
) -> std::result::Result<(KvAnswer, Vec<u8>), ErrorReply> {
    let values = buckets.open(caller, Path::new(&request.directory)).map_err(refusal)?;
    carry_out(&*values, caller, &request.operation, value).map_err(refusal)
}

fn refusal(error: Error) -> ErrorReply {
    let advice = match error.errno() {
        Errno::EACCES => "\n  help: docs/kv.md says which rights are needed",
        Errno::EAGAIN => "\n  help: try again",
        _ => "",
    };
    ErrorReply { errno: Some(error.errno().0), message: format!("{error}{advice}") }
}

/// Carries out an operation on a directory; returns the answer, and the bytes that follow it.
pub(crate) fn carry_out(
    values: &dyn KeyValue,
    caller: &Caller,
    operation: &KvOperation,
    value: &[u8],
) -> Result<(KvAnswer, Vec<u8>)> {
    let done = |done| Ok((KvAnswer { done, ..KvAnswer::default() }, Vec::new()));
    match operation {
        KvOperation::Get { key } => {
            let found = values.get(caller, key)?;
            Ok((KvAnswer { done: found.is_some(), ..KvAnswer::default() }, found.unwrap_or_default()))
        }
        KvOperation::Put { key, when, mode, .. } => {
            let when = match when {
                KvWhen::Always => PutWhen::Always,
                KvWhen::Absent => PutWhen::Absent,
                KvWhen::Present => PutWhen::Present,
            };
            done(values.put(caller, key, value, PutOptions { when, mode: mode & 0o777 })?)
        }
        KvOperation::Delete { key } => done(values.delete(caller, key)?),
        KvOperation::Scan { from, to, prefix, after, count, values: with } => {
            if let Some(after) = after {
                name_of_key(after)?;
            }
            let (from, to, prefix, after) = (from.clone(), to.clone(), prefix.clone(), after.clone());
            let range = ScanRange { from, to, prefix, after };
            Ok(page(values.scan(caller, &range, (*count).clamp(1, PAGE_MAX), *with)?))
        }
    }
}

fn page(page: ScanPage) -> (KvAnswer, Vec<u8>) {
    let (mut keys, mut bytes) = (Vec::new(), Vec::new());
    for (key, value) in page.entries {
        keys.push(KvKey { key, bytes: value.as_ref().map(|value| value.len() as u64) });
        bytes.extend(value.into_iter().flatten());
    }
    (KvAnswer { done: true, keys, next: page.next, bytes: 0 }, bytes)
}
