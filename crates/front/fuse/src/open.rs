//! Opening and closing files: reconciles the file system's choice of I/O mode
//! with the kernel's rules. Used by `ops`.

use crate::front::Front;
use crate::open_table::{Grant, Opens};
use crate::report::Op;
use braid_contract::{
    Attr, Caller, Context, Entry, Errno, Error, FileKind, HandleId, InodeId, IoMode, OpenFlags, OpenRequest,
    Opened, Operation,
};
use fuser::{BackingId, FopenFlags, INodeNo};
use rustix::io::Errno as Os;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

/// Registers a descriptor with the kernel as a backing file.
pub(crate) type Register<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<BackingId>;

/// The answer to an open.
pub(crate) struct Granted {
    pub(crate) handle: HandleId,
    pub(crate) grant: Grant<BackingId>,
}

/// A request to create and open a file.
pub(crate) struct Creation<'a> {
    pub(crate) parent: InodeId,
    pub(crate) name: NewName<'a>,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) flags: OpenFlags,
}

/// The name of a new file.
#[derive(Clone, Copy)]
pub(crate) enum NewName<'a> {
    /// This one, which may be taken unless it is exclusive.
    Name { name: &'a OsStr, exclusive: bool },
    /// None.
    None,
}

/// One open while it is being decided.
struct Opening<'a> {
    front: &'a Front,
    caller: &'a Caller,
    ino: InodeId,
    flags: OpenFlags,
    /// The kernel's cache is not to be used.
    writes_through: bool,
    register: Register<'a>,
}

impl Front {
    /// Opens a file. Opens of one inode are decided one after another.
    pub(crate) fn open_file(
        &self,
        caller: &Caller,
        ino: InodeId,
        flags: OpenFlags,
        register: Register<'_>,
    ) -> braid_contract::Result<Granted> {
        let opening = Opening { front: self, caller, ino, flags, writes_through: false, register };
        self.opens.with(ino, |opens| {
            let opened = opening.ask(opens, self.passthrough() && opens.is_closed())?;
            let granted = opening.settle(opens, opened)?;
            if flags.write && matches!(granted.grant, Grant::Passthrough(_)) {
                // A store to a mapping changes the time without notice.
                self.written_by_kernel(ino);
            }
            Ok(granted)
        })
    }

    /// Creates and opens a file.
    ///
    /// Its inode is only known afterwards. A new inode has no other opens; an
    /// existing one may be open in any mode, and this open adapts to that.
    pub(crate) fn create_file(
        &self,
        caller: &Caller,
        new: &Creation<'_>,
        register: Register<'_>,
    ) -> braid_contract::Result<(Entry, Granted)> {
        let passthrough_allowed = self.passthrough();
        let request = OpenRequest { flags: new.flags, passthrough_allowed, passthrough_required: false };
        let Creation { parent, mode, umask, .. } = *new;
        let (entry, opened) = match new.name {
            NewName::Name { name, exclusive } => {
                self.fs.create(caller, parent, name, mode, umask, exclusive, request)?
            }
            NewName::None => self.fs.tmpfile(caller, parent, mode, umask, request)?,
        };
        let ino = entry.attr.ino;
        let writes_through = entry.attr.size == 0 && new.flags.write && self.writes_through(caller);
        let opening = Opening { front: self, caller, ino, flags: new.flags, writes_through, register };
        match self.opens.with(ino, |opens| opening.settle(opens, opened)) {
            Ok(granted) => {
                if matches!(granted.grant, Grant::Passthrough(_)) {
                    // The kernel does not know the inode yet.
                    self.cached.written_directly(ino);
                }
                Ok((entry, granted))
            }
            Err(error) => {
                self.fs.forget(ino, 1);
                Err(error)
            }
        }
    }

    /// Opens a file that this request made before: the right to write to it came with making it,
    /// whatever its mode.
    pub(crate) fn open_made_before(
        &self,
        caller: &Caller,
        new: &Creation<'_>,
        register: Register<'_>,
    ) -> braid_contract::Result<(Entry, Granted)> {
        let NewName::Name { name, .. } = new.name else { return Err(Errno::EACCES.into()) };
        let entry = self.fs.lookup(caller, new.parent, name)?;
        let Attr { ino, kind, uid, size, .. } = entry.attr;
        let opened = match (kind, uid == caller.uid, size) {
            (FileKind::Regular, true, 0) => self.open_file(&Caller::stack(), ino, new.flags, register),
            _ => Err(Errno::EACCES.into()),
        };
        opened.map(|granted| (entry, granted)).inspect_err(|_| self.fs.forget(ino, 1))
    }

