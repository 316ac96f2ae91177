//! Stacks with another file system than a volume at the bottom: how one is mounted and served, and
//! its control socket. There are no tiers, ranges or jobs.
//!
//! A [`Bottom`] is such a file system; `logfs` has one, `view` another. `handle` is one that is
//! open, with modules on top, `stack` its part in the life of a mount, and `control` its control socket.

mod control;
mod handle;
mod stack;

pub(crate) use handle::{Handle, modules_on};

use crate::guard::KeptBottom;
use crate::kv::Owner;
use crate::modules::Modules;
use crate::upgrade::BottomState;
use braid_contract::{Errno, Figure, FileSystem, Result};
use braid_ipc::protocol::{ErrorReply, Status};
use std::sync::Arc;

/// A file system at the bottom of a stack that is no volume.
pub(crate) trait Bottom: Send + Sync {
    /// Its key in a stack file.
    fn name(&self) -> &'static str;

    /// Its settings, all of which only a mount sets.
    fn keys(&self) -> &'static [&'static str];

    /// Itself, below all modules.
    fn file_system(&self) -> Arc<dyn FileSystem>;

    /// Its id: 32 hexadecimal digits.
    fn id(&self) -> String;

    /// Its state and counts.
    ///
    /// # Errors
    /// If it can't tell.
    fn figures(&self) -> Result<Vec<Figure>>;

    /// Adds the facts about this kind of file system to the status of a mount.
    fn tell(&self, status: &mut Status);

    /// What the one who mounts it has to know.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// The owner of the directories that are served as keys and values, below these modules; `top`
    /// is the whole stack.
    fn owner(&self, modules: &Arc<Modules>, top: Arc<dyn FileSystem>) -> Owner;

    /// The reason why it has no parts that only a volume has, with advice.
    fn no_volume(&self) -> String;

    /// Begins to be used, by this process alone.
    fn begin(&self) {}

    /// The reason why no process could go on after a crash of this one; `None` if one could.
    fn ends_with_process(&self) -> Option<String>;

    /// What another process needs to go on after a crash of this one, at any moment from now on.
    ///
    /// # Errors
    /// If there are no descriptors left, or no memory.
    fn outlive(&self) -> Result<KeptBottom>;

    /// Refuses that another process goes on with it.
    ///
    /// # Errors
    /// The reason why none can.
    fn may_be_given(&self) -> std::result::Result<(), ErrorReply>;

    /// Shortens what [`give`](Self::give) has to do, while it is used.
    ///
    /// # Errors
    /// If it fails.
    fn prepare_to_give(&self) -> Result<()> {
        Ok(())
    }

    /// Ends its use in this process, for another one. No operation is under way, and none comes any
    /// more.
    ///
    /// # Errors
    /// If no process can go on, not even this one.
    fn give(&self) -> Result<BottomState>;

    /// The reason why reading does not renew access times as an option asks for.
    fn no_access_times(&self) -> &'static str;

    /// Ends all use of it.
    ///
    /// # Errors
    /// If it is not as it should be.
    fn close(&self) -> Result<()>;
}

impl dyn Bottom {
    fn refuse_access_times(&self) -> std::result::Result<(), ErrorReply> {
        Err(ErrorReply { errno: Some(Errno::EOPNOTSUPP.0), message: self.no_access_times().to_owned() })
    }
}
