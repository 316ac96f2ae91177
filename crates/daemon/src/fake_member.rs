//! A module for tests, which reports the requests to it.

use braid_contract::{Crash, Errno, FileSystem, Layer, Result, Served};
use braid_modules::{Member, State};
use braid_testkit::every_operation::Recorder;
use std::sync::{Arc, Mutex};

pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) child: Served<Recorder>,
    pub(crate) told: Arc<Mutex<Vec<String>>>,
    pub(crate) snapshot: Mutex<std::result::Result<Option<State>, Errno>>,
    pub(crate) repair: std::result::Result<(), Errno>,
}

impl Fake {
    pub(crate) fn new(name: &'static str) -> Self {
        let (child, told) = (Served(Recorder::default()), Arc::default());
        Self { name, child, told, snapshot: Mutex::new(Ok(None)), repair: Ok(()) }
    }

    pub(crate) fn has(&self, snapshot: std::result::Result<&[u8], Errno>) {
        let state = |bytes: &[u8]| Some(State { version: 1, bytes: bytes.to_vec() });
        *self.snapshot.lock().unwrap() = snapshot.map(state);
    }

    fn tell(&self, what: &str) {
        self.told.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Layer for Fake {
    fn child(&self) -> &dyn FileSystem {
        &self.child
    }
}

impl Member for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn export(&self) -> Result<State> {
        Ok(State::default())
    }

    fn import(&self, state: &State) -> Result<()> {
        let words = String::from_utf8_lossy(&state.bytes).into_owned();
        self.tell(&format!("takes {words}"));
        if words == "refused" { Err(Errno::EINVAL.into()) } else { Ok(()) }
    }

    fn snapshot(&self) -> Result<Option<State>> {
        self.tell("is asked");
        self.snapshot.lock().unwrap().clone().map_err(Into::into)
    }

    fn repair(&self, after: Crash) -> Result<()> {
        let anew = if after.state_age.is_none() { " anew" } else { "" };
        self.tell(&format!("repairs {}{anew}", after.count));
        self.repair.map_err(Into::into)
    }

    fn end(&self) {}
}