    /// Closes a file that the kernel has released.
    pub(crate) fn release_file(
        &self,
        ino: InodeId,
        handle: HandleId,
        flags: OpenFlags,
    ) -> braid_contract::Result<()> {
        self.opens.with(ino, |opens| {
            // The count comes first, so that it is right even if the file
            // system panics; and both come before another open of the inode.
            opens.close(flags.write);
            if opens.is_closed() {
                self.cached.closed(ino);
                self.no_room.take(INodeNo(ino.0));
                self.refusals.closed(ino);
            }
            self.fs.release(handle)
        })
    }

    /// Flags of the answer to the open of a directory. The kernel may cache the
    /// listing, and drops it when a name in the directory changes.
    pub(crate) fn dir_flags(&self) -> FopenFlags {
        if self.keeps_cache() {
            FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::empty()
        }
    }

    /// Flags of an answer to an open. A close sends no flush, unless the file system
    /// wants it: it has all writes, and does the rest at the release, for which the
    /// program does not wait.
    pub(crate) fn fopen_flags(&self, grant: &Grant<BackingId>) -> FopenFlags {
        let of_close = if self.flush_at_close { FopenFlags::empty() } else { FopenFlags::FOPEN_NOFLUSH };
        of_close
            | match grant {
                Grant::Cached if self.keeps_cache() => FopenFlags::FOPEN_KEEP_CACHE,
                Grant::Direct => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
                Grant::Cached | Grant::Passthrough(_) => FopenFlags::empty(),
            }
    }
}

impl Opening<'_> {
    fn ask(&self, opens: &Opens<BackingId>, passthrough_allowed: bool) -> braid_contract::Result<Opened> {
        let passthrough_required = opens.is_passthrough();
        self.front.fs.open(
            self.caller,
            self.ino,
            OpenRequest { flags: self.flags, passthrough_allowed, passthrough_required },
        )
    }

    /// Takes the file system's answer if the kernel allows that mode, and
    /// otherwise asks again without a choice.
    fn settle(&self, opens: &mut Opens<BackingId>, opened: Opened) -> braid_contract::Result<Granted> {
        if let Some(grant) = self.admit(opens, &opened) {
            return Ok(Granted { handle: opened.handle, grant });
        }
        self.discard(opened.handle);
        let opened = self.ask(opens, false).context("opening again without a choice of mode")?;
        if let Some(grant) = self.join(opens, &opened) {
            return Ok(Granted { handle: opened.handle, grant });
        }
        self.discard(opened.handle);
        let wanted = if opens.is_passthrough() { "passthrough" } else { "anything but passthrough" };
        Err(Error::new(Errno::EIO, format!("the open has to be {wanted}, the file system answers otherwise")))
    }

    /// Counts the open in its mode, if the kernel allows that.
    fn admit(&self, opens: &mut Opens<BackingId>, opened: &Opened) -> Option<Grant<BackingId>> {
        match &opened.mode {
            IoMode::Passthrough(fd) if opens.is_closed() && self.front.passthrough() => {
                match (self.register)(std::os::fd::AsFd::as_fd(fd)) {
                    Ok(backing) => Some(opens.begin_passthrough(backing, self.flags.write)),
                    Err(error) => {
                        self.refused(&error);
                        None
                    }
                }
            }
            _ => self.join(opens, opened),
        }
    }

    /// Counts the open beside existing ones.
    fn join(&self, opens: &mut Opens<BackingId>, opened: &Opened) -> Option<Grant<BackingId>> {
        let mode = match &opened.mode {
            IoMode::Passthrough(_) => &opened.mode,
            // A write with direct I/O to a set-id file leaves the bits in the
            // kernel's own inode, from which a program is executed. Before
            // other writes, the kernel has them cleared.
            _ if opened.set_id => &IoMode::Cached,
            _ if self.writes_through => &IoMode::Direct,
            mode if self.front.bypasses_cache(matches!(mode, IoMode::Direct)) => &IoMode::Direct,
            _ => &IoMode::Cached,
        };
        opens.join(mode, self.flags.write)
    }

    /// Handles the kernel's refusal of a backing file.
    fn refused(&self, error: &io::Error) {
        // No privilege, a kernel without the call, a home tier on a stacked
        // file system: none of these changes while mounted.
        match error.raw_os_error().map(Os::from_raw_os_error) {
            Some(Os::PERM | Os::NOTTY | Os::NOSYS | Os::OPNOTSUPP | Os::LOOP) => {
                self.front.give_up_passthrough(error);
            }
            _ => tracing::warn!("inode {} is served without passthrough: {error}", self.ino.0),
        }
    }

    /// Releases a handle that was not handed out.
    fn discard(&self, handle: HandleId) {
        let op = Op { operation: Operation::Release, ino: self.ino.0 };
        // Failures are logged; there is no more to do.
        let _ = self.front.call(op, || self.front.fs.release(handle));
    }
}
