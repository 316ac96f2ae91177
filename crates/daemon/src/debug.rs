//! One module alone (LabStor §3.1, its debug mode): `braid module debug` has it carry out
//! the operations of a trace, on a volume of one directory that is made for that, and compares the
//! data read with the data written.

use crate::clock::now_ns;
use crate::config::Config;
use crate::guard::{KeptState, Origin, STATE_MAX};
use crate::handle::VolumeHandle;
use crate::modules::Modules;
use crate::refusal::{Place, Refusal};
use crate::source::Reading;
use crate::yaml::{self, Entry, Node, Value};
use crate::{stack_file, wire};
use braid_contract::{
    Caller, Error, FallocateMode, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest, RenameMode, SetAttr,
    WriteFlags,
};
use braid_modules::State;
use braid_placement::{Trace, TraceOp, TraceOpKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Longest transfer at a time, in bytes.
const PIECE: usize = 1 << 20;

/// The name of a file that is about to go.
const GOING: &str = "going";

/// The results.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Each kind of operation.
    pub operations: Vec<Operation>,
    /// Places where the data read differs from the data written: at most ten.
    pub wrong: Vec<String>,
    /// The first error of each kind of operation.
    pub errors: Vec<String>,
    /// How the module went on as after a crash, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
}

/// How a module went on as after a crash.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Repair {
    /// The length of the state that would have been kept; `None` if there is none.
    pub state_bytes: Option<u64>,
    /// The failure.
    pub error: Option<String>,
}

/// A kind of operation.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Operation {
    /// Its name.
    pub operation: &'static str,
    /// Their number.
    pub count: u64,
    /// How many failed.
    pub failed: u64,
    /// Mean time without the module, in nanoseconds.
    pub without_ns: u64,
    /// Mean time with the module, in nanoseconds.
    pub with_ns: u64,
}

/// Carries the operations of a trace out, without and with the module; then, with `repairs`,
/// has another one of the same kind go on as after a crash.
///
/// # Errors
/// If there is no such module, or its settings (in YAML) are wrong.
pub fn run(module: &str, settings: &str, trace: &Trace, repairs: bool) -> Result<Report, Refusal> {
    let (_, bare) = played(None, trace, false)?;
    let (mut report, with) = played(Some((module, settings)), trace, repairs)?;
    report.operations = with
        .into_iter()
        .map(|(operation, with)| {
            let without = bare.get(operation).copied().unwrap_or_default();
            let Tally { count, failed, .. } = with;
            Operation { operation, count, failed, without_ns: without.mean(), with_ns: with.mean() }
        })
        .collect();
    Ok(report)
}

#[derive(Clone, Copy, Default)]
struct Tally {
    count: u64,
    failed: u64,
    total_ns: u64,
}

impl Tally {
    fn mean(self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or_default()
    }
}

type Tallies = BTreeMap<&'static str, Tally>;

fn played(module: Option<(&str, &str)>, trace: &Trace, repairs: bool) -> Result<(Report, Tallies), Refusal> {
    let place = Place::flag("--trace");
    let failed = |error: &dyn std::fmt::Display| {
        place.refuse(error.to_string(), "it needs room in the directory for temporary files")
    };
    let dir = scratch().map_err(|error| failed(&error))?;
    let played = play_in(&dir, module, trace, repairs);
    std::fs::remove_dir_all(&dir).map_err(|error| failed(&error))?;
    played
}

