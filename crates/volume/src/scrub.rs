//! Scrubs: jobs that read files to their ends, through all modules, so that these and the devices
//! check what they have. Nothing is changed, and no read counts as one of an application.
//! `job_work` calls this.
//!
//! Names are visited in order, directories where they are, so that a scrub goes on where it was.

use crate::jobs::{Job, RunEnd, RunStop};
use crate::occupancy::each_range;
use crate::volume::Volume;
use braid_contract::{
    Amount, Caller, Entry, Errno, Error, FileKind, FileSystem, HandleId, InodeId, OpenFlags, Result,
    SeekTarget, Shown, counted, list_names,
};
use braid_core::file::file_of;
use braid_core::live::Layout;
use braid_sys::AlignedBuf;
use braid_tiers::rate::{MoveRate, Pace, Stopped};
use braid_tiers::{Account, Tier, act_for};
use std::collections::HashSet;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Bytes that are read at a time where such a piece can't be, and those that are passed over where
/// these can't be, either.
const PART: u64 = 64 << 10;
const STEP: u64 = 4096;

/// A run of a scrub.
struct Scrub<'v> {
    volume: &'v Volume,
    stack: &'v dyn FileSystem,
    caller: Caller,
    id: u64,
    pace: &'v Pace,
    /// Everything up to this file was read by earlier runs.
    after: PathBuf,
    /// What there is in all, while that is only counted, and what of it was read.
    counting: Option<Counted>,
    /// Files with several names that were visited.
    linked: HashSet<InodeId>,
    /// What can't be read since the last place that is noted: after an interruption it is found
    /// again.
    found: Found,
    buffer: AlignedBuf,
}

#[derive(Default)]
struct Found {
    errors: u64,
    first: Option<String>,
}

#[derive(Default)]
struct Counted {
    total: Amount,
    done: Amount,
}

/// A directory on the way.
struct Level {
    ino: InodeId,
    path: PathBuf,
    /// The names that are still to be visited, the next one last.
    names: Vec<OsString>,
}

/// A part of a file that can't be read.
struct Damage {
    bytes: Range<u64>,
    error: Error,
}

/// An open file that is read.
struct Reading<'p> {
    path: &'p Path,
    ino: InodeId,
    handle: HandleId,
    size: u64,
    damage: Option<Damage>,
}

type Step<T = ()> = std::result::Result<T, RunStop>;

/// Carries a scrub on as far as possible.
pub(crate) fn scrub(volume: &Volume, id: u64, path: &str, pace: &Pace) -> Step<RunEnd> {
    // Before it is mounted, and where it never is, there are no modules.
    let above = volume.stack.get().and_then(Weak::upgrade);
    let stack: &dyn FileSystem = above.as_deref().unwrap_or(volume);
    let after = volume.jobs.one(id).map_err(failed)?.record.position;
    let mut scrub = Scrub {
        volume,
        stack,
        caller: Caller::stack(),
        id,
        pace,
        after: after.map(PathBuf::from).unwrap_or_default(),
        counting: Some(Counted::default()),
        linked: HashSet::new(),
        found: Found::default(),
        buffer: AlignedBuf::new(),
    };
    scrub.walk(Path::new(path))?;
    if let Some(Counted { total, done }) = scrub.counting.take() {
        // A file may have got an earlier name since it was not read.
        scrub.linked.clear();
        let counted = |job: &mut Job| (job.record.total, job.record.done) = (Some(total), done);
        volume.jobs.list.update(id, counted).map_err(failed)?;
    }
    scrub.walk(Path::new(path))?;
    scrub.finish()
}

