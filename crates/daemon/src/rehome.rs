//! Another directory becomes the home tier (`braid tier replace` for home), and
//! what a mount does first with what was left of that.

use crate::replacement::{cant_open, refused};
use crate::validate;
use crate::wire::VolumeHandle;
use braid_contract::{Errno, Error, Fd};
use braid_ipc::protocol::{ErrorReply, HomeProgress, HomeReplaced, RunTier, Saved};
use braid_stores::native::open_tier_dir;
use braid_volume::RehomeProgress;
use std::io;
use std::path::Path;

impl VolumeHandle {
    /// Makes `dir` the home tier; given up when `tell` fails.
    pub(crate) fn replace_home(
        &self,
        dir: &Path,
        mountpoint: &Path,
        tell: &mut dyn FnMut(HomeProgress) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        let tiers = self.volume.status().tiers;
        let home = tiers.iter().find(|tier| tier.home);
        let home = home.ok_or_else(|| ErrorReply::from(Error::from(Errno::ENOENT)))?;
        let set = self.known_tier(&home.name)?;
        let others = tiers.iter().map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
        let dir = validate::replacement(dir, others, mountpoint)
            .map_err(|refusal| ErrorReply { errno: Some(Errno::EINVAL.0), message: refusal.to_string() })?;
        let Some(location) = dir.to_str() else {
            return Err(refused(Errno::EINVAL, "the directory's name is not UTF-8", "name another one"));
        };
        let root = open_tier_dir(&dir).map_err(|error| cant_open(&dir, &error))?;
        let mut tell = |now: &RehomeProgress| tell(progress(now)).is_ok();
        let replaced = self.volume.replace_home(&root, location, &mut tell);
        let report = replaced.map_err(|error| cant_replace(location, &error))?;
        Ok(HomeReplaced {
            tier: RunTier { id: home.id.0, name: home.name.clone() },
            old_location: report.old_location,
            location: location.to_owned(),
            files: report.files,
            bytes: report.bytes,
            held_up: report.held_up_ns as f64 / 1e9,
            next_mount: set.next_mount(&dir),
            saved: Saved::default(),
        })
    }
}

fn progress(now: &RehomeProgress) -> HomeProgress {
    HomeProgress {
        phase: now.phase.name().into(),
        files: now.files,
        total_files: now.total_files,
        bytes: now.bytes,
        total_bytes: now.total_bytes,
        waiting: now.waiting,
    }
}

fn cant_replace(location: &str, error: &Error) -> ErrorReply {
    let text = format!("{location}: {error}");
    let advice = match error.errno() {
        Errno::ENOTEMPTY | Errno::EEXIST => "name an empty directory on a native file system",
        Errno::ENOSPC => "name a directory on a file system with more room; nothing was changed",
        Errno::EROFS => "remount it for writing (mount -o remount,rw)",
        Errno::EBUSY => "try again when that has ended",
        Errno::EOPNOTSUPP => "mount as root, and name a directory on ext4, xfs or btrfs",
        Errno::ECANCELED => "nothing was changed",
        _ => "home is where it was; check the directory and its file system; the log may say more",
    };
    refused(error.errno(), &text, advice)
}

/// Looks, before a mount, whether home was being replaced when the daemon or
/// the machine ended, and at the other directory if it was. What the volume
/// then finds in this one decides. A copy that was never completed is removed,
/// beside the mount: it may be large.
pub(crate) fn settle(home: &Fd) {
    match braid_volume::settle_home(home, &mut |place| open_tier_dir(Path::new(place))) {
        Ok(None) => {}
        Ok(Some(copy)) => {
            tracing::warn!("home was being replaced and that did not come to its end: the copy is removed");
            let removal = std::thread::Builder::new().name("discard-copy".into()).spawn(move || {
                if let Err(error) = braid_volume::discard_copy(&copy) {
                    tracing::warn!(%error, "the unfinished copy of the home tier could not be removed");
                }
            });
            if let Err(error) = removal {
                tracing::warn!(%error, "the unfinished copy of the home tier is not removed");
            }
        }
        // Opening the volume says it better.
        Err(error) => tracing::debug!(%error, "looking for a replacement of the home tier"),
    }
}
