//! The replacement from its beginning to its end.

use super::changes::Extent;
use super::import::Import;
use super::{Copier, cancelled};
use crate::Volume;
use braid_contract::{Access, Attr, Context, Errno, Error, Fd, RefusalKind, Result, Shown, counted};
use braid_core::live::{Inode, Layout};
use braid_format::BRAID_DIR;
use braid_home::{Home, names_in};
use braid_home::{LIMBO, clean_up, discard_copy, empty_dir, read_label, remove_record};
use braid_index::Dirs;
use braid_tiers::rate::Pace;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// What a replacement of the home tier is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RehomePhase {
    /// Looking at what there is to copy.
    Counting,
    /// Copying the tree.
    Copying,
    /// Copying what changed meanwhile.
    CatchingUp,
    /// Waiting for files that the kernel reads by itself to be closed.
    Waiting,
    /// Nothing goes on but the last of the copy.
    Switching,
    /// Removing what is left over.
    CleaningUp,
}

impl RehomePhase {
    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counting => "counting",
            Self::Copying => "copying",
            Self::CatchingUp => "catching up",
            Self::Waiting => "waiting",
            Self::Switching => "switching",
            Self::CleaningUp => "cleaning up",
        }
    }
}

/// How far a replacement of the home tier has come.
#[derive(Clone, Debug)]
pub struct RehomeProgress {
    /// What it is at.
    pub phase: RehomePhase,
    /// Regular files copied.
    pub files: u64,
    /// How many there were at the beginning.
    pub total_files: u64,
    /// Bytes copied, some of them more than once.
    pub bytes: u64,
    /// Space that files took at the beginning.
    pub total_bytes: u64,
    /// Files that are waited for.
    pub waiting: u64,
}

/// What a replacement of the home tier came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RehomeReport {
    /// Where home was.
    pub old_location: String,
    /// Regular files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// For how long nothing else went on, in nanoseconds.
    pub held_up_ns: u64,
}

/// What a job that replaces home came to; if it failed, why.
pub type RehomeOutcome = Result<RehomeReport>;

/// What is left to copy.
struct Amount {
    things: u64,
    bytes: u64,
}

/// With this little left to copy, everything is held up for it.
const LITTLE: Amount = Amount { things: 256, bytes: 16 << 20 };
/// With more than this left, nothing is.
const LAST_MAX: Amount = Amount { things: 16 << 10, bytes: 128 << 20 };
/// As many passes are made for it to become little.
const PASSES_MAX: u32 = 12;
/// As many of all passes keep to the pace: applications may be faster than that
/// for ever.
const PASSES_PACED: u32 = 2;
/// How long operations under way are waited for before others go on.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How often that is tried.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

