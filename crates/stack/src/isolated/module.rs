//! An untrusted module, as one of a stack.

use super::pipe::{Frame, Kind};
use super::process::{Outcome, Process};
use braid_contract::Operation;
use braid_sdk::abi::{self, Answer, CAN_PASS_THROUGH, Capabilities, Failure, Message, Numbers, Target};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often its process is started again within [`AGAIN_WITHIN`], before it is left dead for
/// that time.
const AGAIN_MAX: usize = 5;

/// See [`AGAIN_MAX`].
const AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// A library that is not loaded here.
#[derive(Debug)]
pub(crate) struct IsolatedLibrary {
    pub(crate) name: String,
    pub(crate) version: String,
    /// A copy in memory.
    image: File,
    owner: (u32, u32),
}

impl IsolatedLibrary {
    /// Asks a library, in a process, which module it has.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn open(image: File, owner: (u32, u32)) -> Result<Self, String> {
        let mut library = Self { name: String::new(), version: String::new(), image, owner };
        let described = library.ask_once(Kind::Describe, &[])?;
        let text = |at| String::from_utf8_lossy(described.bytes(at)).into_owned();
        (library.name, library.version) = (text(0), text(1));
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
    /// What it can do, asked once.
    capabilities: Capabilities,
}

#[derive(Default)]
struct State {
    process: Option<Arc<Process>>,
    /// When it was started again.
    again: VecDeque<Instant>,
}

impl IsolatedModule {
    /// Makes one.
    ///
    /// # Errors
    /// Why it can't be on this child.
    pub(crate) fn create(
        library: Arc<IsolatedLibrary>,
        settings: &str,
        child: Box<dyn Target>,
    ) -> Result<Self, Failure> {
        let settings = settings.to_owned();
        let mut module =
            Self { library, settings, child, state: Mutex::default(), capabilities: Capabilities::default() };
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
            Outcome::Gone(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, error: &io::Error) -> Failure {
        let why = format!("the process of module {}: {error}", self.library.name);
        tracing::error!("{why}");
        Failure { errno: libc::EIO, why }
    }

    /// The process, started again if it is gone.
    fn process(&self) -> Result<Arc<Process>, Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &state.process {
            return Ok(Arc::clone(process));
        }
        let now = Instant::now();
        while state.again.front().is_some_and(|then| now.duration_since(*then) > AGAIN_WITHIN) {
            state.again.pop_front();
        }
        if state.again.len() >= AGAIN_MAX {
            let why = format!("module {} ended {AGAIN_MAX} times within a minute", self.library.name);
            return Err(Failure { errno: libc::EIO, why });
        }
        state.again.push_back(now);
        let process = Arc::new(self.start()?);
        tracing::warn!(
            module = self.library.name,
            "its process was started again, without what it had gathered"
        );
        state.process = Some(Arc::clone(&process));
        Ok(process)
    }

    /// Does without a process that is gone.
    fn forget(&self, process: &Arc<Process>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.process.as_ref().is_some_and(|present| Arc::ptr_eq(present, process)) {
            state.process = None;
        }
    }

    /// Asks the process, if there is one.
    fn ask(&self, kind: Kind, parts: &[&[u8]]) -> Option<Result<Frame, Failure>> {
        let process = self.state.lock().unwrap_or_else(PoisonError::into_inner).process.clone()?;
        let asked = self.ask_of(&process, kind, parts);
        if process.is_gone() {
            self.forget(&process);
            return None;
        }
        Some(asked)
    }

    /// It will not be used any more.
    pub(crate) fn end(&self) {
        // If it is gone, it has nothing to end.
        let _ = self.ask(Kind::End, &[]);
    }

    /// Its state; none if its process is gone.
    pub(crate) fn export(&self) -> Result<(u32, Vec<u8>), Failure> {
        let Some(told) = self.ask(Kind::Export, &[]) else { return Ok((0, Vec::new())) };
        let told = told?;
        let broken = |_| Failure { errno: libc::EIO, why: "it does not say its state".into() };
        Ok((told.get(0).map_err(broken)?, told.bytes(1).to_owned()))
    }

    /// Takes a state over.
    pub(crate) fn import(&self, version: u32, state: &[u8]) -> Result<(), Failure> {
        let gone = Failure { errno: libc::EIO, why: "its process has ended".into() };
        self.ask(Kind::Import, &[&version.to_le_bytes(), state]).unwrap_or(Err(gone)).map(|_| ())
    }

    /// Carries out for a process that is gone what gives something back: it is lost else.
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

/// The child, during one operation.
struct Reached<'a> {
    child: &'a dyn Target,
    /// The last descriptor that it has answered.
    descriptor: Mutex<Option<OwnedFd>>,
    is_reached: AtomicBool,
}

impl Target for Reached<'_> {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        self.is_reached.store(true, Ordering::Relaxed);
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
        let child = &*self.child;
        let below = Reached { child, descriptor: Mutex::default(), is_reached: AtomicBool::new(false) };
        match process.call(message, &below) {
            Outcome::Answered(answer) => {
                let mut answer = answer?;
                if answer.answers.io_mode == abi::PASSTHROUGH {
                    answer.descriptor = below.descriptor.into_inner().unwrap_or_else(PoisonError::into_inner);
                }
                Ok(answer)
            }
            Outcome::Gone(error) => {
                self.forget(&process);
                let failure = self.gone(&error);
                // What the child has seen is given back.
                let is_done = below.is_reached.into_inner();
                if is_done { Err(failure) } else { self.give_back(numbers, failure) }
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        // What is below may change; what the module adds does not.
        self.capabilities
    }
}
