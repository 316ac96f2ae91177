//! Locks, queues and the clock enter the crate here.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
pub(crate) use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
pub(crate) use std::time::{Instant, SystemTime};
