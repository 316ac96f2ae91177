//! Runs a workload, and records its history.

mod orphans;

use super::Mounted;
use super::content::Content;
use super::history::{Attributes, FileId, History};
use super::machine::{Machine, Setup};
use super::op::{Dir, Name, Op};
use super::recorder::Recorder;
use super::stamp::{self, Source};
use super::{Subject, tree};
use crate::sim::Failing;
use braid_contract::{
    Caller, Entry, Errno, Error, FallocateMode, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest,
    RenameMode, SetAttr, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;

/// How long nothing happens before work in the background, in nanoseconds.
const IDLE_NS: u64 = 5_000_000_000;

/// Ranges that files have at most when a tier is removed; one with more keeps
/// it.
const RANGES_MAX: u64 = 12;

/// A file that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    file: FileId,
    ino: InodeId,
    handle: HandleId,
}

/// A workload under way.
pub(crate) struct Run<'a> {
    subject: &'a dyn Subject,
    setup: &'a Setup,
    pub(crate) machine: Arc<Machine>,
    mounted: Option<Rc<dyn Mounted>>,
    pub(crate) history: History,
    /// Steps begun so far.
    pub(crate) steps: usize,
    open: [Option<Open>; Name::ALL.len()],
    orphans: Vec<Open>,
    sub: Option<InodeId>,
    /// A disk has failed since the volume was mounted: a sync may report it
    /// later.
    troubled: bool,
}

/// A failure before any crash.
pub(crate) type Outcome<T = ()> = Result<T, String>;

impl<'a> Run<'a> {
    /// A run on a machine where `steps` steps were done before.
    pub(crate) fn new(
        subject: &'a dyn Subject,
        setup: &'a Setup,
        machine: Arc<Machine>,
        (history, steps): (History, usize),
    ) -> Self {
        let (open, orphans) = ([None; Name::ALL.len()], Vec::new());
        Self {
            subject,
            setup,
            machine,
            mounted: None,
            history,
            steps,
            open,
            orphans,
            sub: None,
            troubled: false,
        }
    }

    /// Mounts, which makes the volume if there is none. One step.
    pub(crate) fn mount(&mut self, recorder: Option<&Recorder>) -> Outcome {
        self.step(recorder, "mounting", |run, _| run.open_volume())
    }

    /// Makes the directory that every workload has. One step, and durable.
    pub(crate) fn make_dir(&mut self, recorder: Option<&Recorder>) -> Outcome {
        self.step(recorder, "making d", |run, step| {
            let name = OsStr::new("d");
            run.fs().mkdir(&Caller::root(), InodeId::ROOT, name, 0o755, 0)?;
            run.fs().sync()?;
            run.history.all_synced(step);
            Ok(())
        })
    }

    /// Carries one operation out. One step.
    pub(crate) fn apply(&mut self, op: &Op, recorder: Option<&Recorder>) -> Outcome {
        self.step(recorder, &op.to_string(), |run, step| run.carry_out(op, step))
    }

    /// Unmounts cleanly, for good. One step.
    pub(crate) fn unmount(&mut self) -> Outcome {
        self.step(None, "unmounting", |run, step| {
            if let Some(mounted) = run.mounted.take() {
                mounted.shutdown()?;
            }
            run.history.all_synced(step);
            Ok(())
        })
    }

    /// Reads the tree, which must match the history.
    pub(crate) fn look(&self) -> Outcome<tree::Seen> {
        tree::look(self.fs())
    }

    fn step(
        &mut self,
        recorder: Option<&Recorder>,
        what: &str,
        work: impl FnOnce(&mut Self, usize) -> Result<(), Error>,
    ) -> Outcome {
        let step = self.steps;
        if let Some(recorder) = recorder {
            recorder.begin();
        }
        let result = work(self, step);
        self.steps += 1;
        if let Some(recorder) = recorder {
            recorder.end();
        }
        result.map_err(|error| format!("step {step}, {what}, answered: {error}"))
    }

    fn fs(&self) -> &dyn FileSystem {
        // It is taken away only while it is replaced.
        self.mounted.as_ref().expect("the volume is mounted").fs()
    }

    fn open_volume(&mut self) -> Result<(), Error> {
        self.mounted = Some(Rc::from(self.subject.open(self.setup, self.machine.drives())?));
        Ok(())
    }