impl Volume {
    /// Makes the empty directory `root` home, while the volume is in use: names
    /// and data of the present home are copied there, and everything that is
    /// open goes on. `location` is what its place is called, for messages and
    /// for the next mount, which needs to find it by that. Ended, with
    /// `ECANCELED`, when `tell` answers `false`, unless it is too late for that.
    ///
    /// # Errors
    /// Then the present home stays home, and what was copied is removed again.
    /// `EBUSY` beside a check or another replacement, `EOPNOTSUPP` where files
    /// can't be opened by handle, `EEXIST` and `ENOTEMPTY` for a directory that
    /// is in use, `EROFS`, `ENOSPC`; those of both directories.
    pub fn replace_home(
        &self,
        root: &Fd,
        location: &str,
        tell: &mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<RehomeReport> {
        let _alone = self.state.overhaul.try_lock().ok_or_else(not_alone)?;
        let pace = Pace::new(None, &self.throttles.paces);
        self.replace_home_for(root, location, (&pace, None), tell)
    }

    /// Looks at a directory that is to become home.
    pub(crate) fn check_new_home(&self, root: &Fd) -> Result<()> {
        let _alone = self.state.overhaul.try_lock().ok_or_else(not_alone)?;
        self.usable_home(root).map(drop)
    }

    /// As [`replace_home`](Self::replace_home), as fast as `pace` allows; ends
    /// too when that is stopped. `job` is the one that does it. The caller keeps
    /// others like it away.
    pub(crate) fn replace_home_for(
        &self,
        root: &Fd,
        location: &str,
        (pace, job): (&Pace, Option<u64>),
        tell: &mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<RehomeReport> {
        let _copying = self.changes.copying.lock();
        let new = self.usable_home(root)?;
        let copy = self.core.new_object_id()?.0;
        let old_location = self.core.tiers.home().location();
        let result = self.begin_copy(root, copy, location).and_then(|()| {
            self.changes.switch(true);
            let copier = Copier::new(self, new, (pace, job), tell)?;
            copier.run(copy, location)
        });
        self.changes.switch(false);
        match result {
            Ok(report) => {
                tracing::warn!(from = %old_location, to = %location, "the home tier was replaced");
                Ok(RehomeReport { old_location, ..report })
            }
            Err(error) => {
                self.undo_copy(root);
                Err(error)
            }
        }
    }

    /// Checks everything about a directory that is to become home.
    fn usable_home(&self, root: &Fd) -> Result<Home> {
        let mut new = Home::open(Fd::clone(root))?;
        if !(self.core.home.opens_handles() && new.opens_handles()) {
            let what = "home can be replaced only as root, between file systems that have file handles";
            return Err(Error::refused(Errno::EOPNOTSUPP, RefusalKind::Request, what));
        }
        if root.usage()?.read_only {
            let what = "the new directory's file system is read-only";
            return Err(Error::refused(Errno::EROFS, RefusalKind::Request, what));
        }
        self.empty_enough(root)?;
        new.use_user_xattr(self.core.user_xattr);
        new.use_seal(*self.core.home.seal());
        new.try_xattr().context("the new directory does not take the extended attributes of a home tier")?;
        Ok(new)
    }

    fn empty_enough(&self, root: &Fd) -> Result<()> {
        match read_label(root)? {
            Some((Some(label), true)) if label.volume == self.core.id => discard_copy(root)?,
            Some(_) => {
                let what = "the directory is a tier already, of this or another volume";
                return Err(Error::refused(Errno::EEXIST, RefusalKind::Taken, what));
            }
            None => {}
        }
        for name in names_in(&**root)? {
            // One that is empty was made with the file system.
            let gone = name == "lost+found" && root.remove_at(&name, true).is_ok();
            if !gone {
                let what = format!("the directory is not empty: there is {}", name.shown());
                return Err(Error::refused(Errno::ENOTEMPTY, RefusalKind::Taken, what));
            }
        }
        Ok(())
    }

    /// The present home stays home.
    fn undo_copy(&self, root: &Fd) {
        let undone = match read_label(root) {
            Ok(Some((_, true))) => discard_copy(root),
            Ok(None) => match root.open_at(OsStr::new(BRAID_DIR), Access::Directory) {
                Ok(braid) => {
                    empty_dir(&*braid, &[]).and_then(|()| root.remove_at(OsStr::new(BRAID_DIR), true))
                }
                Err(_) => Ok(()),
            },
            _ => return tracing::error!("the copy of the home tier could not be undone"),
        };
        if let Err(error) = undone.and_then(|()| remove_record(&self.core.home.root())) {
            tracing::warn!(%error, "the unfinished copy of the home tier was not removed; the next mount does not use it");
        }
    }

    fn passed_through(&self) -> u64 {
        self.core.handles.files().iter().filter(|open| open.passthrough).count() as u64
    }
}

impl<'a> Copier<'a> {
    fn new(
        volume: &'a Volume,
        new: Home,
        (pace, job): (&'a Pace, Option<u64>),
        tell: &'a mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<Self> {
        let braid = new.braid()?;
        let progress = RehomeProgress {
            phase: RehomePhase::Counting,
            files: 0,
            total_files: 0,
            bytes: 0,
            total_bytes: 0,
            waiting: 0,
        };
        Ok(Self {
            volume,
            dirs: Dirs::open(&*braid, volume.core.tiers.home().id)?,
            limbo: braid.open_at(OsStr::new(LIMBO), Access::Directory)?,
            braid,
            new,
            known: HashMap::new(),
            pending: Vec::new(),
            touched: HashMap::new(),
            linked: HashSet::new(),
            orphans: Vec::new(),
            read_times: HashMap::new(),
            last: false,
            passes: 0,
            hurried: false,
            progress,
            pace,
            job,
            tell,
            told_ns: 0,
        })
    }

    fn run(mut self, copy: [u8; 16], location: &str) -> Result<RehomeReport> {
        let volume = self.volume;
        self.phase(RehomePhase::Counting)?;
        self.check_room().map_err(during("counting what home has"))?;
        self.phase(RehomePhase::Copying)?;
        self.copy_tree().map_err(during("copying home"))?;
        // They come to files by what they found out earlier.
        let (_jobs, _movers) = (volume.jobs.hold(self.job), volume.movers.rounds.hold());
        for _ in 0..TRIES_MAX {
            loop {
                self.catch_up().map_err(during("catching up with what changed on home"))?;
                if !self.waited_for_passthrough()? {
                    break;
                }
            }
            self.phase(RehomePhase::Switching)?;
            let began_ns = volume.core.environment.monotonic_ns();
            let impatient = || volume.core.environment.monotonic_ns() > began_ns + PATIENCE_NS;
            let Some(closed) = volume.core.barrier.freeze(impatient) else {
                self.pause()?;
                continue;
            };
            if volume.passed_through() > 0 || !self.left().is_within(&LAST_MAX) {
                continue;
            }
            if self.job.is_some_and(|id| !volume.jobs.commit(id)) {
                return Err(cancelled());
            }
            // Nobody is told of anything while all wait.
            self.last = true;
            let finished = self.finish(copy, location).map_err(during("switching to the new home"))?;
            finished.put_in_place(volume, location);
            if let Some(id) = self.job {
                volume.note_switched(id);
            }
            let held_up_ns = volume.core.environment.monotonic_ns().saturating_sub(began_ns);
            drop(closed);
            return Ok(self.clean_up(held_up_ns));
        }
        if !self.left().is_within(&LAST_MAX) {
            return Err(not_caught_up());
        }
        let what = "operations under way do not end, perhaps since a tier hangs: braid status tells";
        Err(Error::refused(Errno::EBUSY, RefusalKind::Busy, what))
    }

    /// Counts what there is to copy; `ENOSPC` if there is no room for it.
    fn check_room(&mut self) -> Result<()> {
        let (mut linked, mut cancelled_at) = (HashSet::new(), Ok(()));
        let (mut files, mut bytes) = (0_u64, 0_u64);
        let walked = self.volume.core.home.walk(&mut |_, _, identity| {
            if identity.attr.nlink == 1 || linked.insert(identity.ino()) {
                files += 1;
                bytes += identity.attr.blocks * 512;
            }
            self.progress.total_files = files;
            self.progress.total_bytes = bytes;
            cancelled_at = self.report();
            if cancelled_at.is_ok() { Ok(()) } else { Err(cancelled()) }
        });
        walked?;
        let usage = self.new.root().usage()?;
        let room = usage.space.available;
        if bytes > room {
            let files = counted(files, "file");
            let what =
                format!("the home tier has {bytes} bytes in {files}, and the new one room for {room} bytes");
            return Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what));
        }
        if usage.files > 0 && files > usage.files_free {
            let left = usage.files_free;
            let what =
                format!("the home tier has {}, and the new one room for {left}", counted(files, "file"));
            return Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what));
        }
        Ok(())
    }

    /// Copies what changed, until that is little.
    ///
    /// # Errors
    /// `EBUSY` if it stays too much.
    fn catch_up(&mut self) -> Result<()> {
        for _ in 0..PASSES_MAX {
            self.phase(RehomePhase::CatchingUp)?;
            let set = self.volume.changes.take();
            let little = self.amount(&set.extent()).is_within(&LITTLE);
            // While little is copied slowly, much changes.
            self.hurried = little || self.passes >= PASSES_PACED;
            self.passes += 1;
            self.copy_changes(set)?;
            // Much that is new would have to be written while all wait.
            self.new.root().sync_fs().context("syncing the new file system")?;
            self.hurried = false;
            if little {
                return Ok(());
            }
        }
        if self.left().is_within(&LAST_MAX) { Ok(()) } else { Err(not_caught_up()) }
    }

    /// What changed and is not copied yet.
    fn left(&self) -> Amount {
        self.amount(&self.volume.changes.extent())
    }

    fn amount(&self, Extent { things, bytes, tails }: &Extent) -> Amount {
        let volume = self.volume;
        let tail = |(inode, from): &(Arc<Inode>, u64)| match volume.core.inodes.path(&volume.core.home, inode)
        {
            Ok(fd) => fd.stat().map_or(0, |stat| {
                let Attr { size, blocks, .. } = stat.attr;
                size.saturating_sub(*from).min(blocks * 512)
            }),
            // It is gone.
            Err(_) => 0,
        };
        // Where there are many, nobody asks.
        let tails = if *things <= LAST_MAX.things { &tails[..] } else { &[] };
        Amount { things: *things, bytes: bytes + tails.iter().map(tail).sum::<u64>() }
    }

    /// Waits for files that the kernel reads by itself; answers whether there
    /// were any.
    fn waited_for_passthrough(&mut self) -> Result<bool> {
        let mut waited = false;
        loop {
            self.progress.waiting = self.volume.passed_through();
            if self.progress.waiting == 0 {
                return Ok(waited);
            }
            waited = true;
            if !self.volume.core.environment.threads() {
                return Err(Error::new(Errno::EBUSY, "files are open by passthrough"));
            }
            self.phase(RehomePhase::Waiting)?;
            self.pause()?;
            let set = self.volume.changes.take();
            self.copy_changes(set)?;
        }
    }

    fn pause(&mut self) -> Result<()> {
        if self.volume.core.environment.threads() {
            let (lock, never) = (Mutex::new(()), Condvar::new());
            never.wait_for(&mut lock.lock(), PAUSE);
        }
        self.pace.go_on().map_err(|_| cancelled())?;
        self.tell_now()
    }

    /// The last of it: nothing else goes on.
    fn finish(&mut self, copy: [u8; 16], location: &str) -> Result<Import> {
        let mut set = self.volume.changes.take();
        // Whatever may have been stored to an index since.
        for open in self.volume.core.handles.files() {
            if matches!(&*open.file.layout.read(), Layout::Spread(_)) {
                set.change(&open.file.inode);
            }
        }
        self.copy_changes(set)?;
        let import = self.prepare_import()?;
        self.copy_state()?;
        if let Some(id) = self.job {
            self.volume.keep_done(id, &self.new)?;
        }
        self.take_orphans_names()?;
        self.take_extra_links()?;
        self.new.root().sync_fs()?;
        self.commit(copy, location)?;
        Ok(import)
    }

    fn clean_up(mut self, held_up_ns: u64) -> RehomeReport {
        // It is done, whoever is told or not.
        let _ = self.phase(RehomePhase::CleaningUp);
        if let Err(error) = clean_up(&self.new) {
            tracing::warn!(%error, "the next mount removes what the replacement of the home tier left");
        }
        let RehomeProgress { files, bytes, .. } = self.progress;
        RehomeReport { old_location: String::new(), files, bytes, held_up_ns }
    }
}

