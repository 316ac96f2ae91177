//! An untrusted module, as one of a stack.

use super::frame::{Frame, Kind, words};
use super::process::{Outcome, Process};
use crate::instance::Instance;
use braid_contract::Operation;
use braid_sdk::abi::{
    self, Answer, CAN_PASS_THROUGH, Capabilities, Failure, Message, Numbers, RawCrash, Target,
};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often its process is started again within [`AGAIN_WITHIN`], before it is left dead for
/// that time.
const AGAIN_MAX: usize = 5;

/// See [`AGAIN_MAX`].
const AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// How long operations wait for it to be started again: longer than that may take.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// Longest name and version, in bytes.
const NAME_MAX: usize = 64;

/// A library that is not loaded here.
#[derive(Debug)]
pub(crate) struct IsolatedLibrary {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether its modules' state may be asked for while operations are under way.
    pub(crate) exports_in_use: bool,
    /// A copy in memory.
    image: File,
    owner: u32,
}

impl IsolatedLibrary {
    /// Asks a library, in a process, for its module.
    ///
    /// # Errors
    /// The reason why it is none.
    pub(crate) fn open(image: File, owner: u32) -> Result<Self, String> {
        let (name, version) = (String::new(), String::new());
        let mut library = Self { name, version, exports_in_use: false, image, owner };
        let described = library.ask_once(Kind::Describe, &[])?;
        let text = |at| words(described.bytes(at), NAME_MAX);
        (library.name, library.version) = (text(0), text(1));
        library.exports_in_use = described.get::<u32>(2).is_ok_and(|in_use| in_use != 0);
        if !abi::is_module_name(&library.name) {
            return Err("its name is not one of a module".into());
        }
        Ok(library)
    }

    /// Whether these settings are right.
    pub(crate) fn check(&self, settings: &str) -> Result<(), String> {
        self.ask_once(Kind::Check, &[settings.as_bytes()]).map(|_| ())
    }

    /// Asks a process of its own.
    fn ask_once(&self, kind: Kind, parts: &[&[u8]]) -> Result<Frame, String> {
        let process = self.start().map_err(|error| error.to_string())?;
        match process.ask_alone(kind, parts) {
            Outcome::Answered(answer) => answer.map_err(|failure| failure.why),
            Outcome::Busy(failure) => Err(failure.why),
            Outcome::Gone(error) => Err(format!("its process: {error}")),
        }
    }

    fn start(&self) -> io::Result<Process> {
        Process::start(&self.image, self.owner)
    }
}

/// An untrusted module, on its child.
pub(crate) struct IsolatedModule {
    library: Arc<IsolatedLibrary>,
    settings: String,
    child: Box<dyn Target>,
    state: Mutex<State>,
    /// It is not being started any more.
    started: Condvar,
    /// Its capabilities, asked for once.
    capabilities: Capabilities,
}

#[derive(Default)]
struct State {
    process: Option<Arc<Process>>,
    /// One thread does that, and holds nothing else up.
    is_starting: bool,
    /// When it was started again.
    again: VecDeque<Instant>,
}

impl IsolatedModule {
    /// Makes one.
    ///
    /// # Errors
    /// The reason why it can't be on this child.
    pub(crate) fn create(
        library: Arc<IsolatedLibrary>,
        settings: &str,
        child: Box<dyn Target>,
    ) -> Result<Self, Failure> {
        let settings = settings.to_owned();
        let mut module = Self {
            library,
            settings,
            child,
            state: Mutex::default(),
            started: Condvar::new(),
            capabilities: Capabilities::default(),
        };
        let process = module.start()?;
        let told = module.ask_of(&process, Kind::Capabilities, &[])?;
        let broken = |_| Failure { errno: libc::EIO, why: "it does not say what it can do".into() };
        module.capabilities = told.get(0).map_err(broken)?;
        // Descriptors do not come out of its process.
        module.capabilities.flags &= !CAN_PASS_THROUGH;
        module.state.get_mut().unwrap_or_else(PoisonError::into_inner).process = Some(Arc::new(process));
        Ok(module)
    }

    fn start(&self) -> Result<Process, Failure> {
        let failed = |error: io::Error| Failure { errno: libc::EIO, why: format!("its process: {error}") };
        let process = self.library.start().map_err(failed)?;
        self.ask_of(&process, Kind::Create, &[self.settings.as_bytes()])?;
        Ok(process)
    }