    fn carry_out(&mut self, op: &Op, step: usize) -> Result<(), Error> {
        match *op {
            Op::Create(name) => self.create(name, step),
            Op::Write { name, at, len, sync } => self.write(name, at, len, sync, step),
            Op::Append(name, len) => match self.history.file_of(name) {
                Some(file) => self.write(name, self.history.content(file).size, len, false, step),
                None => Ok(()),
            },
            Op::Fsync(name) => self.sync_file(name, false, step),
            Op::Fdatasync(name) => self.sync_file(name, true, step),
            Op::Sync => {
                if self.or_failed(self.fs().sync())?.is_some() {
                    self.history.all_synced(step);
                }
                Ok(())
            }
            Op::SyncDir(dir) => self.sync_dir(dir, step),
            Op::Truncate(name, size) => self.truncate(name, size, step),
            Op::Punch(name, at, len) => self.allocate(name, at, len, FallocateMode::PunchHole, step),
            Op::Zero(name, at, len) => {
                self.allocate(name, at, len, FallocateMode::ZeroRange { keep_size: false }, step)
            }
            Op::Allocate(name, at, len) => {
                self.allocate(name, at, len, FallocateMode::Allocate { keep_size: false }, step)
            }
            Op::Rename(from, to) => self.rename(from, to, step),
            Op::Link(from, to) => self.link(from, to, step),
            Op::Chmod(name, mode) => {
                let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
                self.set_attributes(name, &changes, step)
            }
            Op::Chown(name, id) => {
                let changes = SetAttr { uid: Some(id), gid: Some(id), ..SetAttr::default() };
                self.set_attributes(name, &changes, step)
            }
            Op::SetXattr(name, value) => self.set_xattr(name, value, step),
            // With frames, a write that finds no room may leave a longer file after loss of
            // power: docs/configuration.md says so.
            Op::Room(_) if self.setup.policy.starts_with("frames") => Ok(()),
            Op::Room(bytes) => {
                self.machine.disks[0].leave_room(Some(bytes));
                Ok(())
            }
            Op::RoomAgain => {
                self.machine.disks[0].leave_room(None);
                Ok(())
            }
            Op::Fail(disk, failing) => {
                self.fail(disk, Some(failing));
                Ok(())
            }
            Op::FailFsync(name, disk) => {
                let before = self.fail(disk, Some(Failing::Syncs));
                let synced = self.sync_file(name, false, step);
                self.fail(disk, before);
                synced?;
                self.sync_file(name, false, step)
            }
            Op::Heal => {
                self.machine.heal();
                Ok(())
            }
            Op::Unlink(name) => self.unlink(name, false, step),
            Op::UnlinkOpen(name) => self.unlink(name, true, step),
            Op::CreateUnnamed => self.create_unnamed(step),
            Op::FsyncOrphan => self.sync_orphan(step),
            Op::LinkOrphan(name) => self.link_orphan(name, step),
            Op::WriteOrphan(at, len) => self.write_orphan(at, len, step),
            Op::CloseOrphans => {
                std::mem::take(&mut self.orphans).into_iter().try_for_each(|o| self.release(o))
            }
            Op::Migrate(name, range, to) => self.migrate(name, range, to, None, step),
            Op::MigrateDuring(name, range, to, during) => {
                self.migrate(name, range, to, Some(during.op(name)), step)
            }
            // Their results on a failing tier do not matter for crashes.
            Op::Evacuate(_) | Op::RemoveTier(_) | Op::AddTier(_) if self.machine.is_failing() => Ok(()),
            Op::Evacuate(disk) => match &self.mounted {
                Some(mounted) => moved_or_nothing(mounted.evacuate(disk)),
                None => Ok(()),
            },
            Op::RemoveTier(disk) => self.remove_tier(disk, step),
            Op::AddTier(disk) => self.add_tier(disk),
            Op::Tick => {
                self.machine.clock().advance(IDLE_NS);
                if let Some(mounted) = &self.mounted {
                    mounted.tick();
                }
                Ok(())
            }
            Op::Close(name) => self.open[name.at()].take().map_or(Ok(()), |open| self.release(open)),
            Op::Remount => self.remount(step),
            // It would be refused, or end the mount.
            Op::HandOver if self.machine.is_failing() => Ok(()),
            Op::HandOver => {
                let given = self.mounted.as_ref().map(|mounted| mounted.hand_over()).transpose()?;
                if let Some(given) = given.flatten() {
                    self.mounted = Some(given.into());
                }
                Ok(())
            }
            // Data that a zoned store has gathered may be lost then, in whole or
            // in part.
            Op::Kill if self.setup.zoned => self.remount(step),
            Op::Kill => {
                self.mounted = None;
                self.forget_opens();
                self.open_well()
            }
        }
    }

