//! A module of a library on its child, wherever its code runs.

use braid_sdk::abi::{Failure, LoadedModule, RawCrash, Target};

/// A module that was made.
pub(crate) trait Instance: Target {
    /// Its state and the version of that, for its successor; no call is under way.
    fn export(&self) -> Result<(u32, Vec<u8>), Failure>;

    /// Takes over the state of a module of the same name.
    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure>;

    /// Repairs the leftovers of a crash, before the first operation.
    fn repair(&self, crash: &RawCrash) -> Result<(), Failure>;

    /// It will not be used any more.
    fn end(&self);
}

/// One in this process.
impl Instance for LoadedModule {
    fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        Self::export(self)
    }

    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        Self::import(self, version, state)
    }

    fn repair(&self, crash: &RawCrash) -> Result<(), Failure> {
        Self::repair(self, crash)
    }

    fn end(&self) {
        Self::end(self);
    }
}
