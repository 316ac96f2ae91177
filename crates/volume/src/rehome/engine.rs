//! The replacement of home from start to end.

use super::changes::Extent;
use super::copier::{Copier, cancelled};
use super::import::Import;
use super::progress::{RehomePhase, RehomeProgress, RehomeReport};
use braid_contract::{Attr, Context, Errno, Error, RefusalKind, Result, counted};
use braid_core::Core;
use braid_core::live::{Inode, Layout};
use braid_home::clean_up;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The amount left to copy.
struct Backlog {
    things: u64,
    bytes: u64,
}

/// With at most this much left to copy, all operations are held up for the
/// rest.
const LITTLE: Backlog = Backlog { things: 256, bytes: 16 << 20 };
/// With more than this left, they are never held up.
const LAST_MAX: Backlog = Backlog { things: 16 << 10, bytes: 128 << 20 };
/// Most passes made to get there.
const PASSES_MAX: u32 = 12;
/// Number of passes that keep to the pace: applications may be faster than that
/// for ever.
const PASSES_PACED: u32 = 2;
/// How long the switch waits for operations under way before it lets others
/// continue.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Most attempts at that.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

impl Copier<'_> {
    pub(super) fn run(mut self, copy: [u8; 16], location: &str) -> Result<RehomeReport> {
        let core = self.core;
        self.phase(RehomePhase::Counting)?;
        self.check_room().map_err(during("counting what home has"))?;
        self.phase(RehomePhase::Copying)?;
        self.copy_tree().map_err(during("copying home"))?;
        let _held = self.host.hold();
        for _ in 0..TRIES_MAX {
            loop {
                self.catch_up().map_err(during("catching up with what changed on home"))?;
                if !self.waited_for_passthrough()? {
                    break;
                }
            }
            self.phase(RehomePhase::Switching)?;
            let began_ns = core.environment.monotonic_ns();
            let impatient = || core.environment.monotonic_ns() > began_ns + PATIENCE_NS;
            let Some(closed) = core.barrier.freeze(impatient) else {
                self.pause()?;
                continue;
            };
            if passed_through(core) > 0 || !self.left().is_within(&LAST_MAX) {
                continue;
            }
            if !self.host.commit() {
                return Err(cancelled());
            }
            core.inodes.will_renumber();
            // Reports would block while all operations are held up.
            self.last = true;
            let finished = self.finish(copy, location).map_err(during("switching to the new home"))?;
            finished.put_in_place(core, location);
            // Heat names files by their old handles.
            self.heat.clear();
            self.host.switched();
            let held_up_ns = core.environment.monotonic_ns().saturating_sub(began_ns);
            drop(closed);
            return Ok(self.clean_up(held_up_ns));
        }
        if !self.left().is_within(&LAST_MAX) {
            return Err(not_caught_up());
        }
        let what = "operations under way do not end, perhaps since a tier hangs: braid status tells";
        Err(Error::refused(Errno::EBUSY, RefusalKind::Busy, what))
    }

    /// Counts the data to copy; `ENOSPC` if there is no room for it.
    fn check_room(&mut self) -> Result<()> {
        let (mut linked, mut cancelled_at) = (HashSet::new(), Ok(()));
        let (mut files, mut bytes) = (0_u64, 0_u64);
        let walked = self.core.home.walk(&mut |_, _, identity| {
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

    /// Copies changes, until few are left.
    ///
    /// # Errors
    /// `EBUSY` if too many remain.
    fn catch_up(&mut self) -> Result<()> {
        for _ in 0..PASSES_MAX {
            self.phase(RehomePhase::CatchingUp)?;
            let set = self.changes.take();
            let little = self.amount(&set.extent()).is_within(&LITTLE);
            // Slow copying of few changes lets more appear.
            self.hurried = little || self.passes >= PASSES_PACED;
            self.passes += 1;
            self.copy_changes(set)?;
            // Much new data would have to be written while operations are held
            // up.
            self.new.root().sync_fs().context("syncing the new file system")?;
            self.hurried = false;
            if little {
                return Ok(());
            }
        }
        if self.left().is_within(&LAST_MAX) { Ok(()) } else { Err(not_caught_up()) }
    }

    /// The changes that are not copied yet.
    fn left(&self) -> Backlog {
        self.amount(&self.changes.extent())
    }

    fn amount(&self, Extent { things, bytes, tails }: &Extent) -> Backlog {
        let core = self.core;
        let tail = |(inode, from): &(Arc<Inode>, u64)| match core.inodes.path(&core.home, inode) {
            Ok(fd) => fd.stat().map_or(0, |stat| {
                let Attr { size, blocks, .. } = stat.attr;
                size.saturating_sub(*from).min(blocks * 512)
            }),
            // The inode is gone.
            Err(_) => 0,
        };
        // With many inodes, that is not worth asking.
        let tails = if *things <= LAST_MAX.things { &tails[..] } else { &[] };
        Backlog { things: *things, bytes: bytes + tails.iter().map(tail).sum::<u64>() }
    }

    /// Waits for files on which the kernel does I/O itself; answers whether
    /// there were any.
    fn waited_for_passthrough(&mut self) -> Result<bool> {
        let mut waited = false;
        loop {
            self.progress.waiting = passed_through(self.core);
            if self.progress.waiting == 0 {
                return Ok(waited);
            }
            waited = true;
            if !self.core.environment.threads() {
                return Err(Error::new(Errno::EBUSY, "files are open by passthrough"));
            }
            self.phase(RehomePhase::Waiting)?;
            self.pause()?;
            let set = self.changes.take();
            self.copy_changes(set)?;
        }
    }

    fn pause(&mut self) -> Result<()> {
        if self.core.environment.threads() {
            let (lock, never) = (Mutex::new(()), Condvar::new());
            never.wait_for(&mut lock.lock(), PAUSE);
        }
        self.pace.go_on().map_err(|_| cancelled())?;
        self.tell_now()
    }

    /// The last step: all other operations are held up.
    fn finish(&mut self, copy: [u8; 16], location: &str) -> Result<Import> {
        let mut set = self.changes.take();
        // Syncs pages of indexes that were stored to since.
        for open in self.core.handles.files() {
            if matches!(&*open.file.layout.read(), Layout::Spread(_)) {
                set.change(&open.file.inode);
            }
        }
        self.copy_changes(set)?;
        let import = self.prepare_import()?;
        self.copy_state()?;
        self.host.keep_done(&self.new)?;
        self.take_orphans_names()?;
        self.take_extra_links()?;
        self.new.root().sync_fs()?;
        self.commit(copy, location)?;
        Ok(import)
    }

    fn clean_up(mut self, held_up_ns: u64) -> RehomeReport {
        // The replacement is done, even if this fails.
        let _ = self.phase(RehomePhase::CleaningUp);
        if let Err(error) = clean_up(&self.new) {
            tracing::warn!(%error, "the next mount removes what the replacement of the home tier left");
        }
        let RehomeProgress { files, bytes, .. } = self.progress;
        RehomeReport { old_location: String::new(), files, bytes, held_up_ns }
    }
}

fn passed_through(core: &Core) -> u64 {
    core.handles.files().iter().filter(|open| open.passthrough).count() as u64
}

impl Backlog {
    fn is_within(&self, limit: &Self) -> bool {
        self.things <= limit.things && self.bytes <= limit.bytes
    }
}

fn not_caught_up() -> Error {
    let what = "applications change the home tier faster than it can be copied, and would have to wait long for \
                the last of it: try again when they are quieter";
    Error::refused(Errno::EBUSY, RefusalKind::Busy, what)
}

/// Adds context to an error.
fn during(what: &'static str) -> impl Fn(Error) -> Error {
    move |error| if error.refusal().is_some() { error } else { error.context(what) }
}