    fn ask_of(&self, process: &Process, kind: Kind, parts: &[&[u8]]) -> Result<Frame, Failure> {
        match process.ask(kind, parts, &*self.child) {
            Outcome::Answered(answer) => answer,
            Outcome::Busy(failure) => Err(failure),
            Outcome::Gone(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, error: &io::Error) -> Failure {
        let why = format!("the process of module {}: {error}", self.library.name);
        tracing::error!("{why}");
        Failure { errno: libc::EIO, why }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process, started again if it is gone.
    fn process(&self) -> Result<Arc<Process>, Failure> {
        if let Some(process) = self.present()? {
            return Ok(process);
        }
        // Code of the library runs meanwhile, and may wait for an operation of this very
        // stack: nothing is locked.
        let _turn = Turn(self);
        let process = Arc::new(self.start()?);
        tracing::warn!(
            module = self.library.name,
            "its process was started again, without what it had gathered"
        );
        self.state().process = Some(Arc::clone(&process));
        Ok(process)
    }

    /// The process; `None` if it is this thread's [`Turn`] to start it.
    fn present(&self) -> Result<Option<Arc<Process>>, Failure> {
        let failure = |what: &str| {
            Err(Failure { errno: libc::EIO, why: format!("module {} {what}", self.library.name) })
        };
        let is_starting = |state: &mut State| state.is_starting;
        let waited = self.started.wait_timeout_while(self.state(), STARTED_WITHIN, is_starting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &state.process {
            return Ok(Some(Arc::clone(process)));
        }
        if state.is_starting {
            return failure("is being started again");
        }
        let now = Instant::now();
        while state.again.front().is_some_and(|then| now.duration_since(*then) > AGAIN_WITHIN) {
            state.again.pop_front();
        }
        if state.again.len() >= AGAIN_MAX {
            return failure(&format!("ended {AGAIN_MAX} times within a minute"));
        }
        state.again.push_back(now);
        state.is_starting = true;
        Ok(None)
    }

    /// Does without a process that is gone.
    fn forget(&self, process: &Arc<Process>) {
        let mut state = self.state();
        if state.process.as_ref().is_some_and(|present| Arc::ptr_eq(present, process)) {
            state.process = None;
        }
    }

    /// Asks the process, if there is one.
    fn ask(&self, kind: Kind, parts: &[&[u8]]) -> Option<Result<Frame, Failure>> {
        let process = self.state().process.clone()?;
        let asked = self.ask_of(&process, kind, parts);
        if process.is_gone() {
            self.forget(&process);
            return None;
        }
        Some(asked)
    }

    /// Carries out operations that give something back for a process that is gone: they would be
    /// lost otherwise.
    fn give_back(&self, numbers: Numbers, failure: Failure) -> Result<Answer, Failure> {
        let operation = Operation::ALL.get(numbers.operation as usize);
        match operation {
            Some(Operation::Forget | Operation::Release | Operation::ReleaseDir) => {
                self.child.call(Message::new(numbers))
            }
            _ => Err(failure),
        }
    }
}

impl Instance for IsolatedModule {
    /// None if its process is gone.
    fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        let Some(told) = self.ask(Kind::Export, &[]) else { return Ok((0, Vec::new())) };
        let told = told?;
        let broken = |_| Failure { errno: libc::EIO, why: "it does not say its state".into() };
        Ok((told.get(0).map_err(broken)?, told.bytes(1).to_owned()))
    }

    fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        self.ask(Kind::Import, &[&version.to_le_bytes(), state]).unwrap_or_else(|| Err(ended())).map(|_| ())
    }

    fn repair(&self, crash: &RawCrash) -> Result<(), Failure> {
        self.ask(Kind::Repair, &[bytemuck::bytes_of(crash)]).unwrap_or_else(|| Err(ended())).map(|_| ())
    }

    fn end(&self) {
        // If its process is gone, it has nothing to end.
        let _ = self.ask(Kind::End, &[]);
    }
}

fn ended() -> Failure {
    Failure { errno: libc::EIO, why: "its process has ended".into() }
}

/// A thread's turn to start the process, until it has done so or failed.
struct Turn<'a>(&'a IsolatedModule);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().is_starting = false;
        self.0.started.notify_all();
    }
}

/// The child, during one operation.
struct Reached<'a> {
    child: &'a dyn Target,
    operation: Numbers,
    /// The last descriptor that it has answered.
    descriptor: Mutex<Option<OwnedFd>>,
    /// Whether the operation itself has come to it, and not others that the module needs.
    is_reached: AtomicBool,
}

impl<'a> Reached<'a> {
    fn new(child: &'a dyn Target, operation: Numbers) -> Self {
        Self { child, operation, descriptor: Mutex::default(), is_reached: AtomicBool::new(false) }
    }
}

impl Target for Reached<'_> {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let what = |numbers: &Numbers| (numbers.operation, numbers.ino, numbers.handle);
        if what(&message.numbers) == what(&self.operation) {
            self.is_reached.store(true, Ordering::Relaxed);
        }
        let mut answer = self.child.call(message)?;
        *self.descriptor.lock().unwrap_or_else(PoisonError::into_inner) = answer.descriptor.take();
        Ok(answer)
    }

    fn capabilities(&self) -> Capabilities {
        self.child.capabilities()
    }
}

impl Target for IsolatedModule {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let numbers = message.numbers;
        let process = match self.process() {
            Ok(process) => process,
            Err(failure) => return self.give_back(numbers, failure),
        };
        let below = Reached::new(&*self.child, numbers);
        match process.call(message, &below) {
            Outcome::Answered(answer) => {
                let mut answer = answer?;
                if answer.answers.io_mode == abi::PASSTHROUGH {
                    answer.descriptor = below.descriptor.into_inner().unwrap_or_else(PoisonError::into_inner);
                }
                Ok(answer)
            }
            Outcome::Busy(failure) => self.give_back(numbers, failure),
            Outcome::Gone(error) => {
                self.forget(&process);
                let failure = self.gone(&error);
                // The operation has reached the child, so it was given back.
                let is_done = below.is_reached.into_inner();
                if is_done { Err(failure) } else { self.give_back(numbers, failure) }
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        // Capabilities below may change; those of the module do not.
        self.capabilities
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolated::pipe::Nothing;

    #[test]
    fn only_the_operation_itself_gives_back() {
        let release = |handle| Numbers { operation: Operation::Release as u32, handle, ..Numbers::default() };
        let below = Reached::new(&Nothing, release(7));
        let reached = |numbers| {
            below.call(Message::new(numbers)).unwrap_err();
            below.is_reached.load(Ordering::Relaxed)
        };
        assert!(!reached(Numbers { operation: Operation::Statfs as u32, ..Numbers::default() }));
        assert!(!reached(release(8)));
        assert!(reached(release(7)));
    }
}
