//! The state that the commands of a connection work on.

use crate::budget::{FREE, Share};
use crate::resp::Answers;
use braid_contract::key_value::VALUE_MAX;
use braid_contract::{Caller, Errno, Error, KeyValue};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Locks that keys share.
const LOCKS: usize = 64;
/// Cursors that are remembered, for all connections together.
const CURSORS_MAX: usize = 4096;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) values: Arc<dyn KeyValue>,
    pub(crate) password: Option<Vec<u8>>,
    /// Held while a key changes, so that a command that reads a value and puts another
    /// one is one step for all clients.
    changing: [Mutex<()>; LOCKS],
    pub(crate) cursors: Mutex<Cursors>,
}

impl Shared {
    pub(crate) fn new(values: Arc<dyn KeyValue>, password: Option<Vec<u8>>) -> Self {
        Self {
            values,
            password,
            changing: std::array::from_fn(|_| Mutex::default()),
            cursors: Mutex::default(),
        }
    }

    /// Locks these keys.
    pub(crate) fn lock<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Vec<MutexGuard<'_, ()>> {
        let mut locks: Vec<usize> = keys
            .map(|key| {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hasher.finish() as usize % LOCKS
            })
            .collect();
        // In one order for all.
        locks.sort_unstable();
        locks.dedup();
        locks.into_iter().map(|lock| self.changing[lock].lock()).collect()
    }
}

/// Where scans go on, by number: Redis has no other cursors.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    last: u64,
    keys: VecDeque<(u64, Vec<u8>)>,
}

impl Cursors {
    /// A number for a key. The oldest one is forgotten.
    pub(crate) fn add(&mut self, key: Vec<u8>) -> u64 {
        if self.keys.len() == CURSORS_MAX {
            self.keys.pop_front();
        }
        self.last += 1;
        self.keys.push_back((self.last, key));
        self.last
    }

    pub(crate) fn find(&self, number: u64) -> Option<Vec<u8>> {
        let at = self.keys.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.keys[at].1.clone())
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    /// The user whose rights it has.
    pub(crate) caller: Caller,
    pub(crate) number: u64,
    pub(crate) name: Vec<u8>,
    /// Whether it has sent the password, or there is none.
    pub(crate) is_known: bool,
    pub(crate) is_over: bool,
    pub(crate) answers: Answers,
    /// For long answers.
    pub(crate) share: Share,
    /// For a value that was read, until the request is carried out.
    pub(crate) value: Share,
}

pub(crate) const TOO_MANY_LONG: &str =
    "too many long values are being read: try again, or read them one by one";

/// The words of a request.
pub(crate) type Words<'a> = &'a [&'a [u8]];

/// Why a command is refused: a word in capitals, then the reason.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// The outcome of a command; it has answered.
pub(crate) type Done = Result<(), Refusal>;

pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(format!("ERR {}", text.into())))
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let word = match error.errno() {
            Errno::EACCES | Errno::EPERM => "NOPERM",
            Errno::EISDIR | Errno::EINVAL => "WRONGTYPE",
            Errno::EROFS => "READONLY",
            _ => "ERR",
        };
        Self(format!("{word} {error}"))
    }
}

impl Client {
    pub(crate) fn values(&self) -> Arc<dyn KeyValue> {
        Arc::clone(&self.shared.values)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        self.get_beside(0, key)
    }

    /// The same, where the request has `held` bytes of other values in memory.
    pub(crate) fn get_beside(&mut self, held: usize, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        let (mut value, mut most) = (Vec::new(), FREE);
        loop {
            // Before it takes memory.
            if !self.value.fit(held + most) {
                return refuse(TOO_MANY_LONG);
            }
            match self.shared.values.read(&self.caller, key, &mut value, most) {
                // Most values are short: only of a long one, the length is asked for.
                Err(error) if error.errno() == Errno::EFBIG && most < VALUE_MAX => {
                    let len = self.shared.values.len(&self.caller, key)?.unwrap_or_default();
                    // More in any case, so that this ends.
                    most = len.max(2 * most as u64).min(VALUE_MAX as u64) as usize;
                }
                read => {
                    let value = read?.then_some(value);
                    self.value.fit(held + value.as_ref().map_or(0, Vec::len));
                    return Ok(value);
                }
            }
        }
    }

    /// Answers a value, or that there is none.
    pub(crate) fn answer(&mut self, value: Option<&[u8]>) -> Done {
        let Some(value) = value else {
            self.answers.null();
            return Ok(());
        };
        if !self.share.fit(self.answers.bytes.len() + value.len()) {
            return refuse(TOO_MANY_LONG);
        }
        self.answers.bulk(value);
        Ok(())
    }
}
