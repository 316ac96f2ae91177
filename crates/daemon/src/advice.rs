//! What to do about what the volume refused to do with its tiers: by the kind
//! of the refusal, and else by the number of the error.

use crate::reply::refused;
use braid_contract::{Errno, Error, RefusalKind, Shown};
use braid_ipc::protocol::ErrorReply;
use std::path::Path;

/// What was to be done.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// This directory becomes a tier.
    Add { dir: &'a Path },
    /// This empty directory takes the place of a tier that is lost.
    ReplaceLost { dir: &'a Path },
    /// This directory becomes a tier that takes the place of the tier `old`.
    ReplaceBy { old: &'a str, dir: &'a Path },
    /// This directory becomes home.
    ReplaceHome { dir: &'a Path },
    /// A tier leaves, after it was emptied if that was asked for.
    Remove { tier: &'a str, evacuate: bool },
    /// Settings of a tier are changed.
    Set,
}

impl<'a> Asked<'a> {
    /// What to answer, since it was refused or failed so.
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

    /// Whether it is the directory that won't do, or may be.
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
