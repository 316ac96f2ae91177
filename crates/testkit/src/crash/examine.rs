//! One crash state: runs recovery on it, and examines the result.

use super::explore::describe_panic;
use super::machine::{Machine, Setup};
use super::op::Name;
use super::oracle::Expectation;
use super::recorder::{Cut, Recorder};
use super::tree::{Seen, SeenFile, look};
use super::workload::{BLOCK, RANGE};
use super::{Mounted, Subject};
use braid_contract::{Caller, Error, FileSystem, OpenFlags, OpenRequest, SetAttr, WriteFlags};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Steps beyond one recovery and its examination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extras {
    /// The process dies after recovery, and the next one must see the same.
    pub(crate) recover_again: bool,
    /// Files are written to after recovery.
    pub(crate) use_again: bool,
    /// Moments at which recovery may crash are kept.
    pub(crate) record: bool,
}

impl Extras {
    pub(crate) const NONE: Self = Self { recover_again: false, use_again: false, record: false };
    /// Every one of them that records nothing, the plainest first.
    pub(crate) const ALL: [Self; 4] = [
        Self::NONE,
        Self { recover_again: true, ..Self::NONE },
        Self { use_again: true, ..Self::NONE },
        Self { recover_again: true, use_again: true, ..Self::NONE },
    ];
}

/// Looks at crash states of one setup.
pub(crate) struct Examiner<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) setup: &'a Setup,
}

impl Examiner<'_> {
    /// Recovers, and compares the result with the expectation. Answers the
    /// moments at which recovery may crash, if requested; or the error.
    pub(crate) fn examine(
        &self,
        machine: Machine,
        expected: &Expectation,
        extras: Extras,
    ) -> Result<Vec<Cut>, String> {
        catch_unwind(AssertUnwindSafe(|| self.examine_unguarded(machine, expected, extras)))
            .unwrap_or_else(|panic| Err(describe_panic(panic.as_ref())))
    }

    fn examine_unguarded(
        &self,
        machine: Machine,
        expected: &Expectation,
        extras: Extras,
    ) -> Result<Vec<Cut>, String> {
        let machine = Arc::new(machine);
        let recorder = extras.record.then(|| Recorder::watch(&machine, 0));
        let mut mounted = self.open(&machine)?;
        let seen = look(mounted.fs())?;
        expected.check(&seen)?;
        if extras.recover_again {
            drop(mounted);
            mounted = self.open(&machine).map_err(|found| format!("after a second crash, {found}"))?;
            let again = look(mounted.fs()).map_err(|found| format!("after a second recovery, {found}"))?;
            if let Some(difference) = seen.difference(&again) {
                return Err(format!("a second recovery changed something: {difference}"));
            }
        }
        if extras.use_again {
            use_again(mounted.fs(), &seen)?;
        }
        mounted.shutdown().map_err(|error| format!("the volume can't be unmounted: {error}"))?;
        let cuts = recorder.map_or_else(Vec::new, Recorder::finish);
        if let Some(violation) = machine.violations().first() {
            return Err(format!("a process would have been killed: {violation}"));
        }
        let problems = self.subject.check(self.setup, machine.drives());
        let problems = problems.map_err(|error| format!("the volume can't be checked: {error}"))?;
        if problems.is_empty() { Ok(cuts) } else { Err(format!("the check found: {}", problems.join("; "))) }
    }

    fn open(&self, machine: &Machine) -> Result<Box<dyn Mounted>, String> {
        let opened = self.subject.open(self.setup, machine.drives());
        opened.map_err(|error| format!("the volume can't be opened: {error}"))
    }
}

/// Every file grows, by zeros, and takes data beyond its end.
fn use_again(fs: &dyn FileSystem, seen: &Seen) -> Result<(), String> {
    let mut done = Vec::new();
    for name in Name::ALL {
        if let Some(file) = seen.file(name).filter(|file| !done.contains(&file.ino)) {
            done.push(file.ino);
            grow(fs, name, file).map_err(|found| format!("{name}, used after recovery, {found}"))?;
        }
    }
    Ok(())
}

fn grow(fs: &dyn FileSystem, name: Name, file: &SeenFile) -> Result<(), String> {
    let ino = file.ino;
    let failed = |what: &'static str| move |error: Error| format!("can't be {what}: {error}");
    let caller = Caller::root();
    let parent = match name.dir() {
        super::Dir::Root => braid_contract::InodeId::ROOT,
        super::Dir::Sub => {
            let entry = fs.lookup(&caller, braid_contract::InodeId::ROOT, "d".as_ref());
            entry.map_err(failed("looked up"))?.attr.ino
        }
    };
    fs.lookup(&caller, parent, name.leaf().as_ref()).map_err(failed("looked up"))?;
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    let handle = fs.open(&caller, ino, request).map_err(failed("opened"))?.handle;
    let size = file.size.next_multiple_of(RANGE) + 2 * RANGE;
    let changes = SetAttr { size: Some(size), ..SetAttr::default() };
    match fs.setattr(&caller, ino, Some(handle), &changes) {
        Err(error) if error.is_full() => return Ok(()),
        result => result.map_err(failed("grown"))?,
    };
    let mut expected = file.bytes.clone();
    expected.resize(size as usize, 0);
    // 512 bytes at the next block border after the old end, and at the
    // beginning of the last range.
    for at in [file.size / BLOCK * BLOCK + BLOCK, size - RANGE] {
        match fs.write(&caller, handle, at, &[0xee; 512], WriteFlags::default()) {
            Err(error) if error.is_full() => break,
            written => written.map_err(failed("written"))?,
        };
        expected[at as usize..at as usize + 512].fill(0xee);
    }
    let mut bytes = vec![1; size as usize];
    let read = fs.read(&caller, handle, 0, &mut bytes, false).map_err(failed("read"))?;
    fs.release(handle).map_err(failed("closed"))?;
    match bytes.iter().zip(&expected).position(|(found, expected)| found != expected) {
        _ if read as u64 != size => Err(format!("grown to {size} bytes, has {read}")),
        Some(at) => Err(format!("has something else at {at} than before and zeros")),
        None => Ok(()),
    }
}
