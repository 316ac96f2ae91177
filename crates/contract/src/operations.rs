//! The operations of a file system: one table, from which all code that treats
//! them alike is generated.
//!
//! A row is a method of [`FileSystem`](crate::FileSystem) with its
//! documentation:
//!
//! ```text
//! /// Its effect, also in edge cases.
//! Variant: fn method(argument: Type, …) -> Reply, effect;
//! ```
//!
//! * `Variant` names the operation in [`Operation`](crate::Operation),
//!   [`Request`](crate::Request) and [`Reply`](crate::Reply).
//! * Arguments come without `self`. Borrowed data lives for `'a`, the length of the call.
//! * `Reply` is a [`Result`](crate::Result), or `()` if the operation can't
//!   fail.
//! * `effect` is `changes` if data, names or attributes may change, and
//!   `observes` if not. Syncs, opening and closing change nothing, and access
//!   times do not count.
//!
//! `operations!(generator)` calls the macro `generator!` with all rows. The
//! generators are `file_system_trait!` (`file_system.rs`), `requests!`
//! (`request.rs`), `forwarding!` (`layer.rs`), and `bridge!` of `braid-sdk`, for modules
//! in libraries: there, the names of arguments say where each goes. A new operation is one
//! row here, a line in [`Operation::is_idempotent`](crate::Operation::is_idempotent), and one method
//! wherever a file system is implemented.

use crate::Operation;

