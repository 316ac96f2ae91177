//! Keys and values behind a gate. Before requests of the kernel are held up, it is closed:
//! a request that has passed may wait for one of them.

use braid_contract::{Caller, Errno, Error, KeyChange, KeyValue, PutOptions, Result, ScanPage, ScanRange};
use braid_runtime::{Gate, Pass};
use std::sync::Arc;

/// Lets one more user in.
///
/// # Errors
/// `EAGAIN` during a pause.
pub(super) fn enter(gate: &Gate) -> Result<Pass<'_>> {
    let closed = "another process is about to go on with the mount";
    gate.try_enter().ok_or_else(|| Error::new(Errno::EAGAIN, closed))
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
        if changes && self.is_readonly { Err(Errno::EROFS.into()) } else { enter(&self.gate) }
    }
}

impl KeyValue for Gated {
    fn batch_is_atomic(&self) -> bool {
        self.values.batch_is_atomic()
    }

    fn read(&self, caller: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        let _pass = self.enter(false)?;
        self.values.read(caller, key, value, most)
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