/// A new directory for one's own use.
fn scratch() -> std::io::Result<std::path::PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let dir = std::env::temp_dir().join(format!("braid-debug-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

fn play_in(
    dir: &Path,
    module: Option<(&str, &str)>,
    trace: &Trace,
    repairs: bool,
) -> Result<(Report, Tallies), Refusal> {
    let config = config(dir, module)?;
    if let (true, Some(module)) = (repairs, config.stack.framed_module()) {
        let found = format!("'{module}' has open files to itself, which only a mount with restart hands on");
        return Err(Place::flag("--repair").refuse(found, "leave it out"));
    }
    let handle = wire::open(&config, true)?;
    let mut play = Play::new(handle.file_system(), trace);
    trace.ops.iter().for_each(|op| play.step(op));
    let (mut report, tallies) = (play.report, play.tallies);
    report.repair = repairs.then(|| repair(&handle, &config));
    let closed = handle.shutdown();
    closed.map_err(|error| {
        Place::flag("--trace").refuse(error.to_string(), "the volume was not closed cleanly")
    })?;
    Ok((report, tallies))
}

/// Has another module go on with the state of the present one, as after a crash.
fn repair(handle: &VolumeHandle, config: &Config) -> Repair {
    let mut told = Repair::default();
    let mut kept = Vec::new();
    if let Some(member) = handle.modules.present().first() {
        match member.snapshot() {
            Ok(Some(state)) if state.bytes.len() > STATE_MAX => {
                told.error = Some(format!("its state of {} bytes would not be kept", state.bytes.len()));
            }
            Ok(Some(State { version, bytes })) => {
                told.state_bytes = Some(bytes.len() as u64);
                kept.push(KeptState { origin: Origin::of(1, &**member), version, bytes, at_ns: now_ns() });
            }
            Ok(None) => {}
            Err(error) => told.error = Some(error.to_string()),
        }
    }
    let failed = match Modules::new(&config.stack, handle.volume.clone()) {
        Err(refusal) => Some(refusal.found),
        Ok(next) => {
            let went_on = next.go_on_after_crash(&[], &kept, 1);
            let status = next.status();
            next.end();
            let failed = status.into_iter().find_map(|module| module.after_crash?.error);
            went_on.err().map(|error| error.to_string()).or(failed)
        }
    };
    told.error = told.error.or(failed);
    told
}

/// A stack of one module, or of none, on one directory.
fn config(dir: &Path, module: Option<(&str, &str)>) -> Result<Config, Refusal> {
    let name = "--settings";
    let place = Place::flag(name);
    let map = |entries: Vec<(&str, Node)>| {
        let entry = |(key, node): (&str, Node)| Entry { key: key.to_owned(), line: 0, span: None, node };
        Node::new(Value::Map(entries.into_iter().map(entry).collect()))
    };
    let text = |text: &str| Node::new(Value::Scalar(text.to_owned()));
    let tier = map(vec![("dir", text(&dir.to_string_lossy()))]);
    let volume = map(vec![
        ("home", text("scratch")),
        ("measure", text("no")),
        ("tiers", map(vec![("scratch", tier)])),
    ]);
    let stack = match module {
        None => map(vec![("volume", volume)]),
        Some((module, settings)) => {
            let mut settings = yaml::parse(settings, &place)?;
            let volume = ("volume".to_owned(), volume);
            let entry = Entry { key: volume.0, line: 0, span: None, node: volume.1 };
            match &mut settings.value {
                Value::Map(entries) => entries.push(entry),
                Value::Null => settings.value = Value::Map(vec![entry]),
                _ => {
                    return Err(place.refuse(
                        "they are not keys with values",
                        "write 'key: value', or '{ key: value, … }'",
                    ));
                }
            }
            map(vec![(module, settings)])
        }
    };
    let registry = Arc::default();
    let reading = Reading { base: Path::new("."), profile: false, registry: &registry };
    stack_file::of_document(map(vec![("stack", stack)]), name, &reading)
}

/// A file of the trace.
#[derive(Default)]
struct File {
    open: Option<(InodeId, HandleId)>,
    size: u64,
    /// The ranges written, whose contents are known.
    written: BTreeMap<u64, u64>,
}

impl File {
    fn wrote(&mut self, range: Range<u64>) {
        self.forget(range.clone());
        self.written.insert(range.start, range.end);
        self.size = self.size.max(range.end);
    }

    /// Takes a range out of the known ones.
    fn forget(&mut self, range: Range<u64>) {
        let over: Vec<(u64, u64)> = self
            .written
            .range(..range.end)
            .filter(|(_, end)| **end > range.start)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (start, end) in over {
            self.written.remove(&start);
            if start < range.start {
                self.written.insert(start, range.start);
            }
            if end > range.end {
                self.written.insert(range.end, end);
            }
        }
    }
}

/// The byte at an offset of a file.
fn pattern(file: usize, offset: u64) -> u8 {
    let mixed = ((offset / 7) ^ (file as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 32) as u8
}

struct Play<'a> {
    fs: Arc<dyn FileSystem>,
    trace: &'a Trace,
    caller: Caller,
    files: Vec<File>,
    buffer: Vec<u8>,
    report: Report,
    tallies: Tallies,
}

impl<'a> Play<'a> {
    fn new(fs: Arc<dyn FileSystem>, trace: &'a Trace) -> Self {
        let files = trace.files.iter().map(|_| File::default()).collect();
        let (report, tallies) = (Report::default(), Tallies::new());
        Self { fs, trace, caller: Caller::root(), files, buffer: vec![0; PIECE], report, tallies }
    }

    /// Carries out and counts one operation.
    fn timed<T>(
        &mut self,
        operation: &'static str,
        act: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Option<T> {
        let begun = Instant::now();
        let done = act(self);
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let tally = self.tallies.entry(operation).or_default();
        tally.count += 1;
        tally.total_ns = tally.total_ns.saturating_add(took);
        done.map_err(|error| {
            tally.failed += 1;
            if tally.failed == 1 {
                self.report.errors.push(format!("{operation}: {error}"));
            }
        })
        .ok()
    }

    fn name(&self, file: usize) -> OsString {
        format!("{}-{file}", self.trace.files[file].number).into()
    }

    /// Opens a file, which is made if it is not there: with the size that it had.
    fn opened(&mut self, file: usize) -> Option<(InodeId, HandleId)> {
        if let Some(open) = self.files[file].open {
            return Some(open);
        }
        let name = self.name(file);
        let made = self.timed("create", |play| {
            let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
            play.fs.create(&play.caller, InodeId::ROOT, &name, 0o644, 0, false, OpenRequest::from(flags))
        });
        let (entry, opened) = made?;
        self.files[file].open = Some((entry.attr.ino, opened.handle));
        self.write(file, 0..self.trace.files[file].size, false);
        self.files[file].open
    }

    fn step(&mut self, op: &TraceOp) {
        let file = op.file;
        let Some((ino, handle)) = self.opened(file) else { return };
        match op.kind {
            TraceOpKind::Create => {}
            TraceOpKind::Open => self.open_again(ino),
            TraceOpKind::Read => self.read(file, op.offset..op.offset.saturating_add(op.len)),
            TraceOpKind::Write => self.write(file, op.offset..op.offset.saturating_add(op.len), op.sync),
            TraceOpKind::Allocate => {
                let mode = FallocateMode::Allocate { keep_size: false };
                let end = op.offset.saturating_add(op.len);
                let done = self.timed("fallocate", |play| {
                    play.fs.fallocate(&play.caller, handle, op.offset, op.len, mode)
                });
                if done.is_some() {
                    self.files[file].size = self.files[file].size.max(end);
                }
            }
            TraceOpKind::Truncate => self.truncate(file, op.size),
            TraceOpKind::Sync => {
                self.timed("fsync", |play| play.fs.fsync(&play.caller, handle, false));
            }
            TraceOpKind::Remove => self.remove(file),
        }
    }

    fn open_again(&mut self, ino: InodeId) {
        let request = OpenRequest::from(OpenFlags { read: true, ..OpenFlags::default() });
        if let Some(opened) = self.timed("open", |play| play.fs.open(&play.caller, ino, request)) {
            self.timed("release", |play| play.fs.release(opened.handle));
        }
    }

    fn write(&mut self, file: usize, range: Range<u64>, sync: bool) {
        let Some((_, handle)) = self.files[file].open else { return };
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
            let data: Vec<u8> = (at..at + len as u64).map(|offset| pattern(file, offset)).collect();
            let flags = WriteFlags { sync, ..WriteFlags::default() };
            let wrote = self.timed("write", |play| play.fs.write(&play.caller, handle, at, &data, flags));
            let Some(wrote @ 1..) = wrote else { return };
            self.files[file].wrote(at..at + wrote as u64);
            at += wrote as u64;
        }
    }

    fn read(&mut self, file: usize, range: Range<u64>) {
        let Some((_, handle)) = self.files[file].open else { return };
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
            let mut buffer = std::mem::take(&mut self.buffer);
            let read =
                self.timed("read", |play| play.fs.read(&play.caller, handle, at, &mut buffer[..len], false));
            if let Some(read) = read {
                self.compare(file, at, &buffer[..read], len);
            }
            self.buffer = buffer;
            let Some(1..) = read else { return };
            at += len as u64;
        }
    }

    fn compare(&mut self, file: usize, at: u64, read: &[u8], asked: usize) {
        let end = self.files[file].size.min(at.saturating_add(asked as u64));
        if (read.len() as u64) < end.saturating_sub(at) {
            self.wrong(format!("{}: {} bytes at {at}, of {}", self.name_of(file), read.len(), end - at));
        }
        let known = self.files[file].written.range(..at + read.len() as u64).map(|(start, end)| *start..*end);
        let is_wrong =
            |offset: &u64| read[usize::try_from(offset - at).unwrap_or_default()] != pattern(file, *offset);
        let mut checked = known.flat_map(|range| range.start.max(at)..range.end.min(at + read.len() as u64));
        if let Some(offset) = checked.find(is_wrong) {
            self.wrong(format!("{}: the byte at {offset} is not what was written", self.name_of(file)));
        }
    }

    fn name_of(&self, file: usize) -> &str {
        &self.trace.files[file].path
    }

    fn wrong(&mut self, what: String) {
        if self.report.wrong.len() < 10 {
            self.report.wrong.push(what);
        }
    }

    fn truncate(&mut self, file: usize, size: u64) {
        let Some((ino, handle)) = self.files[file].open else { return };
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        let done = self.timed("truncate", |play| play.fs.setattr(&play.caller, ino, Some(handle), &changes));
        let Some(attr) = done else { return };
        if attr.size != size {
            self.wrong(format!("{}: its size is {}, not {size}", self.name_of(file), attr.size));
        }
        self.files[file].forget(size..u64::MAX);
        self.files[file].size = size;
    }

    fn remove(&mut self, file: usize) {
        let Some((ino, handle)) = self.files[file].open.take() else { return };
        let (name, root) = (self.name(file), InodeId::ROOT);
        // As editors and databases replace files.
        let renamed = self.timed("rename", |play| {
            play.fs.rename(&play.caller, root, &name, root, GOING.as_ref(), RenameMode::Replace)
        });
        let name = renamed.map_or(name, |()| GOING.into());
        self.timed("unlink", |play| play.fs.unlink(&play.caller, root, &name));
        self.timed("release", |play| play.fs.release(handle));
        self.fs.forget(ino, 1);
        self.files[file] = File::default();
    }
}