/// Calls a macro with all rows of the [table of operations](crate::Operation).
#[macro_export]
macro_rules! operations {
    ($generator:ident) => {
        $generator! {
            /// Finds `name` in the directory `parent`. `ENOENT` if there is
            /// none. `.` is the inode `parent` itself, of whatever kind, and
            /// `..` the parent of a directory. Both work even for an inode that
            /// was forgotten, with `ESTALE` if it can't be found by its number.
            Lookup: fn lookup(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
            ) -> Result<Entry>, observes;

            /// Takes back `count` lookups of `ino`. Never fails: an unknown inode
            /// is ignored.
            Forget: fn forget(ino: InodeId, count: u64) -> (), observes;

            /// Returns the attributes of an inode, or, if `handle` is given, of
            /// that open file, whatever `ino` is then.
            Getattr: fn getattr(
                caller: &'a Caller,
                ino: InodeId,
                handle: Option<HandleId>,
            ) -> Result<Attr>, observes;

            /// Changes attributes and returns the new ones. `EFBIG` for a size beyond
            /// the file system's limit.
            Setattr: fn setattr(
                caller: &'a Caller,
                ino: InodeId,
                handle: Option<HandleId>,
                changes: &'a SetAttr,
            ) -> Result<Attr>, changes;

            /// Target of a symbolic link.
            Readlink: fn readlink(caller: &'a Caller, ino: InodeId) -> Result<Vec<u8>>, observes;

            /// Creates a regular file, device, pipe or socket: `mode` with type
            /// bits, before `umask` is applied. `EEXIST` if the name is taken.
            Mknod: fn mknod(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
                mode: u32,
                umask: u32,
                rdev: u32,
            ) -> Result<Entry>, changes;

            /// Creates a directory.
            Mkdir: fn mkdir(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
                mode: u32,
                umask: u32,
            ) -> Result<Entry>, changes;

            /// Creates a symbolic link to `target`.
            Symlink: fn symlink(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
                target: &'a OsStr,
            ) -> Result<Entry>, changes;

            /// Adds a name to the inode. `ENOENT` if it had names and lost the
            /// last one.
            Link: fn link(
                caller: &'a Caller,
                ino: InodeId,
                parent: InodeId,
                name: &'a OsStr,
            ) -> Result<Entry>, changes;

            /// Removes a name that is not a directory's. The data is removed
            /// when the last name and the last open file are gone.
            Unlink: fn unlink(caller: &'a Caller, parent: InodeId, name: &'a OsStr) -> Result<()>, changes;

            /// Removes an empty directory.
            Rmdir: fn rmdir(caller: &'a Caller, parent: InodeId, name: &'a OsStr) -> Result<()>, changes;

            /// Renames, atomically, also with other operations on the two names
            /// at the same time. The implementation has to find the inode that
            /// loses the new name.
            Rename: fn rename(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
                new_parent: InodeId,
                new_name: &'a OsStr,
                mode: RenameMode,
            ) -> Result<()>, changes;

            /// Opens a regular file. Returns [`IoMode::Passthrough`] only if the
            /// request allows it, and always if it requires it.
            Open: fn open(
                caller: &'a Caller,
                ino: InodeId,
                request: OpenRequest,
            ) -> Result<Opened>, observes;

            /// Creates and opens a regular file. With `exclusive`, `EEXIST` if
            /// the name is taken; without, an existing file is opened if the
            /// caller may. Returns [`IoMode::Passthrough`] only if the request
            /// allows it.
            Create: fn create(
                caller: &'a Caller,
                parent: InodeId,
                name: &'a OsStr,
                mode: u32,
                umask: u32,
                exclusive: bool,
                request: OpenRequest,
            ) -> Result<(Entry, Opened)>, changes;

            /// Creates and opens a regular file without a name (`O_TMPFILE`), on
            /// the file system of the directory `parent`, from which it inherits as a new file in
            /// it would. While it is open, [`FileSystem::link`] can give it a name; without one, it
            /// goes with the last open file. `EOPNOTSUPP` where the file system can't. Returns
            /// [`IoMode::Passthrough`] only if the request allows it.
            Tmpfile: fn tmpfile(
                caller: &'a Caller,
                parent: InodeId,
                mode: u32,
                umask: u32,
                request: OpenRequest,
            ) -> Result<(Entry, Opened)>, changes;

            /// Reads into `buf` from `offset` on; short only at the end of the file. For
            /// a `direct` read, `buf` begins at a multiple of 4096 in memory.
            Read: fn read(
                caller: &'a Caller,
                handle: HandleId,
                offset: u64,
                buf: &'a mut [u8],
                direct: bool,
            ) -> Result<usize>, observes;

            /// Writes `data` at `offset`. After a short count, the error that
            /// caused it is returned when the rest is written.
            Write: fn write(
                caller: &'a Caller,
                handle: HandleId,
                offset: u64,
                data: &'a [u8],
                flags: WriteFlags,
            ) -> Result<usize>, changes;

            /// One descriptor of the open file was closed: brings the
            /// attributes that the file's name shows up to date. Not durable.
            Flush: fn flush(caller: &'a Caller, handle: HandleId) -> Result<()>, observes;

            /// The open file has no descriptor any more.
            Release: fn release(handle: HandleId) -> Result<()>, observes;

            /// Makes data and attributes durable; with `data_only`, only the attributes needed to
            /// read the data back.
            Fsync: fn fsync(caller: &'a Caller, handle: HandleId, data_only: bool) -> Result<()>, observes;

            /// Reserves, frees or zeroes part of a file.
            Fallocate: fn fallocate(
                caller: &'a Caller,
                handle: HandleId,
                offset: u64,
                len: u64,
                mode: FallocateMode,
            ) -> Result<()>, changes;

            /// The next data or hole at or after `offset`; `ENXIO` past the end.
            Seek: fn seek(
                caller: &'a Caller,
                handle: HandleId,
                offset: u64,
                target: SeekTarget,
            ) -> Result<u64>, observes;

            /// Copies up to `len` bytes between two open files; returns the count.
            /// `EOPNOTSUPP` leaves the copy to the kernel.
            CopyRange: fn copy_range(
                caller: &'a Caller,
                from: HandleId,
                from_offset: u64,
                to: HandleId,
                to_offset: u64,
                len: u64,
            ) -> Result<u64>, changes;

            /// Opens a directory for reading.
            OpenDir: fn open_dir(caller: &'a Caller, ino: InodeId) -> Result<HandleId>, observes;

            /// Reads entries after `offset` (0: from the start) until `sink` is full
            /// or the directory ends. With `plus`, each comes with an [`Entry`].
            ReadDir: fn read_dir(
                caller: &'a Caller,
                handle: HandleId,
                offset: i64,
                plus: bool,
                sink: &'a mut dyn DirSink,
            ) -> Result<()>, observes;

            /// Closes a directory.
            ReleaseDir: fn release_dir(handle: HandleId) -> Result<()>, observes;

            /// Makes the directory's names durable.
            SyncDir: fn sync_dir(caller: &'a Caller, handle: HandleId) -> Result<()>, observes;

            /// Space and inodes of the whole file system.
            Statfs: fn statfs(caller: &'a Caller) -> Result<StatFs>, observes;

            /// Value of an extended attribute; `ENODATA` if there is none.
            Getxattr: fn getxattr(
                caller: &'a Caller,
                ino: InodeId,
                name: &'a OsStr,
            ) -> Result<Vec<u8>>, observes;

            /// Names of all extended attributes, each ended by a NUL byte.
            Listxattr: fn listxattr(caller: &'a Caller, ino: InodeId) -> Result<Vec<u8>>, observes;

            /// Sets an extended attribute.
            Setxattr: fn setxattr(
                caller: &'a Caller,
                ino: InodeId,
                name: &'a OsStr,
                value: &'a [u8],
                mode: XattrMode,
            ) -> Result<()>, changes;

            /// Removes an extended attribute.
            Removexattr: fn removexattr(
                caller: &'a Caller,
                ino: InodeId,
                name: &'a OsStr,
            ) -> Result<()>, changes;

            /// Makes everything durable.
            Sync: fn sync() -> Result<()>, observes;

            /// The current path of the inode, below the root and without a
            /// leading `/`; empty for the root itself. One of them, if there
            /// are several. `ENOENT` if the last name is gone. It is for logs,
            /// patterns and people: by the time it is read, another inode may
            /// be there. `EOPNOTSUPP` where inodes have no paths.
            Path: fn path(ino: InodeId) -> Result<PathBuf>, observes;
        }
    };
}

impl Operation {
    /// Whether a request for it may be carried out again when it isn't known whether it was carried
    /// out before: done twice, it has the same effect and the same answer as done once, if no other
    /// request comes between. After a crash, such requests are simply repeated.
    ///
    /// Something that the first one made and that goes with the process, as an open file does,
    /// doesn't count. An operation of which only some requests can be repeated isn't idempotent.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        match self {
            // They read.
            Self::Lookup
            | Self::Getattr
            | Self::Readlink
            | Self::Read
            | Self::Seek
            | Self::ReadDir
            | Self::Statfs
            | Self::Getxattr
            | Self::Listxattr
            | Self::Path => true,
            // What they made durable or up to date stays so.
            Self::Flush | Self::Fsync | Self::SyncDir | Self::Sync => true,
            // What they opened goes with the process. So does a file without a name.
            Self::Open | Self::OpenDir | Self::Tmpfile => true,
            // They set the bytes of a range, which the request gives, to the same again.
            Self::Write | Self::Fallocate | Self::CopyRange => true,
            // The name is there already, or is not there any more.
            Self::Mknod
            | Self::Mkdir
            | Self::Symlink
            | Self::Link
            | Self::Create
            | Self::Unlink
            | Self::Rmdir
            | Self::Rename => false,
            // So is the attribute, where it has to be new or to be there.
            Self::Setxattr | Self::Removexattr => false,
            // Times are set to the present again, and the caller may have given the file away.
            Self::Setattr => false,
            // They take back or close once more, perhaps what isn't the caller's any more.
            Self::Forget | Self::Release | Self::ReleaseDir => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_repeated_changes_at_most_bytes_of_an_open_file() {
        let changing = Operation::ALL.iter().filter(|one| one.changes() && one.is_idempotent());
        let expected = [Operation::Tmpfile, Operation::Write, Operation::Fallocate, Operation::CopyRange];
        assert_eq!(changing.copied().collect::<Vec<_>>(), expected);
        let closing = [Operation::Forget, Operation::Release, Operation::ReleaseDir];
        assert!(closing.iter().all(|one| !one.changes() && !one.is_idempotent()));
    }
}