    /// A disk other than home fails in this way; answers how it did before.
    fn fail(&mut self, disk: usize, failing: Option<Failing>) -> Option<Failing> {
        let disk = self.machine.disks.get(disk).filter(|_| disk > 0)?;
        let before = disk.failing();
        disk.fail(failing);
        self.troubled = true;
        before
    }

    /// Mounts with all disks well.
    fn open_well(&mut self) -> Result<(), Error> {
        self.machine.heal();
        self.troubled = false;
        self.open_volume()
    }

    /// `None` where a tier that fails, or has failed, is the reason.
    fn or_failed<T>(&self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.may_be_late(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it may report a tier that failed earlier.
    fn may_be_late(&self, error: &Error) -> bool {
        self.troubled && error.errno() == Errno::EIO
    }

    /// Whether a tier that fails now is the reason.
    fn is_failure(&self, error: &Error) -> bool {
        error.errno() == Errno::EIO && self.machine.is_failing()
    }

    fn set_attributes(&mut self, name: Name, changes: &SetAttr, step: usize) -> Result<(), Error> {
        let Some(file) = self.history.file_of(name) else { return Ok(()) };
        let ino = self.look_up(name)?.attr.ino;
        self.fs().setattr(&Caller::root(), ino, None, changes)?;
        self.fs().forget(ino, 1);
        let mut now = self.history.files[usize::from(file)].attributes_now();
        now.mode = changes.mode.unwrap_or(now.mode);
        now.owner = (changes.uid.unwrap_or(now.owner.0), changes.gid.unwrap_or(now.owner.1));
        self.history.attributes_set(step, file, now);
        Ok(())
    }

    fn set_xattr(&mut self, name: Name, value: u64, step: usize) -> Result<(), Error> {
        let Some(file) = self.history.file_of(name) else { return Ok(()) };
        let ino = self.look_up(name)?.attr.ino;
        let (key, bytes) = (OsStr::new(tree::XATTR), value.to_le_bytes());
        self.fs().setxattr(&Caller::root(), ino, key, &bytes, XattrMode::Set)?;
        self.fs().forget(ino, 1);
        let now = self.history.files[usize::from(file)].attributes_now();
        self.history.attributes_set(step, file, Attributes { xattr: Some(value), ..now });
        Ok(())
    }

    fn forget_opens(&mut self) {
        (self.open, self.sub) = ([None; Name::ALL.len()], None);
        self.orphans.clear();
    }

    fn remount(&mut self, step: usize) -> Result<(), Error> {
        self.forget_opens();
        let unmounted = self.mounted.take().map_or(Ok(()), |mounted| mounted.shutdown());
        // A clean unmount syncs everything.
        if self.or_failed(unmounted)?.is_some() {
            self.history.all_synced(step);
        }
        self.open_well()
    }

    /// The directory that a name is in.
    fn parent(&mut self, dir: Dir) -> Result<InodeId, Error> {
        match (dir, self.sub) {
            (Dir::Root, _) => Ok(InodeId::ROOT),
            (Dir::Sub, Some(ino)) => Ok(ino),
            (Dir::Sub, None) => {
                let entry = self.fs().lookup(&Caller::root(), InodeId::ROOT, OsStr::new("d"))?;
                self.sub = Some(entry.attr.ino);
                Ok(entry.attr.ino)
            }
        }
    }

    fn look_up(&mut self, name: Name) -> Result<Entry, Error> {
        let parent = self.parent(name.dir())?;
        self.fs().lookup(&Caller::root(), parent, OsStr::new(name.leaf()))
    }

    /// The file of that name, open; `None` if there is none.
    fn opened(&mut self, name: Name) -> Result<Option<Open>, Error> {
        let Some(file) = self.history.file_of(name) else { return Ok(None) };
        if let Some(open) = self.open[name.at()] {
            return Ok(Some(open));
        }
        let ino = self.look_up(name)?.attr.ino;
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let request = OpenRequest { flags, ..OpenRequest::default() };
        let handle = self.fs().open(&Caller::root(), ino, request)?.handle;
        let open = Open { file, ino, handle };
        self.open[name.at()] = Some(open);
        Ok(Some(open))
    }

    /// The handle is gone, whether a tier that fails kept the close from
    /// bringing everything up to date or not.
    fn release(&self, open: Open) -> Result<(), Error> {
        self.or_failed(self.fs().flush(&Caller::root(), open.handle))?;
        self.or_failed(self.fs().release(open.handle))?;
        self.fs().forget(open.ino, 1);
        Ok(())
    }

    fn create(&mut self, name: Name, step: usize) -> Result<(), Error> {
        if self.history.file_of(name).is_some() {
            return Ok(());
        }
        let parent = self.parent(name.dir())?;
        let born_ns = self.machine.clock().wall_ns();
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let leaf = OsStr::new(name.leaf());
        let made = self.fs().create(&Caller::root(), parent, leaf, 0o644, 0, true, flags.into());
        let Some((entry, opened)) = room_or_none(made)? else { return Ok(()) };
        let file = self.history.born(step, entry.attr.ino, born_ns);
        self.history.renamed(step, vec![(name, Some(file))], true);
        self.open[name.at()] = Some(Open { file, ino: entry.attr.ino, handle: opened.handle });
        Ok(())
    }

    fn write(&mut self, name: Name, at: u64, len: u64, sync: bool, step: usize) -> Result<(), Error> {
        match self.opened(name)? {
            Some(open) => self.write_to(open, at, len, sync, step),
            None => Ok(()),
        }
    }

    fn write_to(&mut self, open: Open, at: u64, len: u64, sync: bool, step: usize) -> Result<(), Error> {
        // Source 0 stands for zeros.
        let source = step as Source + 1;
        let mut data = vec![0; len as usize];
        stamp::fill(&mut data, open.file, source, at);
        let before = self.history.content(open.file).clone();
        let began_ns = self.machine.clock().wall_ns();
        let flags = WriteFlags { sync, ..WriteFlags::default() };
        let mut done = 0;
        let result = loop {
            if done == data.len() {
                break Ok(Some(()));
            }
            match self.fs().write(&Caller::root(), open.handle, at + done as u64, &data[done..], flags) {
                Ok(0) => break Err(Error::new(Errno::EIO, "a write wrote nothing")),
                Ok(more) => done += more,
                // A synchronous one also reports that an earlier sync failed.
                Err(error) if self.is_failure(&error) || sync && self.may_be_late(&error) => {
                    let mut content = before;
                    content.write(at, len, source);
                    self.history.failed(step, open.file, content);
                    return Ok(());
                }
                Err(error) => break room_or_none::<()>(Err(error)),
            }
        };
        let wrote = |len| {
            let mut content = before.clone();
            content.write(at, len, source);
            content
        };
        let complete = done as u64 == len;
        let asked = (!complete).then(|| wrote(len));
        let mtime_min_ns = (done > 0).then_some(began_ns);
        self.history.changed(step, open.file, wrote(done as u64), asked, mtime_min_ns);
        if sync && complete {
            self.history.synced(step, open.file, false);
        }
        result.map(|_| ())
    }

    fn sync_file(&mut self, name: Name, data_only: bool, step: usize) -> Result<(), Error> {
        match self.opened(name)? {
            Some(open) => self.sync_open(open, data_only, step),
            None => Ok(()),
        }
    }

    fn sync_open(&mut self, open: Open, data_only: bool, step: usize) -> Result<(), Error> {
        if self.or_failed(self.fs().fsync(&Caller::root(), open.handle, data_only))?.is_some() {
            self.history.synced(step, open.file, !data_only);
        }
        Ok(())
    }

    fn sync_dir(&mut self, dir: Dir, step: usize) -> Result<(), Error> {
        let ino = self.parent(dir)?;
        let handle = self.fs().open_dir(&Caller::root(), ino)?;
        self.fs().sync_dir(&Caller::root(), handle)?;
        self.fs().release_dir(handle)?;
        self.history.dir_synced(step, dir);
        Ok(())
    }

    fn truncate(&mut self, name: Name, size: u64, step: usize) -> Result<(), Error> {
        let Some(file) = self.history.file_of(name) else { return Ok(()) };
        // Without opening it, if it is not: that is a way of its own.
        let (ino, handle) = match self.open[name.at()] {
            Some(open) => (open.ino, Some(open.handle)),
            None => (self.look_up(name)?.attr.ino, None),
        };
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        let result = room_or_none(self.fs().setattr(&Caller::root(), ino, handle, &changes));
        let before = self.history.content(file).clone();
        let mut asked = before.clone();
        asked.set_size(size);
        // No tier's own time shows a new size: it may be lost.
        let result = match result {
            Err(error) if self.is_failure(&error) => self.failed_to(step, file, ino, asked),
            Ok(Some(_)) => {
                self.history.changed(step, file, asked, None, None);
                Ok(())
            }
            result => {
                self.history.changed(step, file, before, Some(asked), None);
                result.map(|_| ())
            }
        };
        if handle.is_none() {
            self.fs().forget(ino, 1);
        }
        result
    }

    fn allocate(
        &mut self,
        name: Name,
        at: u64,
        len: u64,
        mode: FallocateMode,
        step: usize,
    ) -> Result<(), Error> {
        let Some(open) = self.opened(name)? else { return Ok(()) };
        // After a write that failed midway, the result is unknown.
        let size_before = self.fs().getattr(&Caller::root(), open.ino, Some(open.handle))?.size;
        let result = room_or_none(self.fs().fallocate(&Caller::root(), open.handle, at, len, mode));
        let before = self.history.content(open.file).clone();
        let mut asked = before.clone();
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            asked.zero(at, len);
        }
        if mode != FallocateMode::PunchHole && at + len > asked.size {
            asked.set_size(at + len);
        }
        match result {
            Ok(Some(())) => self.history.changed(step, open.file, asked, None, None),
            Err(error) if self.is_failure(&error) => {
                return self.failed_to(step, open.file, open.ino, asked);
            }
            // Where nothing is written over, ranges have to move to be zeroed,
            // and there was no room for some.
            Ok(None) if asked != before && !self.is_zeroed(open, at, len)? => {
                return self.failed_to(step, open.file, open.ino, asked);
            }
            _ => {
                let left = self.left_by_failure(open, &asked, size_before)?;
                self.history.changed(step, open.file, left, Some(asked), None);
            }
        }
        result.map(|_| ())
    }

    /// A tier failed in a change to `asked`; the size is as it is found.
    fn failed_to(&mut self, step: usize, file: FileId, ino: InodeId, asked: Content) -> Result<(), Error> {
        let size = self.fs().getattr(&Caller::root(), ino, None)?.size;
        let mut left = asked.clone();
        left.set_size(size);
        self.history.failed(step, file, asked);
        self.history.failed(step, file, left);
        Ok(())
    }

    fn is_zeroed(&self, open: Open, at: u64, len: u64) -> Result<bool, Error> {
        let mut bytes = vec![0; len as usize];
        match self.fs().read(&Caller::root(), open.handle, at, &mut bytes, false) {
            // Its state is unknown then.
            Err(error) if self.is_failure(&error) => Ok(false),
            read => read.map(|_| bytes.iter().all(|byte| *byte == 0)),
        }
    }

    /// The result of an allocation that ran out of room: as much of it as
    /// fitted.
    fn left_by_failure(&self, open: Open, asked: &Content, size_before: u64) -> Result<Content, Error> {
        let size = self.fs().getattr(&Caller::root(), open.ino, Some(open.handle))?.size;
        if !(size_before..=asked.size).contains(&size) {
            return Err(Error::new(Errno::EIO, format!("a failed allocation left a size of {size}")));
        }
        let mut left = asked.clone();
        left.set_size(size);
        Ok(left)
    }

    fn rename(&mut self, from: Name, to: Name, step: usize) -> Result<(), Error> {
        let Some(file) = self.history.file_of(from).filter(|_| from != to) else { return Ok(()) };
        if self.history.file_of(to) == Some(file) {
            // Two names of one file: nothing happens.
            return Ok(());
        }
        let (parent, new_parent) = (self.parent(from.dir())?, self.parent(to.dir())?);
        let (leaf, new_leaf) = (OsStr::new(from.leaf()), OsStr::new(to.leaf()));
        let mode = RenameMode::Replace;
        self.fs().rename(&Caller::root(), parent, leaf, new_parent, new_leaf, mode)?;
        self.history.renamed(step, vec![(from, None), (to, Some(file))], true);
        let moved = self.open[from.at()].take();
        self.orphans.extend(std::mem::replace(&mut self.open[to.at()], moved));
        Ok(())
    }

    fn link(&mut self, from: Name, to: Name, step: usize) -> Result<(), Error> {
        let Some(file) = self.history.file_of(from) else { return Ok(()) };
        if self.history.file_of(to).is_some() {
            return Ok(());
        }
        let ino = self.look_up(from)?.attr.ino;
        let parent = self.parent(to.dir())?;
        let linked = self.fs().link(&Caller::root(), ino, parent, OsStr::new(to.leaf()));
        let linked = room_or_none(linked)?;
        self.history.renamed(step, vec![(to, Some(file))], linked.is_some());
        self.fs().forget(ino, 1 + u64::from(linked.is_some()));
        Ok(())
    }

    fn unlink(&mut self, name: Name, keep_open: bool, step: usize) -> Result<(), Error> {
        if self.history.file_of(name).is_none() {
            return Ok(());
        }
        if keep_open {
            self.opened(name)?;
        } else if let Some(open) = self.open[name.at()].take() {
            self.release(open)?;
        }
        let parent = self.parent(name.dir())?;
        self.fs().unlink(&Caller::root(), parent, OsStr::new(name.leaf()))?;
        self.history.renamed(step, vec![(name, None)], true);
        self.orphans.extend(self.open[name.at()].take());
        Ok(())
    }

    fn remove_tier(&mut self, disk: usize, step: usize) -> Result<(), Error> {
        for name in Name::ALL {
            for range in 0..RANGES_MAX {
                self.migrate(name, range, 0, None, step)?;
            }
        }
        let Some(mounted) = &self.mounted else { return Ok(()) };
        match mounted.remove_tier(disk) {
            Err(error) if matches!(error.errno(), Errno::EBUSY | Errno::ENOENT | Errno::ENOTEMPTY) => Ok(()),
            result => room_or_none(result).map(|_| ()),
        }
    }

    fn add_tier(&self, disk: usize) -> Result<(), Error> {
        let Some(mounted) = self.mounted.as_ref().filter(|_| disk < self.machine.disks.len()) else {
            return Ok(());
        };
        match mounted.add_tier(disk) {
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            result => room_or_none(result).map(|_| ()),
        }
    }

    /// Moves a range; `during` is carried out in the midst of it, or after it
    /// if nothing was to be moved.
    fn migrate(
        &mut self,
        name: Name,
        range: u64,
        to: usize,
        mut during: Option<Op>,
        step: usize,
    ) -> Result<(), Error> {
        let opened = self.opened(name)?;
        if let (Some(open), Some(mounted)) = (opened, self.mounted.clone()) {
            let mut done = Ok(());
            let moved = mounted.migrate(open.ino, range * super::RANGE, to, &mut || {
                if let Some(op) = during.take() {
                    done = self.carry_out(&op, step);
                }
            });
            done?;
            match moved {
                Err(error) if self.is_failure(&error) => {}
                moved => moved_or_nothing(moved)?,
            }
        }
        during.map_or(Ok(()), |op| self.carry_out(&op, step))
    }
}

/// There may be nothing to be moved, or nothing any more, or no room for it.
fn moved_or_nothing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if is_nothing_to_move(&error) => Ok(()),
        result => room_or_none(result).map(|_| ()),
    }
}

fn is_nothing_to_move(error: &Error) -> bool {
    matches!(error.errno(), Errno::EINVAL | Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EBUSY)
}

/// `None` where the disks have no room: that is no failure.
fn room_or_none<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_full() => Ok(None),
        Err(error) => Err(error),
    }
}