impl Scrub<'_> {
    /// Visits all files at and below a path.
    fn walk(&mut self, start: &Path) -> Step {
        let (mut at, mut path) = (InodeId::ROOT, PathBuf::new());
        let mut names = start.iter().peekable();
        while let Some(name) = names.next() {
            let found = self.stack.lookup(&self.caller, at, name);
            self.forget(at);
            path.push(name);
            let entry = match found {
                Ok(entry) => entry,
                Err(error) => return self.unread(&path, &error),
            };
            if entry.attr.kind != FileKind::Directory {
                let done = match names.peek() {
                    None if entry.attr.kind == FileKind::Regular => self.file(&path, &entry),
                    _ => self.unread(&path, &Errno::ENOTDIR.into()),
                };
                self.forget(entry.attr.ino);
                return done;
            }
            at = entry.attr.ino;
        }
        let mut levels = self.level(at, path)?.into_iter().collect();
        let walked = self.below(&mut levels);
        levels.iter().for_each(|level| self.forget(level.ino));
        walked
    }

    fn below(&mut self, levels: &mut Vec<Level>) -> Step {
        while let Some(level) = levels.last_mut() {
            if self.is_interrupted() {
                return Err(RunStop::Interrupted);
            }
            let Some(name) = level.names.pop() else {
                self.forget(level.ino);
                levels.pop();
                continue;
            };
            let path = level.path.join(&name);
            match self.stack.lookup(&self.caller, level.ino, &name) {
                Ok(entry) if entry.attr.kind == FileKind::Directory => {
                    levels.extend(self.level(entry.attr.ino, path)?);
                }
                Ok(entry) => {
                    let done = self.file(&path, &entry);
                    self.forget(entry.attr.ino);
                    done?;
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => self.unread(&path, &error)?,
            }
        }
        Ok(())
    }

    /// A directory that was looked up.
    fn level(&mut self, ino: InodeId, path: PathBuf) -> Step<Option<Level>> {
        match self.names(ino) {
            Ok(mut names) => {
                if self.counting.is_none()
                    && let Ok(rest) = self.after.strip_prefix(&path)
                    && let Some(first) = rest.iter().next()
                {
                    names.retain(|name| name.as_os_str() >= first);
                }
                names.sort_unstable_by(|one, other| other.cmp(one));
                Ok(Some(Level { ino, path, names }))
            }
            Err(error) => {
                self.forget(ino);
                match error.errno() {
                    Errno::ECANCELED => Err(RunStop::Interrupted),
                    _ if is_gone(&error) => Ok(None),
                    _ => self.unread(&path, &error).map(|()| None),
                }
            }
        }
    }

    fn names(&self, ino: InodeId) -> Result<Vec<OsString>> {
        let goes_on = || if self.is_interrupted() { Err(Errno::ECANCELED.into()) } else { Ok(()) };
        list_names(self.stack, &self.caller, ino, goes_on)
    }

    fn forget(&self, ino: InodeId) {
        if ino != InodeId::ROOT {
            self.stack.forget(ino, 1);
        }
    }

    /// Visits a name that leads to no directory.
    fn file(&mut self, path: &Path, entry: &Entry) -> Step {
        let has_links = entry.attr.nlink > 1;
        if entry.attr.kind != FileKind::Regular || has_links && !self.linked.insert(entry.attr.ino) {
            return Ok(());
        }
        let was_read = path <= self.after;
        if let Some(counted) = &mut self.counting {
            let one = Amount { bytes: entry.attr.size, ranges: 0, files: 1 };
            counted.total += one;
            if was_read {
                counted.done += one;
            }
            return Ok(());
        }
        if was_read {
            return Ok(());
        }
        let flags = OpenFlags { read: true, direct: true, ..OpenFlags::default() };
        let handle = match self.stack.open(&self.caller, entry.attr.ino, flags.into()) {
            Ok(opened) => opened.handle,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return self.unread(path, &error),
        };
        let (ino, size) = (entry.attr.ino, entry.attr.size);
        let mut reading = Reading { path, ino, handle, size, damage: None };
        let read = self.read(&mut reading);
        self.note_damage(&mut reading);
        if let Err(error) = self.stack.release(handle) {
            tracing::debug!(job = self.id, path = %path.shown(), %error, "a file that was read can't be closed");
        }
        read?;
        self.was_read(path);
        Ok(())
    }

    /// Reads a file to its end.
    fn read(&mut self, reading: &mut Reading<'_>) -> Step {
        let mut at = 0;
        while at < reading.size {
            let from = match self.stack.seek(&self.caller, reading.handle, at, SeekTarget::Data) {
                Ok(from) => from.min(reading.size),
                Err(error) if error.errno() == Errno::ENXIO => reading.size,
                // Where holes are not known, all is data.
                Err(_) => at,
            };
            let read = match reading.size - from {
                0 => 0,
                left => self.piece(reading, from..from + left.min(PIECE))?,
            };
            let next = if read == 0 { reading.size } else { from + read };
            self.note(Amount { bytes: next - at, ranges: 0, files: 0 });
            at = next;
        }
        Ok(())
    }

    /// Reads a piece, or finds out which of its parts can't be read; returns how long it is, 0 if
    /// the file ends there.
    fn piece(&mut self, reading: &mut Reading<'_>, piece: Range<u64>) -> Step<u64> {
        let tiers = self.tiers_of(reading, &piece);
        let smaller = match piece.end - piece.start {
            len if len <= STEP => None,
            len if len <= PART => Some(STEP),
            _ => Some(PART),
        };
        let error = match self.read_at(reading.handle, piece.clone(), &tiers)? {
            Ok(read) => return Ok(read),
            Err(error) if is_gone(&error) => return Ok(0),
            Err(error) => error,
        };
        // A tier in trouble has nothing to be found there.
        let Some(smaller) = smaller.filter(|_| tiers.iter().all(|tier| tier.is_healthy())) else {
            let len = piece.end - piece.start;
            self.damaged(reading, piece, error);
            return Ok(len);
        };
        let mut at = piece.start;
        while at < piece.end {
            match self.piece(reading, at..piece.end.min(at + smaller))? {
                0 => break,
                read => at += read,
            }
        }
        Ok(at - piece.start)
    }

    /// Reads some bytes, when applications allow that.
    fn read_at(&mut self, handle: HandleId, bytes: Range<u64>, tiers: &[Arc<Tier>]) -> Step<Result<u64>> {
        if self.is_interrupted() {
            return Err(RunStop::Interrupted);
        }
        let tiers: Vec<&Tier> = tiers.iter().map(Arc::as_ref).collect();
        let (throttles, class) = (&self.volume.throttles, self.volume.jobs.list.io_class(self.id));
        let rate = MoveRate { throttles, pace: self.pace, class };
        let wanted = bytes.end - bytes.start;
        let _passage = rate.throttle(&tiers, wanted).map_err(|Stopped| RunStop::Interrupted)?;
        // Below a page, direct reads are none: the rest of the page may be there.
        let len = wanted.next_multiple_of(STEP) as usize;
        let _for = act_for(Account::Mover);
        let read = self.stack.read(&self.caller, handle, bytes.start, self.buffer.bytes(len), true);
        // It may fail for the reason that it was interrupted.
        match read {
            Err(_) if self.is_interrupted() => Err(RunStop::Interrupted),
            read => Ok(read.map(|read| (read as u64).min(wanted))),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.volume.jobs.list.is_interrupted(self.id)
    }

    /// The tiers that some bytes of a file are on. Modules that keep them at other places of a
    /// longer or shorter file keep their order.
    fn tiers_of(&self, reading: &Reading<'_>, bytes: &Range<u64>) -> Vec<Arc<Tier>> {
        let core = &self.volume.core;
        let _entered = core.barrier.enter();
        let mut tiers: Vec<Arc<Tier>> = Vec::new();
        let found = core.inodes.get(reading.ino).and_then(|inode| file_of(core, &inode));
        let Ok(file) = found else { return tiers };
        let stored = match &*file.layout.read() {
            Layout::Plain => reading.size,
            Layout::Spread(spread) => spread.size(),
        };
        let at = |offset: u64| {
            let place = u128::from(offset) * u128::from(stored) / u128::from(reading.size.max(1));
            u64::try_from(place).unwrap_or(u64::MAX)
        };
        let bytes = at(bytes.start)..at(bytes.end).max(at(bytes.start) + 1);
        // It ends with an error behind these bytes.
        let _ = each_range(core, &file, bytes.start, &mut |stretch| {
            if stretch.offset >= bytes.end {
                return Err(Errno::ECANCELED.into());
            }
            if !tiers.iter().any(|tier| tier.id == stretch.tier) {
                tiers.push(core.tiers.get(stretch.tier)?);
            }
            Ok(())
        });
        tiers
    }

    /// Notes a part that can't be read, as one with what is damaged just before it.
    fn damaged(&mut self, reading: &mut Reading<'_>, bytes: Range<u64>, error: Error) {
        if let Some(last) = &mut reading.damage
            && last.bytes.end == bytes.start
            && last.error.errno() == error.errno()
        {
            last.bytes.end = bytes.end;
            return;
        }
        self.note_damage(reading);
        reading.damage = Some(Damage { bytes, error });
    }

    fn note_damage(&mut self, reading: &mut Reading<'_>) {
        let Some(Damage { bytes, error }) = reading.damage.take() else { return };
        let what = format!("{}: bytes {} to {}: {error}", reading.path.shown(), bytes.start, bytes.end);
        self.error(what);
    }

    /// Notes a file or directory that can't be opened.
    fn unread(&mut self, path: &Path, error: &Error) -> Step {
        if self.is_interrupted() {
            return Err(RunStop::Interrupted);
        }
        if self.counting.is_none() {
            self.error(format!("{}: {error}", path.shown()));
        }
        Ok(())
    }

    fn error(&mut self, what: String) {
        tracing::warn!(job = self.id, "a scrub can't read {what}");
        self.found.errors += 1;
        self.found.first.get_or_insert(what);
    }

    /// Notes that a file was read to its end.
    fn was_read(&mut self, path: &Path) {
        // Of another name, an earlier place counts.
        if let Some(path) = path.to_str() {
            self.is_at(Some(path.to_owned()));
        }
        self.note(Amount { bytes: 0, ranges: 0, files: 1 });
    }

    /// Notes how far the scrub is, and what was found up to there.
    fn is_at(&mut self, position: Option<String>) {
        let Found { errors, first } = std::mem::take(&mut self.found);
        self.volume.jobs.list.note(self.id, |record| {
            record.position = position;
            record.errors += errors;
            record.message = record.message.take().or(first);
        });
    }

    fn note(&self, more: Amount) {
        if let Some(record) = self.volume.jobs.list.moved(self.id, more) {
            self.volume.jobs.try_keep(&record);
        }
    }

    fn finish(mut self) -> Step<RunEnd> {
        self.is_at(None);
        let record = self.volume.jobs.one(self.id).map_err(failed)?.record;
        Ok(match (record.errors, record.message) {
            (0, _) => RunEnd::Finished,
            (errors, first) => RunEnd::Failed(format!(
                "{} can't be read; the first: {}; the mount's log names all",
                counted(errors, "part"),
                first.unwrap_or_default()
            )),
        })
    }
}

/// Whether a name or file was removed meanwhile.
fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE)
}

fn failed(error: Error) -> RunStop {
    RunStop::Failed(error.to_string())
}
