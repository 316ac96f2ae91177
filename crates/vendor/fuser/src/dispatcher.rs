//! Serving requests by threads, and from sources, of the user's choice.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;

use crate::BackingId;
use crate::Filesystem;
use crate::ReplyEmpty;
use crate::Session;
use crate::SessionACL;
use crate::channel::Answer;
use crate::channel::Channel;
use crate::dev_fuse::DevFuse;
use crate::ll::Operation;
use crate::ll::Version;
use crate::ll::fuse_abi::fuse_opcode;
use crate::mnt::mount_options::Config;
use crate::request::RequestWithSender;
use crate::request_param::FUSE_UNIQUE_RESEND;
use crate::session::SessionEventLoop;

/// Hands requests of a session to its filesystem. One is for one thread at a
/// time; clones share the filesystem, which is destroyed with the last.
pub struct Dispatcher<FS: Filesystem>(pub(crate) SessionEventLoop<FS>);

impl<FS: Filesystem> Clone for Dispatcher<FS> {
    fn clone(&self) -> Self {
        self.with_channel(self.0.ch.clone())
    }
}

impl<FS: Filesystem> AsFd for Dispatcher<FS> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.ch.as_fd()
    }
}

impl<FS: Filesystem> Dispatcher<FS> {
    fn with_channel(&self, ch: crate::channel::Channel) -> Self {
        Self(SessionEventLoop {
            thread_name: self.0.thread_name.clone(),
            filesystem: self.0.filesystem.clone(),
            ch,
            allowed: self.0.allowed,
            session_owner: self.0.session_owner,
        })
    }

    /// A dispatcher with a queue of its own for requests in progress
    /// (`FUSE_DEV_IOC_CLONE`).
    ///
    /// # Errors
    /// The device can't be opened again.
    #[cfg(target_os = "linux")]
    pub fn with_own_queue(&self) -> io::Result<Self> {
        Ok(self.with_channel(self.0.ch.clone_fd()?))
    }

    /// Reads the next request from the device; `None` once the session is over.
    ///
    /// # Errors
    /// Those of the device.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.ch.receive_retrying(buffer) {
            Ok(size) => Ok(Some(size)),
            Err(Errno::ENODEV) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a request, as [`receive`](Self::receive) does, if there is one: the
    /// device must not block.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.ch.receive(buffer) {
            Ok(size) => Ok(Some(size)),
            Err(Errno::ENODEV) => Ok(None),
            Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The filesystem; `None` once it is destroyed.
    pub fn filesystem(&self) -> Option<&FS> {
        self.0.filesystem.fs.as_ref()
    }

    /// Serves one request, with its header at the beginning of `request`, which
    /// is aligned to 8 bytes. The reply goes to `answer`, or to the device,
    /// perhaps later. Answers whether the session goes on.
    ///
    /// # Errors
    /// The request can't be read.
    pub fn serve(&self, request: &[u8], answer: Option<Arc<dyn Answer>>) -> io::Result<bool> {
        let sender = match answer {
            Some(answer) => self.0.ch.sender_to(answer),
            None => self.0.ch.sender(),
        };
        let Some(request) = RequestWithSender::new(sender, request) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "Invalid request",
            ));
        };
        if let Ok(Operation::Destroy(_)) = request.request.operation() {
            request.reply::<ReplyEmpty>().ok();
            return Ok(false);
        }
        request.dispatch(&self.0);
        Ok(true)
    }
}

/// Whether the kernel sent this request before ([`Request::is_sent_again`](crate::Request::is_sent_again)).
pub fn is_sent_again(request: &[u8]) -> bool {
    let unique = request.get(8..16).and_then(|bytes| bytes.try_into().ok());
    unique.map_or(0, u64::from_ne_bytes) & FUSE_UNIQUE_RESEND != 0
}

/// Whether this request tells what the kernel forgot. It has no answer.
pub fn is_forget(request: &[u8]) -> bool {
    let forgets = [fuse_opcode::FUSE_FORGET, fuse_opcode::FUSE_BATCH_FORGET].map(|code| code as u32);
    let opcode = request.get(4..8).and_then(|bytes| bytes.try_into().ok());
    opcode.map(u32::from_ne_bytes).is_some_and(|opcode| forgets.contains(&opcode))
}

impl<FS: Filesystem> Dispatcher<FS> {
    /// Answers a request that came by the device with this error, and does nothing else
    /// with it.
    ///
    /// # Errors
    /// Those of the device; if this is no request.
    pub fn refuse(&self, request: &[u8], errno: i32) -> io::Result<()> {
        let unique = request.get(8..16).ok_or(io::ErrorKind::InvalidData)?;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&16_u32.to_ne_bytes());
        header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        header[8..].copy_from_slice(unique);
        self.0.ch.sender().send(&[io::IoSlice::new(&header)])
    }
}

/// Wraps backing files that an earlier process registered with the session.
#[derive(Debug)]
pub struct Backings(Arc<DevFuse>);

impl Backings {
    /// The backing file of this number, which the wrapper closes in the end.
    pub fn wrap(&self, backing_id: u32) -> BackingId {
        BackingId {
            channel: Arc::downgrade(&self.0),
            backing_id,
        }
    }
}

impl<FS: Filesystem> Session<FS> {
    /// Goes on with a session that another process began, by a copy of its device.
    /// `version` is the protocol's that it agreed on with the kernel.
    pub fn resumed(
        fd: OwnedFd,
        acl: SessionACL,
        config: Config,
        version: (u32, u32),
        make: impl FnOnce(&Backings) -> FS,
    ) -> Self {
        let device = Arc::new(DevFuse(File::from(fd)));
        let filesystem = make(&Backings(device.clone()));
        Self::without_handshake(filesystem, Channel::new(device), acl, config, Version(version.0, version.1))
    }

    /// The protocol's version that was agreed on with the kernel.
    pub fn protocol(&self) -> Option<(u32, u32)> {
        self.proto_version.map(|Version(major, minor)| (major, minor))
    }
}
