//! A module in Rust, as a library of its own.

use crate::bridge::carry_out;
use crate::failure::of_error;
use crate::target::{Served, capabilities_to};
use braid_contract::{Crash, FileSystem, Result};
use braid_sys::module::{Answer, Capabilities, Child, Failure, Message, Plugin, RawCrash, Target};
use serde::de::DeserializeOwned;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

/// Exported state of a module: bytes in the format of its version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Version of the format, each module's own. 0 is a module without state.
    pub version: u32,
    /// The state.
    pub bytes: Vec<u8>,
}

/// A module: a file system that wraps another one. A
/// [`Layer`](braid_contract::Layer) is a file system.
pub trait PluginModule: FileSystem + Sized + 'static {
    /// The key in a stack file: small letters, digits, `-`.
    const NAME: &'static CStr;

    /// The version, for people.
    const VERSION: &'static CStr;

    /// Whether [`export`](Self::export) may be called while operations are under way: only
    /// then is the state kept for the case of a crash.
    const EXPORTS_IN_USE: bool = false;

    /// The settings in a stack file, with `deny_unknown_fields`. Words and numbers come as
    /// such.
    type Settings: DeserializeOwned;

    /// Puts the module on top of `child`.
    ///
    /// # Errors
    /// The reason why it can't be there.
    fn new(settings: Self::Settings, child: Arc<dyn FileSystem>) -> Result<Self>;

    /// The file system will not be used any more.
    fn end(&self) {}

    /// The module's state, for its successor. No operation is under way, unless the module
    /// [says](Self::EXPORTS_IN_USE) that some may be.
    fn export(&self) -> State {
        State::default()
    }

    /// Takes over the state of a module of the same name, before the first operation.
    ///
    /// # Errors
    /// If it is of an unknown version, or invalid. Then the predecessor goes on.
    fn import(&self, state: &State) -> Result<()> {
        if *state == State::default() {
            return Ok(());
        }
        Err(braid_contract::Error::new(braid_contract::Errno::EINVAL, "it takes no state over"))
    }

    /// Repairs the leftovers of a crash of the process, after [`import`](Self::import) and before
    /// the first operation (LabStor §3.3, `StateRepair`). The child may be called.
    ///
    /// # Errors
    /// If it can't: this is reported, and the module goes on; with `ENOTRECOVERABLE`, which says
    /// that this would be wrong, the mount does not.
    fn repair(&self, after: Crash) -> Result<()> {
        let _ = after;
        Ok(())
    }
}

/// A module behind the interface.
pub struct Described<M>(M);

fn settings<M: PluginModule>(text: &[u8]) -> std::result::Result<M::Settings, Failure> {
    let read = serde_json::from_slice(text);
    read.map_err(|error| {
        let error = error.to_string();
        // The place is that of the text that Braid has made.
        let why = error.split(" at line ").next().unwrap_or_default().to_owned();
        Failure { errno: braid_contract::Errno::EINVAL.0, why }
    })
}

impl<M: PluginModule> Plugin for Described<M> {
    const NAME: &'static CStr = M::NAME;
    const VERSION: &'static CStr = M::VERSION;
    const EXPORTS_IN_USE: bool = M::EXPORTS_IN_USE;

    fn check(text: &[u8]) -> std::result::Result<(), Failure> {
        settings::<M>(text).map(|_| ())
    }

    fn create(text: &[u8], child: Child) -> std::result::Result<Self, Failure> {
        let child = Arc::new(braid_contract::Served(Served(child)));
        M::new(settings::<M>(text)?, child).map(Self).map_err(|error| of_error(&error))
    }

    fn end(&self) {
        self.0.end();
    }

    fn export(&self) -> (u32, Vec<u8>) {
        let State { version, bytes } = self.0.export();
        (version, bytes)
    }

    fn import(&self, version: u32, state: &[u8]) -> std::result::Result<(), Failure> {
        let state = State { version, bytes: state.to_owned() };
        self.0.import(&state).map_err(|error| of_error(&error))
    }

    fn repair(&self, crash: &RawCrash) -> std::result::Result<(), Failure> {
        self.0.repair(crash_of(crash)).map_err(|error| of_error(&error))
    }
}

impl<M: PluginModule> Target for Described<M> {
    fn call(&self, message: Message<'_>) -> std::result::Result<Answer, Failure> {
        carry_out(&self.0, message)
    }

    fn capabilities(&self) -> Capabilities {
        capabilities_to(&self.0.capabilities())
    }
}

/// A crash, for the interface.
#[must_use]
pub fn crash_to(crash: Crash) -> RawCrash {
    let age = crash.state_age.unwrap_or_default().as_nanos();
    RawCrash {
        count: crash.count,
        state_age: u64::try_from(age).unwrap_or(u64::MAX),
        has_state: u32::from(crash.state_age.is_some()),
        padding: 0,
    }
}

fn crash_of(crash: &RawCrash) -> Crash {
    let state_age = (crash.has_state != 0).then(|| Duration::from_nanos(crash.state_age));
    Crash { count: crash.count, state_age }
}

/// Makes the function of a library that describes its module, which implements
/// [`PluginModule`].
#[macro_export]
macro_rules! plugin {
    ($module:ty) => {
        $crate::export_module!($crate::Described<$module>);
    };
}
