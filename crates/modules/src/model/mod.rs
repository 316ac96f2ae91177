//! The time that a device would take, for trying policies and stacks without it: reads,
//! writes and syncs take as long as on a disk, an SSD or persistent memory, or longer if the layers
//! below take longer. `docs/configuration.md` describes the model.

mod device;
mod settings;
#[cfg(test)]
mod tests;

use crate::Module;
use crate::count::Count;
use crate::sync::{Condvar, Instant, Mutex};
use crate::traffic::{keep_in_sight, moved};
use braid_contract::{
    Figure, FileSystem, FileSystemCapabilities, HandleId, Reply, Request, Result, Served, Service, dispatch,
};
use device::{Device, Work};
use rustix::thread::set_current_timer_slack;
pub use settings::Settings;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The module.
pub type Model = Served<Modelled>;

/// Holds operations up until the device would be done.
pub struct Modelled {
    begun: Instant,
    device: Mutex<Device>,
    /// Nothing waits any more: the module is gone.
    is_over: Mutex<bool>,
    over: Condvar,
    waits: Count,
    waited_ns: Count,
    child: Arc<dyn FileSystem>,
}

impl Module for Model {
    const NAME: &'static str = "model";
    type Settings = Settings;

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self(Modelled {
            begun: Instant::now(),
            device: Mutex::new(Device::new(settings.figures)),
            is_over: Mutex::new(false),
            over: Condvar::new(),
            waits: Count::default(),
            waited_ns: Count::default(),
            child,
        }))
    }

    fn figures(&self) -> Vec<Figure> {
        crate::count::held_up(&self.0.waits, &self.0.waited_ns)
    }

    fn end(&self) {
        self.0.end();
    }
}

impl Service for Modelled {
    fn capabilities(&self) -> FileSystemCapabilities {
        // I/O that the kernel does by itself is not seen.
        FileSystemCapabilities { passthrough: false, holds_up: true, ..self.child.capabilities() }
    }

    fn call(&self, mut request: Request<'_>) -> Reply {
        keep_in_sight(&mut request);
        let Some(work) = work(&request) else { return dispatch(&*self.child, request) };
        let asked_ns = self.now_ns();
        let reply = dispatch(&*self.child, request);
        let done = self.device.lock().done_at(work.moving(moved(&reply).unwrap_or(0)), asked_ns);
        self.wait_until(done);
        reply
    }
}

impl Modelled {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait_until(&self, at_ns: u64) {
        let now_ns = self.now_ns();
        let Some(left) = at_ns.checked_sub(now_ns).filter(|left| *left > 0) else { return };
        self.waits.one();
        wakes_in_time();
        let mut is_over = self.is_over.lock();
        self.over.wait_while_for(&mut is_over, |is_over| !*is_over, Duration::from_nanos(left));
        drop(is_over);
        self.waited_ns.add(self.now_ns().saturating_sub(now_ns));
    }

    fn end(&self) {
        *self.is_over.lock() = true;
        self.over.notify_all();
    }
}

/// The kernel may wake a thread 50 µs late, to wake several at a time; not this one any more.
fn wakes_in_time() {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if !DONE.replace(true)
        && let Err(error) = set_current_timer_slack(NonZeroU64::new(1))
    {
        tracing::debug!(%error, "the model's operations take longer than they should");
    }
}

/// The work of a device for a request; `None` if it needs none.
fn work(request: &Request<'_>) -> Option<Work> {
    Some(match request {
        Request::Read { handle, offset, .. } => Work::Read { file: file(*handle), offset: *offset, bytes: 0 },
        Request::Write { handle, offset, flags, .. } => {
            Work::Write { file: file(*handle), offset: *offset, bytes: 0, is_synced: flags.sync }
        }
        Request::CopyRange { to, to_offset, .. } => {
            Work::Write { file: file(*to), offset: *to_offset, bytes: 0, is_synced: false }
        }
        Request::Fsync { .. } | Request::SyncDir { .. } | Request::Sync {} => Work::Sync,
        _ => return None,
    })
}

/// Tells apart files, which are not next to each other on a disk.
fn file(handle: HandleId) -> u64 {
    handle.0
}