impl Amount {
    fn is_within(&self, limit: &Self) -> bool {
        self.things <= limit.things && self.bytes <= limit.bytes
    }
}

fn not_caught_up() -> Error {
    let what = "applications change the home tier faster than it can be copied, and would have to wait long for \
                the last of it: try again when they are quieter";
    Error::refused(Errno::EBUSY, RefusalKind::Busy, what)
}

/// Says at what an error came that has no words of its own.
fn during(what: &'static str) -> impl Fn(Error) -> Error {
    move |error| if error.refusal().is_some() { error } else { error.context(what) }
}

fn not_alone() -> Error {
    let what = "a check or another replacement of the home tier is under way: wait for it to end";
    Error::refused(Errno::EBUSY, RefusalKind::Busy, what)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{HomeConfig, MoversConfig, VolumeConfig};
    use braid_contract::{Caller, FileSystem, InodeId, OpenFlags, WriteFlags};
    use braid_placement::{EPOCH_NS_DEFAULT, PolicyConfig, Reserve};
    use braid_stores::native::Machine;
    use braid_stores::native::open_tier_dir;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// Pieces of the file, each with a byte of data.
    const PIECES: u64 = 40;

    fn config(root: Fd) -> VolumeConfig {
        VolumeConfig {
            home: HomeConfig {
                name: "home".into(),
                root,
                location: "home".into(),
                weight: None,
                profile: None,
                reserve: Reserve::Bytes(0),
            },
            tiers: Vec::new(),
            range_size: None,
            policy: PolicyConfig::named("weighted").expect("it is in the table"),
            rules: Vec::new(),
            epoch_ns: EPOCH_NS_DEFAULT,
            heat_budget: crate::HEAT_BUDGET_DEFAULT,
            monitor: false,
            movers: MoversConfig::NONE,
            create: true,
            environment: Arc::new(Machine),
        }
    }

    #[test]
    fn a_cap_that_applications_are_faster_than_does_not_hold_it_up_for_ever() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let [home, new] = ["home", "new"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            open_tier_dir(&dir.path().join(name)).unwrap()
        });
        let volume = Volume::open(config(home)).unwrap();
        let (caller, flags) = (Caller::root(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let name = OsStr::new("f");
        let made = volume.create(&caller, InodeId::ROOT, name, 0o100_644, 0, true, flags).unwrap();
        let write = |byte: u8| {
            for piece in 0..PIECES {
                let at = piece * super::super::changes::CHUNK;
                volume.write(&caller, made.1.handle, at, &[byte], WriteFlags::default()).unwrap();
            }
        };
        write(1);
        let pace = Pace::new(Some((PIECES * 4096 * 2) as f64), &volume.throttles.paces);
        let (mut once, end, (done, is_done)) = (None, AtomicBool::new(false), mpsc::channel::<()>());
        let mut tell = |progress: &RehomeProgress| {
            if progress.phase == RehomePhase::CatchingUp
                && 2 * progress.bytes > 7 * *once.get_or_insert(progress.bytes)
            {
                // It was copied, and what changed more than twice.
                pace.set_rate(Some(0.0));
            }
            true
        };
        let replaced = std::thread::scope(|scope| {
            scope.spawn(|| (2..=255).cycle().take_while(|_| !end.load(Ordering::Relaxed)).for_each(write));
            let pace = &pace;
            scope.spawn(move || {
                if is_done.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                    pace.stop();
                }
            });
            let replaced = volume.replace_home_for(&new, "new", (pace, None), &mut tell);
            end.store(true, Ordering::Relaxed);
            drop(done);
            replaced
        });
        assert!(replaced.is_ok(), "{replaced:?}");
        volume.shutdown().unwrap();
    }
}
