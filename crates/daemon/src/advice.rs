//! Advice for refused changes of tiers: by the kind of the refusal, or else by
//! the number of the error.

use crate::reply::{EMPTY_IT, refused};
use braid_contract::{Errno, Error, RefusalKind, Shown};
use braid_ipc::protocol::ErrorReply;
use std::path::Path;

/// The request.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// Add this directory as a tier.
    Add { dir: &'a Path },
    /// Replace a lost tier by this empty directory.
    ReplaceLost { dir: &'a Path },
    /// Replace the tier `old` by this directory.
    ReplaceBy { old: &'a str, dir: &'a Path },
    /// Make this directory home.
    ReplaceHome { dir: &'a Path },
    /// Remove a tier; with `evacuate`, after emptying it.
    Remove { tier: &'a str, evacuate: bool },
    /// Change settings of a tier.
    Set,
}

impl<'a> Asked<'a> {
    /// The answer to its failure or refusal.
    pub(crate) fn failed(self, error: &Error) -> ErrorReply {
        let advice = match error.refusal() {
            Some(why) => self.against(why).or_else(|| self.against_number(error.errno())),
            None => self.against_number(error.errno()),
        };
        let text = match self.dir().filter(|_| self.is_about_dir(error.refusal())) {
            Some(dir) => format!("{}: {error}", dir.shown()),
            None => error.to_string(),
        };
        match advice {
            Some(advice) => refused(error.errno(), &text, &advice),
            None => ErrorReply { errno: Some(error.errno().0), message: text },
        }
    }

    fn dir(self) -> Option<&'a Path> {
        match self {
            Self::Add { dir }
            | Self::ReplaceLost { dir }
            | Self::ReplaceBy { dir, .. }
            | Self::ReplaceHome { dir } => Some(dir),
            Self::Remove { .. } | Self::Set => None,
        }
    }

    /// Whether the directory is, or may be, the problem.
    fn is_about_dir(self, why: Option<RefusalKind>) -> bool {
        match why {
            None | Some(RefusalKind::Taken) => true,
            Some(RefusalKind::Request | RefusalKind::Room) => matches!(self, Self::ReplaceHome { .. }),
            Some(_) => false,
        }
    }

    fn against(self, why: RefusalKind) -> Option<String> {
        let advice = match (why, self) {
            (RefusalKind::Job, _) => "look at it: braid job list; end it: braid job cancel ID",
            (RefusalKind::Policy, _) => "change the policy in the stack file, and mount anew, first",
            (RefusalKind::Home, Self::Set) => "set another tier to read-only",
            (RefusalKind::Home, _) => {
                "the home tier stays; only its directory is replaced: braid tier replace HOME DIR"
            }
            (RefusalKind::Occupied, Self::Remove { tier, evacuate }) => {
                let or = if evacuate { "" } else { ", or remove it without --no-evacuate" };
                return Some(format!("move them away first: braid tier evacuate {tier}{or}"));
            }
            (RefusalKind::Healthy, _) => {
                "only a tier that is failing, hangs or is absent is replaced so; for one that is well, name the new \
                 one, and nothing is lost: braid tier replace TIER NAME=DIR"
            }
            (RefusalKind::Trouble, Self::ReplaceBy { old, .. }) => {
                return Some(format!("an empty directory takes its place: braid tier replace {old} DIR"));
            }
            (RefusalKind::Taken, Self::ReplaceLost { .. }) => {
                "name an empty directory; a tier that is only elsewhere is given there at the next mount"
            }
            (RefusalKind::Taken, Self::ReplaceHome { .. }) => {
                "name an empty directory on a native file system"
            }
            (RefusalKind::Taken, _) => {
                "name an empty directory; one that belongs to a volume that is gone is free when its .braid \
                 directory is"
            }
            (RefusalKind::Busy, _) => "try again when that has ended",
            (RefusalKind::Request | RefusalKind::Room | RefusalKind::Occupied | RefusalKind::Trouble, _) => {
                return None;
            }
        };
        Some(advice.to_owned())
    }

    fn against_number(self, errno: Errno) -> Option<String> {
        let advice = match (self, errno) {
            (Self::Add { .. }, Errno::ENOSPC) => "make room on its file system, or remove a tier first",
            (Self::ReplaceBy { .. }, Errno::EINVAL | Errno::ENOSPC) | (Self::Set, _) => return None,
            (Self::Add { .. } | Self::ReplaceBy { .. } | Self::ReplaceLost { .. }, Errno::ENOTEMPTY) => {
                EMPTY_IT
            }
            (Self::Add { .. } | Self::ReplaceBy { .. } | Self::ReplaceLost { .. }, _) => {
                "check the directory and its file system; the log may say more"
            }
            (Self::Remove { .. }, Errno::EUCLEAN) => "it is not known what is on the tier: run braid fsck",
            (Self::Remove { .. }, _) => "the log may say more",
            (Self::ReplaceHome { .. }, Errno::ENOSPC) => {
                "name a directory on a file system with more room; nothing was changed"
            }
            (Self::ReplaceHome { .. }, Errno::EROFS) => "remount it for writing (mount -o remount,rw)",
            (Self::ReplaceHome { .. }, Errno::EOPNOTSUPP) => {
                "mount as root, and name a directory on ext4, xfs or btrfs"
            }
            (Self::ReplaceHome { .. }, Errno::ECANCELED) => "nothing was changed",
            (Self::ReplaceHome { .. }, _) => {
                "home is where it was; check the directory and its file system; the log may say more"
            }
        };
        Some(advice.to_owned())
    }
}
