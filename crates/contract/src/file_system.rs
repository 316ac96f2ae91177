//! The file system as an application sees it: the trait that the volume and
//! wrapping modules implement, and that every front end uses.

use crate::{Attr, Caller, FileKind, HandleId, Hint, InodeId, Result, SetAttr};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The capabilities of a file system, and how long its answers may be cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystemCapabilities {
    /// How long names and attributes stay true if no operation through this
    /// interface changes them. A file system that is the only access to its
    /// data can answer a very long time.
    pub cache_ttl: Duration,
    /// [`IoMode::Passthrough`] may be answered to [`FileSystem::open`].
    pub passthrough: bool,
    /// [`FileSystem::rename`] knows more than [`RenameMode::Replace`]; without
    /// this, a front end refuses the other modes with `EINVAL`.
    pub rename_modes: bool,
    /// POSIX ACLs are kept as the extended attributes `system.posix_acl_*`.
    pub posix_acl: bool,
    /// The close of a descriptor is to wait for [`FileSystem::flush`]; without this, a
    /// front end may leave it out.
    pub flush_at_close: bool,
    /// Callers are to come with their supplementary groups in requests that open or change
    /// something, if the front end can find them out. Unlike the other capabilities, this one may
    /// change while the file system is used.
    pub caller_groups: bool,
    /// Operations are held up on purpose: the front end is to have threads for others
    /// meanwhile, and the writer of data is to be known by the request.
    pub holds_up: bool,
    /// Each change is durable when its operation returns: the front end is to keep no write back.
    pub writes_through: bool,
}

/// The answer to a lookup: an inode, and its generation among those that had
/// its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode's attributes; `attr.ino` names it in later calls.
    pub attr: Attr,
    /// Differs between two inodes that had the same number one after another.
    pub generation: u64,
}

/// One name of a directory.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: InodeId,
    /// Offset for resuming after this entry; stable while the directory is
    /// open, and across opens where the home file system's are.
    pub next_offset: i64,
    /// Kind, where the directory itself has it.
    pub kind: Option<FileKind>,
    /// The name: 1 to 255 arbitrary bytes without `/` and NUL.
    pub name: &'a OsStr,
    /// Filled in for `readdir_plus` except for `.` and `..`; counts as one
    /// lookup when the sink takes the entry.
    pub entry: Option<Entry>,
    /// The file exists but is damaged, and can't be looked up: the entry must
    /// not be cached, so that users of the name get the error.
    pub damaged: bool,
}

/// Takes directory entries until it is full.
pub trait DirSink {
    /// Takes one entry; `false` means that there was no room for it.
    fn add(&mut self, entry: &DirEntry<'_>) -> bool;
}

impl fmt::Debug for dyn DirSink + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirSink")
    }
}

/// Flags of `open(2)` as far as a file system needs them. The kernel handles
/// the others (`O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND` …).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags {
    /// The file may be read.
    pub read: bool,
    /// The file may be written.
    pub write: bool,
    /// `O_DIRECT`: data should not stay in memory.
    pub direct: bool,
    /// `O_SYNC` or `O_DSYNC`: each write is durable when it returns.
    pub sync: bool,
}

/// A request to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenRequest {
    /// The application's flags.
    pub flags: OpenFlags,
    /// The front end can connect the kernel to a descriptor, and no other open
    /// of the inode prevents that.
    pub passthrough_allowed: bool,
    /// The inode is open by passthrough already, and the kernel accepts no
    /// other kind of open until that one ends.
    pub passthrough_required: bool,
}

impl From<OpenFlags> for OpenRequest {
    /// A request without passthrough.
    fn from(flags: OpenFlags) -> Self {
        Self { flags, ..Self::default() }
    }
}

/// How the data of an open file travels.
#[derive(Clone, Debug)]
pub enum IoMode {
    /// Through the kernel's page cache and [`FileSystem::read`], `write`.
    Cached,
    /// Each call of the application becomes one of [`FileSystem::read`],
    /// `write`.
    Direct,
    /// The kernel may do all I/O on this descriptor; the file system sees none
    /// of it until the handle is released.
    Passthrough(Arc<OwnedFd>),
}

/// An open file.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Identifies the open file until [`FileSystem::release`].
    pub handle: HandleId,
    /// How its data travels.
    pub mode: IoMode,
    /// Whether executing it may grant its owner's or its group's rights. Only
    /// matters for direct I/O.
    pub set_id: bool,
}

/// The effect of `rename` when the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// Replaces it, atomically.
    #[default]
    Replace,
    /// Fails with `EEXIST`.
    NoReplace,
    /// Exchanges the two, atomically; both must exist.
    Exchange,
    /// Replaces it, and leaves a whiteout under the old name, atomically: a
    /// character device 0, by which an overlay file system hides the entries of its lower layers.
    Whiteout,
}

/// Flags of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// The write must not stay in memory (`O_DIRECT`).
    pub direct: bool,
    /// The write must be durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// Clear the set-user-id and set-group-id bits and file capabilities; with
    /// `write_back` only the latter.
    pub kill_set_id: bool,
    /// The kernel's page cache writes back earlier writes. The caller is not
    /// their writer, and their time is set by [`FileSystem::setattr`]; data not written is lost, so
    /// a count is never short.
    pub write_back: bool,
    /// Knowledge about the data's future.
    pub hint: Hint,
}

