//! A gate that all uses of keys and values pass. Before requests of the kernel are held
//! up, it is closed: who has passed may wait for one of them.

use braid_contract::{Caller, Errno, Error, KeyChange, KeyValue, PutOptions, Result, ScanPage, ScanRange};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// The gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    inside: usize,
}

/// Somebody inside.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.state.lock().inside -= 1;
        self.0.left.notify_all();
    }
}

impl Gate {
    /// Lets somebody in.
    ///
    /// # Errors
    /// `EAGAIN` if it is closed.
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::new(Errno::EAGAIN, "another process is about to go on with the mount"));
        }
        state.inside += 1;
        Ok(Pass(self))
    }

    /// Lets nobody in any more; answers whether everybody had left in time. If not, it is
    /// open again.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.left.wait_while_for(&mut state, |state| state.inside > 0, patience);
        state.is_closed = state.inside == 0;
        state.is_closed
    }

    /// Lets everybody in again.
    pub(crate) fn open(&self) {
        self.state.lock().is_closed = false;
    }
}

/// Keys and values behind a gate.
pub(super) struct Gated {
    pub(super) values: Arc<dyn KeyValue>,
    pub(super) gate: Arc<Gate>,
    /// The mount is read-only.
    pub(super) is_readonly: bool,
}

impl Gated {
    fn enter(&self, changes: bool) -> Result<Pass<'_>> {
        if changes && self.is_readonly { Err(Errno::EROFS.into()) } else { self.gate.enter() }
    }
}

impl KeyValue for Gated {
    fn batch_is_atomic(&self) -> bool {
        self.values.batch_is_atomic()
    }

    fn get(&self, caller: &Caller, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _pass = self.enter(false)?;
        self.values.get(caller, key)
    }

    fn len(&self, caller: &Caller, key: &[u8]) -> Result<Option<u64>> {
        let _pass = self.enter(false)?;
        self.values.len(caller, key)
    }

    fn put(&self, caller: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool> {
        let _pass = self.enter(true)?;
        self.values.put(caller, key, value, options)
    }

    fn delete(&self, caller: &Caller, key: &[u8]) -> Result<bool> {
        let _pass = self.enter(true)?;
        self.values.delete(caller, key)
    }

    fn scan(&self, caller: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage> {
        let _pass = self.enter(false)?;
        self.values.scan(caller, range, count, values)
    }

    fn batch(&self, caller: &Caller, changes: &[KeyChange<'_>]) -> Result<()> {
        let _pass = self.enter(true)?;
        self.values.batch(caller, changes)
    }

    fn sync(&self) -> Result<()> {
        let _pass = self.enter(false)?;
        self.values.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_closes_when_everybody_has_left() {
        let gate = Gate::default();
        let pass = gate.enter().unwrap();
        assert!(!gate.close(Duration::from_millis(1)));
        drop((pass, gate.enter().unwrap()));
        assert!(gate.close(Duration::ZERO));
        assert_eq!(gate.enter().unwrap_err().errno(), Errno::EAGAIN);
        gate.open();
        gate.enter().unwrap();
    }
}
