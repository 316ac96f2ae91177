//! The process of an untrusted module.

use super::frame::{Frame, Kind};
use super::pipe::{Nothing, Pipe};
use super::sandbox;
use braid_sdk::abi::{Answer, Capabilities, Failure, LoadedModule, Message, ModuleLibrary, Target};
use braid_sys::{exit_at_once, receive_descriptors};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::{self, ThreadId};

/// The first data of the process, on its standard input: the number of sockets that follow the
/// library, whether it is to become another user's, that user, and the process that has started it.
pub(super) type Head = [u32; 4];

/// Serves as the process of an untrusted module, which Braid has started for that. It ends
/// when Braid does.
///
/// # Errors
/// The reason why it can't.
pub fn run() -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    let stdin = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(said)?);
    let mut head = [0; size_of::<Head>()];
    (&stdin).read_exact(&mut head).map_err(said)?;
    let [sockets, switches, uid, parent] = bytemuck::cast::<_, Head>(head);
    let mut descriptors = receive_descriptors(&stdin, sockets as usize + 1).map_err(said)?;
    let library = File::from(descriptors.remove(0));
    let confined = sandbox::confine((switches != 0).then_some(uid), parent);
    let host = Arc::new(Host::default());
    // All threads are there before any code of the library runs, which can make none.
    host.start_threads(descriptors).map_err(said)?;
    let loaded = confined
        .and_then(|()| sandbox::before_loading())
        .and_then(|()| ModuleLibrary::load(&library))
        .and_then(|library| sandbox::after_loading().map(|()| Arc::new(library)));
    host.loaded.get_or_init(|| loaded);
    // Only the end of the connection to Braid comes here. The module may be at work for good.
    let _ = (&stdin).read(&mut [0]);
    exit_at_once()
}

/// The pipes by which threads get requests at present.
type Pipes = Arc<RwLock<HashMap<ThreadId, Arc<Pipe>>>>;

#[derive(Default)]
struct Host {
    loaded: OnceLock<Result<Arc<ModuleLibrary>, String>>,
    module: OnceLock<Arc<LoadedModule>>,
    pipes: Pipes,
}

impl Host {
    /// Starts a thread for each socket, and comes back when all run.
    fn start_threads(self: &Arc<Self>, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        for socket in sockets {
            let (host, tell) = (Arc::clone(self), tell.clone());
            let pipe = Arc::new(Pipe::new(socket.into()));
            thread::Builder::new().name("module".into()).spawn(move || {
                drop(tell);
                host.serve(&pipe);
            })?;
        }
        drop(tell);
        // An error is the end of the last sender, which is expected.
        let _: Result<(), _> = told.recv();
        Ok(())
    }

    fn serve(&self, pipe: &Arc<Pipe>) {
        let mut pipes = self.pipes.write().unwrap_or_else(PoisonError::into_inner);
        pipes.insert(thread::current().id(), Arc::clone(pipe));
        drop(pipes);
        self.loaded.wait();
        // An error is the end of Braid, or of its connection to this process.
        while let Ok(frame) = pipe.receive() {
            if self.answer(pipe, &frame).is_err() {
                return;
            }
        }
    }

    fn answer(&self, pipe: &Pipe, frame: &Frame) -> io::Result<()> {
        if frame.kind == Kind::Call {
            return match self.module() {
                Ok(module) => pipe.serve(frame, &*module),
                Err(failure) => pipe.fail(&failure),
            };
        }
        match self.other(frame)? {
            Ok(parts) => pipe.answer(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            Err(failure) => pipe.fail(&failure),
        }
    }

    /// Answers a frame that is not an operation.
    fn other(&self, frame: &Frame) -> io::Result<Result<Vec<Vec<u8>>, Failure>> {
        let failed = |why: &String| Failure { errno: libc::EINVAL, why: why.clone() };
        let library = self.loaded.wait().as_ref().map_err(failed);
        let text = || String::from_utf8_lossy(frame.bytes(0)).into_owned();
        let nothing = |()| Vec::new();
        Ok(match frame.kind {
            Kind::Describe => library.map(|library| {
                let in_use = u32::from(library.exports_in_use());
                vec![library.name().into(), library.version().into(), in_use.to_le_bytes().to_vec()]
            }),
            Kind::Check => {
                library.and_then(|library| library.check(&text()).map_err(|why| failed(&why))).map(nothing)
            }
            Kind::Create => library.and_then(|library| self.create(library, &text())).map(nothing),
            Kind::Capabilities => {
                self.module().map(|module| vec![bytemuck::bytes_of(&module.capabilities()).to_owned()])
            }
            Kind::Export => self
                .module()
                .and_then(|module| module.export())
                .map(|(version, state)| vec![version.to_le_bytes().to_vec(), state]),
            Kind::Import => {
                let version = frame.get::<u32>(0)?;
                self.module().and_then(|module| module.import(version, frame.bytes(1))).map(nothing)
            }
            Kind::Repair => {
                let crash = frame.get(0)?;
                self.module().and_then(|module| module.repair(&crash)).map(nothing)
            }
            Kind::End => self.module().map(|module| module.end()).map(nothing),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }

    fn create(&self, library: &Arc<ModuleLibrary>, settings: &str) -> Result<(), Failure> {
        let below = Below(Arc::clone(&self.pipes));
        let module = Arc::new(library.create(settings, Box::new(below))?);
        let again = |_| Failure { errno: libc::EEXIST, why: "there is a module already".into() };
        self.module.set(module).map_err(again)
    }

    fn module(&self) -> Result<Arc<LoadedModule>, Failure> {
        let none = Failure { errno: libc::EINVAL, why: "there is no module yet".into() };
        self.module.get().cloned().ok_or(none)
    }
}

/// The file system below the module. Requests go to Braid by the pipe of their thread.
struct Below(Pipes);

impl Below {
    fn pipe(&self) -> Result<Arc<Pipe>, Failure> {
        let pipes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        pipes.get(&thread::current().id()).cloned().ok_or_else(|| Failure {
            errno: libc::EPERM,
            why: "an untrusted module asks from a thread of its own".into(),
        })
    }
}

fn gone(error: &io::Error) -> Failure {
    Failure { errno: libc::EIO, why: error.to_string() }
}

impl Target for Below {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        self.pipe()?.call(message, &Nothing).map_err(|error| gone(&error))?
    }

    fn capabilities(&self) -> Capabilities {
        let ask = || self.pipe().ok()?.ask(Kind::Capabilities, &[], &Nothing).ok()?.ok()?.get(0).ok();
        ask().unwrap_or_default()
    }
}