/// The effect of `fallocate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallocateMode {
    /// Reserves space; grows the file unless `keep_size`.
    Allocate {
        /// Leaves the size alone.
        keep_size: bool,
    },
    /// Frees the space; the size stays. Reads answer zeros.
    PunchHole,
    /// Makes the range read as zeros; grows the file unless `keep_size`.
    ZeroRange {
        /// Leaves the size alone.
        keep_size: bool,
    },
}

/// The target of `lseek`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTarget {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// The effect of `setxattr` when the attribute exists or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Sets it either way.
    #[default]
    Set,
    /// Fails with `EEXIST` if it exists.
    Create,
    /// Fails with `ENODATA` if it does not.
    Replace,
}

/// Space and inodes of the whole file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes that applications may still use; at most `free`.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Block size in bytes for reporting.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
}

macro_rules! file_system_trait {
    ($(
        $(#[$doc:meta])*
        $variant:ident: fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $reply:ty, $effect:ident;
    )*) => {
        /// A file system: inode-based, like the kernel's VFS and FUSE's
        /// low-level interface. All methods block, may be called from any
        /// thread, and run in the name of their caller.
        ///
        /// **Permissions** have been checked by the front end's kernel, with
        /// all of the caller's groups; a file system uses the caller for
        /// ownership of new inodes and for rules that the kernel leaves to it
        /// (clearing set-id bits).
        ///
        /// **Lookups**: each [`Entry`] that a method returns counts as one
        /// lookup of its inode, and the inode number stays valid until
        /// [`forget`](Self::forget) has returned all of them. An inode that was
        /// removed meanwhile answers `ESTALE`, or `ENOENT` where it is looked
        /// up by name.
        ///
        /// **Numbers** are reused: once an inode has no name and is not open,
        /// an [`Entry`] with another generation may have its number, and
        /// lookups of both inodes are counted together from then on. A caller that sees the
        /// generation change must drop all its knowledge under that number.
        ///
        /// **Locking** is the implementation's. Callers hold no lock of any
        /// kind, and may create, look up, link, remove and rename in the same
        /// directories at the same time; implementations do not rely on the
        /// directory locks of the kernel. Each operation on names is atomic: of
        /// several that create a name one succeeds and the others answer
        /// `EEXIST`, of several that remove it one succeeds and the others
        /// answer `ENOENT`, a name that is replaced always exists, and no two
        /// renames of directories put each into the other. An answer describes
        /// the inode that the operation itself created or found, whatever
        /// happens to the name next. Anything may change between two calls: a
        /// caller that looks a name up and then uses the inode has to expect
        /// `ESTALE`, and to look it up again.
        ///
        /// Reads and writes of one file may overlap in time: each byte is one
        /// of those that were written there, in no order. Callers that append
        /// at the same time have to agree on the offsets. Several threads may
        /// use an open file or directory at once; its release must be the last
        /// use, and later ones answer `EBADF`.
        ///
        /// **Durability**: nothing is promised to survive power loss until
        /// [`fsync`](Self::fsync), [`sync_dir`](Self::sync_dir) or a write with
        /// [`WriteFlags::sync`] has returned.
        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes, reason = "rows are as they are")]
        pub trait FileSystem: Send + Sync {
            /// The capabilities of this file system.
            fn capabilities(&self) -> FileSystemCapabilities;

            $(
                $(#[$doc])*
                fn $name<'a>(&self, $($arg: $type),*) -> $reply;
            )*
        }
    };
}

operations!(file_system_trait);

/// A front end's cache: of names and attributes, valid as long as only requests
/// through the front end change them, and of data.
pub trait FrontCache: Send + Sync {
    /// Names were added to a directory, taken out of it, or lead elsewhere,
    /// without such a request. The caller holds no lock that a request waits
    /// for.
    fn names_came(&self, dir: InodeId, names: &[OsString]);
    /// An inode's attributes changed without such a request.
    fn attributes_changed(&self, ino: InodeId);
    /// A file's data or size changed without such a request: its data in the cache is written back
    /// and dropped, by requests that the caller must not hold up. A front end that keeps sizes
    /// itself does so while the file is open.
    fn data_changed(&self, ino: InodeId);
    /// Drops inodes that nothing uses from the cache, by requests that the
    /// caller must not hold up; [`FileSystem::forget`] then returns their
    /// lookups. Others are skipped.
    ///
    /// # Errors
    /// `EINVAL` if the front end has no way to do so.
    fn forget(&self, inodes: &[InodeId]) -> Result<()>;
    /// Whether the front end knows an inode: then it gives back its lookups at some time. The
    /// caller must not hold up requests.
    fn knows(&self, ino: InodeId) -> bool;
    /// Writes back the data of an inode that only the cache has, by requests
    /// that the caller must not hold up.
    ///
    /// # Errors
    /// Those of the requests.
    fn write_back(&self, ino: InodeId) -> Result<()>;
    /// The same for all inodes of which only the cache may have data.
    ///
    /// # Errors
    /// Those of the requests; all were tried.
    fn write_back_all(&self) -> Result<()>;
}
