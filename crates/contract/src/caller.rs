//! The identity behind an operation.

use std::sync::Arc;

/// The identity behind an operation. A front end fills it in from its kernel
/// interface; a file system acts in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups; `None` where the front end's kernel has already
    /// checked permissions with them and does not pass them on (FUSE with
    /// `default_permissions`).
    pub groups: Option<Arc<[u32]>>,
    /// Process id in the daemon's pid namespace; 0 for requests of the kernel
    /// itself (writeback) or the process is not visible.
    pub pid: u32,
    /// Thread id; equal to `pid` where the front end can't tell them apart.
    pub tid: u32,
    /// Whether the stack acts by itself: see [`stack`](Self::stack). It does not go beyond the
    /// process: neither libraries nor sessions can say so.
    pub of_stack: bool,
}

impl Caller {
    /// The stack itself: a module above others, or a front end that has checked the rights of the
    /// user for whom it works. The superuser, to whom no rule of a module applies.
    #[must_use]
    pub fn stack() -> Self {
        Self { of_stack: true, ..Self::root() }
    }

    /// The superuser, for Braid's own work.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: None, pid: 0, tid: 0, of_stack: false }
    }

    /// Whether set-id bits survive this caller's writes, as `CAP_FSETID` does.
    #[must_use]
    pub fn keeps_set_id_bits(&self) -> bool {
        self.uid == 0
    }
}
