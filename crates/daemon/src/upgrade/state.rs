//! What goes from one process to the other.

use braid_fuse::{FrontState, Given};
use braid_ipc::protocol::Upgrade;
use braid_modules::State;
use braid_stores::native::KernelFd;
use braid_volume::LiveState;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// The part that is text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Text {
    front: FrontState,
    /// Whether the memory of rings comes with it.
    rings: bool,
    live: LiveState,
    /// Of each module from the top down: its name, and what it has gathered.
    modules: Vec<(String, u32, Vec<u8>)>,
    /// The control socket, if there is one.
    socket: Option<PathBuf>,
    /// When requests were held up, as time since the machine began.
    pub(crate) paused_at_ns: u64,
    pub(crate) history: Upgrade,
}

/// A mount that is not served at present: all that a process needs to go on with it.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) front: Given,
    pub(crate) live: LiveState,
    pub(crate) modules: Vec<(String, State)>,
    /// The control socket.
    pub(crate) control: Option<(PathBuf, UnixListener)>,
    pub(crate) paused_at_ns: u64,
    pub(crate) history: Upgrade,
}

/// The same in the form in which it is handed over.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(super) text: Text,
    pub(super) inodes: Vec<u8>,
    /// The device, the memory of rings and the control socket if there are such, then inodes without a name.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Inheritance {
    /// The form in which it is handed over.
    ///
    /// # Errors
    /// If an inode without a name has no descriptor of the kernel, or there are no
    /// descriptors left.
    pub(crate) fn pack(&self) -> io::Result<Handover> {
        let (inodes, nameless) = self.live.parts();
        let mut descriptors = vec![self.front.device.try_clone()?];
        let rings = self.front.memory();
        if let Some(memory) = rings {
            descriptors.push(memory.try_clone_to_owned()?);
        }
        if let Some((_, listener)) = &self.control {
            descriptors.push(listener.try_clone()?.into());
        }
        for fd in nameless {
            let fd = fd.kernel_fd().ok_or_else(|| io::Error::other("an inode has no descriptor"))?;
            descriptors.push(fd.try_clone()?);
        }
        let modules = self.modules.iter();
        let modules = modules.map(|(name, state)| (name.clone(), state.version, state.bytes.clone()));
        let text = Text {
            front: self.front.state.clone(),
            rings: rings.is_some(),
            live: self.live.clone(),
            modules: modules.collect(),
            socket: self.control.as_ref().map(|(path, _)| path.clone()),
            paused_at_ns: self.paused_at_ns,
            history: self.history.clone(),
        };
        Ok(Handover { text, inodes: inodes.to_vec(), descriptors })
    }
}

impl Handover {
    pub(super) fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }

    /// The mount, in the process that goes on with it.
    ///
    /// # Errors
    /// If descriptors are missing.
    pub(crate) fn unpack(self) -> io::Result<Inheritance> {
        let mut descriptors = self.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| io::Error::other("descriptors are missing"));
        let Text { front, rings, live, modules, socket, paused_at_ns, history } = self.text;
        let device = next()?;
        let memory = rings.then(&mut next).transpose()?;
        let control = socket.map(|path| Ok::<_, io::Error>((path, next()?.into()))).transpose()?;
        let nameless = descriptors.map(KernelFd::received).collect();
        let modules = modules.into_iter().map(|(name, version, bytes)| (name, State { version, bytes }));
        Ok(Inheritance {
            front: Given::received(front, device, memory)?,
            live: live.with_parts(self.inodes, nameless),
            modules: modules.collect(),
            control,
            paused_at_ns,
            history,
        })
    }
}
