//! A file system on a simulated device, and operations on it.

use super::common::{Fault, SimDisk};
use super::op::{Kind, NAMES, Op, SLOTS};
use super::tree::Tree;
use braid_contract::{
    Attr, Caller, Environment, Errno, FallocateMode, FileSystem, HandleId, InodeId, KeyChange, KeyValue,
    OpenBefore, OpenFlags, PutOptions, RenameMode, Result, SetAttr, SplitMix, WriteFlags, XattrMode,
};
use braid_log::{CrashedLog, Device, LiveLog, LogFs, Owner, Settings, format};
use braid_testkit::sim::{SimClock, SimEnvironment};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

/// How the file system is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) size: u64,
    pub(crate) workers: usize,
    /// Longest write.
    pub(crate) longest: u64,
    pub(crate) fault: Option<Fault>,
    /// The seed of the machine's random numbers.
    pub(crate) chance: u64,
}

impl Setup {
    pub(crate) fn draw(random: &mut SplitMix, fault: Option<Fault>) -> Self {
        Self {
            size: random.pick(&[16 << 20, 16 << 20, (17 << 20) + 4096]),
            workers: random.pick(&[1, 2, 3]),
            longest: random.pick(&[600, 9000, 70_000, 300_000]),
            fault,
            chance: random.next_u64(),
        }
    }

    fn settings(self) -> Settings {
        Settings { workers: self.workers, log_bytes: 1, commands: false }
    }
}

/// The state of the file system after each operation.
#[derive(Clone, Default)]
pub(crate) struct History {
    pub(crate) trees: Vec<Tree>,
    hashes: Vec<u64>,
    /// The moment of the last change of each inode.
    changed: HashMap<u64, usize>,
    /// The state found must be at least of this moment.
    pub(crate) synced: usize,
}

impl History {
    pub(crate) fn begin(tree: Tree) -> Self {
        let (hash, trees) = (tree.hash(), vec![tree]);
        Self { trees, hashes: vec![hash], changed: HashMap::new(), synced: 0 }
    }

    pub(crate) fn now(&self) -> usize {
        self.trees.len() - 1
    }

    fn add(&mut self, tree: Tree) {
        let hash = tree.hash();
        if self.hashes.last() == Some(&hash) {
            return;
        }
        let before = &self.trees[self.now()];
        for (path, line) in &tree.lines {
            if before.lines.get(path) != Some(line) {
                self.changed.insert(line.0, self.trees.len());
            }
        }
        self.trees.push(tree);
        self.hashes.push(hash);
    }

    /// The moment that a tree is of, if it may be found.
    pub(crate) fn find(&self, tree: &Tree) -> Option<usize> {
        let hash = tree.hash();
        (self.synced..self.trees.len()).rev().find(|at| self.hashes[*at] == hash)
    }
}

/// A run.
pub(crate) struct Run {
    pub(crate) setup: Setup,
    pub(crate) device: Arc<SimDisk>,
    clock: Arc<SimClock>,
    pub(crate) fs: LogFs,
    pub(crate) history: History,
    pub(crate) held: Held,
    /// What outlives the process.
    memory: Vec<OwnedFd>,
    pub(crate) steps: Vec<String>,
}

/// The files that are kept.
pub(crate) type Held = [Option<(InodeId, HandleId)>; SLOTS as usize];

/// What a process that was killed left.
pub(crate) struct Left {
    pub(crate) device: Arc<SimDisk>,
    pub(crate) memory: Vec<OwnedFd>,
    pub(crate) held: Held,
}

impl Left {
    fn open(self, setup: Setup, clock: &Arc<SimClock>) -> std::result::Result<Opened, String> {
        let open = self.held.into_iter().flatten().map(|(ino, handle)| OpenBefore {
            handle,
            ino,
            flags: Some(READ_WRITE),
            passthrough: false,
            opener: [0; 3],
        });
        let crashed = CrashedLog { memory: self.memory, open: open.collect(), crashes: 1 };
        open_by(setup, &self.device, clock, |device, settings, environment| {
            LogFs::open_after_crash(device, settings, environment, crashed)
        })
    }
}

fn told<T>(what: &str, result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

impl Run {
    /// A new file system.
    pub(crate) fn new(setup: Setup) -> std::result::Result<Self, String> {
        let device = SimDisk::new(setup.size);
        let clock = Arc::new(SimClock::new());
        let environment = SimEnvironment::new(Arc::clone(&clock), 1);
        let disk: Arc<dyn Device> = device.clone();
        told("format", format(&disk, Owner::default(), &environment))?;
        let (fs, memory) = open(setup, &device, &clock)?;
        let history = History::begin(told("reading", Tree::read_with_offsets(&fs))?);
        let (held, steps) = ([None; SLOTS as usize], Vec::new());
        Ok(Self { setup, device, clock, fs, history, held, memory, steps })
    }

    /// A file system that is there, which must be of an allowed moment.
    pub(crate) fn open(
        setup: Setup,
        device: Arc<SimDisk>,
        history: &History,
    ) -> std::result::Result<Self, String> {
        let clock = later();
        let opened = open(setup, &device, &clock)?;
        Self::found(setup, device, (clock, opened), history)
    }

    /// A file system whose process was killed, which must be of an allowed moment.
    pub(crate) fn go_on(setup: Setup, left: Left, history: &History) -> std::result::Result<Self, String> {
        let (clock, device) = (later(), Arc::clone(&left.device));
        let opened = left.open(setup, &clock)?;
        Self::found(setup, device, (clock, opened), history)
    }

    fn found(
        setup: Setup,
        device: Arc<SimDisk>,
        (clock, (fs, memory)): (Arc<SimClock>, Opened),
        history: &History,
    ) -> std::result::Result<Self, String> {
        let tree = told("reading", Tree::read_with_offsets(&fs))?;
        if history.find(&tree).is_none() {
            return Err(format!(
                "what is found is of none of the moments {} to {}; from the first and the last it differs by\n{}\n{}",
                history.synced,
                history.now(),
                history.trees[history.synced].difference(&tree),
                history.trees[history.now()].difference(&tree),
            ));
        }
        told("audit after recovery", fs.audit())?;
        let history = History::begin(tree);
        let (held, steps) = ([None; SLOTS as usize], Vec::new());
        Ok(Self { setup, device, clock, fs, history, held, memory, steps })
    }

    /// Carries out an operation; the history has its result then.
    pub(crate) fn step(&mut self, op: Op) -> std::result::Result<(), String> {
        let mut random = SplitMix::new(op.chance);
        self.steps.push(format!("{:?}", op.kind));
        let done = match op.kind {
            Kind::Restart => {
                self.drop_all()?;
                told("close", self.fs.close())?;
                self.restart(&mut random)?;
                self.history.synced = self.history.now();
                Ok(())
            }
            Kind::HandOver => {
                self.hand_over(&mut random)?;
                self.history.synced = self.history.now();
                Ok(())
            }
            Kind::Crash => {
                self.crash(&mut random)?;
                // Recovery makes everything durable.
                self.history.synced = self.history.now();
                Ok(())
            }
            Kind::Kill => {
                self.drop_all()?;
                // Data only in memory is lost, all written data is there.
                let history = self.history.clone();
                self.setup.chance = random.next_u64();
                self.restart_lossy(&history)?;
                Ok(())
            }
            _ => self.carry_out(op.kind, &mut random),
        };
        let result = match &done {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{:?}", error.errno()),
        };
        self.note(&format!(": {result}"));
        if let Err(error) = done
            && [Errno::EIO, Errno::EUCLEAN].contains(&error.errno())
        {
            return Err(format!("{error}, though nothing failed"));
        }
        let tree = told("reading", Tree::read_with_offsets(&self.fs))?;
        self.history.add(tree);
        match op.kind {
            Kind::Sync | Kind::Checkpoint if result == "done" => self.history.synced = self.history.now(),
            _ => {}
        }
        Ok(())
    }

    fn restart(&mut self, random: &mut SplitMix) -> std::result::Result<(), String> {
        self.setup.workers = 1 + random.below(3) as usize;
        self.setup.chance = random.next_u64();
        (self.fs, self.memory) = open(self.setup, &self.device, &self.clock)?;
        let tree = told("reading", Tree::read_with_offsets(&self.fs))?;
        let before = &self.history.trees[self.history.now()];
        if *before != tree {
            return Err(format!("it is another one after it was closed:\n{}", before.difference(&tree)));
        }
        told("audit after a restart", self.fs.audit())
    }

    /// Gives the file system away, and goes on with what is left in memory.
    fn hand_over(&mut self, random: &mut SplitMix) -> std::result::Result<(), String> {
        if random.below(2) == 0 {
            match self.fs.prepare_to_give() {
                Err(error) if error.errno() != Errno::ENOSPC => return Err(format!("preparing: {error}")),
                _ => {}
            }
        }
        let kept = self.kept()?;
        let live = told("giving", self.fs.give())?;
        let live = told("the state handed over", LiveLog::unpack(&live.pack()))?;
        self.setup.workers = 1 + random.below(3) as usize;
        self.setup.chance = random.next_u64();
        (self.fs, self.memory) =
            open_by(self.setup, &self.device, &self.clock, |device, settings, environment| {
                LogFs::open_taken(device, settings, environment, live)
            })?;
        self.went_on(&kept)
    }

    /// Goes on with what outlives a process, which was killed.
    fn crash(&mut self, random: &mut SplitMix) -> std::result::Result<(), String> {
        let kept = self.kept()?;
        self.setup.workers = 1 + random.below(3) as usize;
        self.setup.chance = random.next_u64();
        let (device, memory) = (Arc::clone(&self.device), std::mem::take(&mut self.memory));
        let left = Left { device, memory, held: self.held };
        (self.fs, self.memory) = left.open(self.setup, &self.clock)?;
        self.went_on(&kept)
    }

    /// Nothing is another than it was before another process went on.
    fn went_on(&self, kept: &[(Attr, Vec<u8>)]) -> std::result::Result<(), String> {
        let tree = told("reading", Tree::read_with_offsets(&self.fs))?;
        let before = &self.history.trees[self.history.now()];
        if *before != tree {
            return Err(format!("it is another one in the next process:\n{}", before.difference(&tree)));
        }
        if kept != self.kept()? {
            return Err("a kept file is another one in the next process".to_owned());
        }
        told("audit in the next process", self.fs.audit())
    }

    /// The attributes and contents of the kept files.
    fn kept(&self) -> std::result::Result<Vec<(Attr, Vec<u8>)>, String> {
        let root = Caller::root();
        let read = |(ino, handle): (InodeId, HandleId)| {
            let attr = self.fs.getattr(&root, ino, Some(handle))?;
            let mut data = vec![0; attr.size as usize];
            let len = self.fs.read(&root, handle, 0, &mut data, false)?;
            data.truncate(len);
            Ok((attr, data))
        };
        told("a kept file", self.held.into_iter().flatten().map(read).collect())
    }

    fn restart_lossy(&mut self, history: &History) -> std::result::Result<(), String> {
        let other = Self::open(self.setup, Arc::clone(&self.device), history)?;
        let steps = std::mem::take(&mut self.steps);
        let clock = Arc::clone(&self.clock);
        clock.advance(7_200_000_000_000);
        *self = other;
        self.steps = steps;
        Ok(())
    }

    fn note(&mut self, what: &str) {
        if let Some(last) = self.steps.last_mut() {
            *last += what;
        }
    }

    /// Closes the kept files.
    fn drop_all(&mut self) -> std::result::Result<(), String> {
        for (_, handle) in std::mem::take(&mut self.held).into_iter().flatten() {
            told("closing", self.fs.release(handle))?;
        }
        Ok(())
    }

    /// A directory and a name in it.
    fn place(&self, random: &mut SplitMix) -> Result<(InodeId, OsString)> {
        let which = random.below(NAMES);
        let (dir, name) = (which % 3, OsString::from(format!("n{}", which / 3)));
        if dir == 0 {
            return Ok((InodeId::ROOT, name));
        }
        let dir = OsString::from(format!("n{}", dir - 1));
        let entry = self.fs.lookup(&Caller::root(), InodeId::ROOT, &dir)?;
        self.fs.forget(entry.attr.ino, 1);
        Ok((entry.attr.ino, name))
    }

    fn caller(random: &mut SplitMix) -> Caller {
        let tid = random.below(4) as u32;
        Caller { uid: tid * 5, gid: 7, pid: tid + 1, tid, groups: None, of_stack: false }
    }

    fn carry_out(&mut self, kind: Kind, random: &mut SplitMix) -> Result<()> {
        let caller = Self::caller(random);
        match kind {
            Kind::Sync => return self.fs.sync(),
            Kind::Checkpoint => return self.fs.checkpoint(),
            Kind::Audit => return self.fs.audit(),
            Kind::Tmpfile | Kind::Drop | Kind::WriteHeld => return self.with_held(kind, &caller, random),
            Kind::Clear => return self.clear(&caller),
            _ => {}
        }
        let (parent, name) = self.place(random)?;
        self.note(&format!(" {}/{}", parent.0, name.to_string_lossy()));
        match kind {
            Kind::Put | Kind::Batch => self.put(kind, &caller, (parent, &name), random),
            Kind::Create | Kind::Mkdir | Kind::Symlink | Kind::Mknod => {
                self.make(kind, &caller, (parent, &name), random)
            }
            Kind::Unlink => self.fs.unlink(&caller, parent, &name),
            Kind::Rmdir => self.fs.rmdir(&caller, parent, &name),
            Kind::Rename | Kind::Exchange | Kind::Whiteout => {
                let mode = match kind {
                    Kind::Exchange => RenameMode::Exchange,
                    Kind::Whiteout => RenameMode::Whiteout,
                    _ => random.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace]),
                };
                let (to, new) = self.place(random)?;
                self.note(&format!(" {}/{} {mode:?}", to.0, new.to_string_lossy()));
                self.fs.rename(&caller, parent, &name, to, &new, mode)
            }
            Kind::LinkHeld => {
                let Some((ino, _)) = self.held[random.below(SLOTS) as usize] else { return Ok(()) };
                let entry = self.fs.link(&caller, ino, parent, &name)?;
                self.fs.forget(entry.attr.ino, 1);
                Ok(())
            }
            _ => self.with_inode(kind, &caller, (parent, &name), random),
        }
    }

    fn make(
        &self,
        kind: Kind,
        caller: &Caller,
        (parent, name): (InodeId, &OsStr),
        random: &mut SplitMix,
    ) -> Result<()> {
        let made = match kind {
            Kind::Mkdir => self.fs.mkdir(caller, parent, name, 0o2775, 0o022)?,
            Kind::Symlink => {
                let target = "t".repeat(1 + random.below(300) as usize);
                self.fs.symlink(caller, parent, name, OsStr::new(&target))?
            }
            Kind::Mknod => self.fs.mknod(caller, parent, name, 0o010_644, 0, 0)?,
            _ => {
                let (entry, opened) =
                    self.fs.create(caller, parent, name, 0o644, 0, false, READ_WRITE.into())?;
                self.fs.release(opened.handle)?;
                entry
            }
        };
        self.fs.forget(made.attr.ino, 1);
        Ok(())
    }

    /// Changes keys of a directory: the names that it has in any case.
    fn put(
        &self,
        kind: Kind,
        caller: &Caller,
        (parent, name): (InodeId, &OsStr),
        random: &mut SplitMix,
    ) -> Result<()> {
        let caller = Caller { uid: 0, ..caller.clone() };
        let bucket = self.fs.bucket(parent, None)?;
        let most = random.pick(&[50, 600, self.setup.longest]);
        let mut value = || {
            let mut value = vec![0; random.below(most) as usize];
            random.fill(&mut value);
            value
        };
        if kind == Kind::Put {
            return bucket.put(&caller, name.as_encoded_bytes(), &value(), PutOptions::default()).map(drop);
        }
        let (keys, values) = ([b"n0", b"n1", b"n2"], [value(), value(), value()]);
        let change = |at: usize| match random.below(4) {
            0 => KeyChange::Delete(keys[at]),
            _ => KeyChange::Put(keys[at], &values[at]),
        };
        let changes: Vec<KeyChange<'_>> = (0..keys.len()).map(change).collect();
        bucket.batch(&caller, &changes)
    }

    fn with_held(&mut self, kind: Kind, caller: &Caller, random: &mut SplitMix) -> Result<()> {
        let slot = random.below(SLOTS) as usize;
        match (kind, self.held[slot]) {
            (Kind::Tmpfile, None) => {
                let (entry, opened) = self.fs.tmpfile(caller, InodeId::ROOT, 0o600, 0, READ_WRITE.into())?;
                self.fs.forget(entry.attr.ino, 1);
                self.held[slot] = Some((entry.attr.ino, opened.handle));
                Ok(())
            }
            (Kind::Drop, Some((_, handle))) => {
                self.held[slot] = None;
                self.fs.release(handle)
            }
            (Kind::WriteHeld, Some((ino, handle))) => {
                let attr = self.fs.getattr(caller, ino, Some(handle))?;
                self.write(caller, handle, random.below(attr.size + 1), random).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Runs an operation on the inode of a name.
    fn with_inode(
        &mut self,
        kind: Kind,
        caller: &Caller,
        (parent, name): (InodeId, &OsStr),
        random: &mut SplitMix,
    ) -> Result<()> {
        let entry = self.fs.lookup(caller, parent, name)?;
        let (ino, size) = (entry.attr.ino, entry.attr.size);
        self.fs.forget(ino, 1);
        match kind {
            Kind::Link => {
                let (to, new) = self.place(random)?;
                let linked = self.fs.link(caller, ino, to, &new)?;
                self.fs.forget(linked.attr.ino, 1);
                Ok(())
            }
            Kind::SetXattr => {
                let value = vec![random.below(256) as u8; random.pick(&[0, 10, 300, 5000, 65_000])];
                let name = format!("user.x{}", random.below(3));
                self.fs.setxattr(caller, ino, OsStr::new(&name), &value, XattrMode::Set)
            }
            Kind::RemoveXattr => {
                let name = format!("user.x{}", random.below(3));
                self.fs.removexattr(caller, ino, OsStr::new(&name))
            }
            Kind::Chmod => {
                let changes = SetAttr { mode: Some(random.below(0o1000) as u32), ..SetAttr::default() };
                self.fs.setattr(caller, ino, None, &changes).map(drop)
            }
            Kind::Truncate => {
                let to = random.pick(&[0, size / 2, size + 1, size + 5000, size / 4096 * 4096, 100]);
                let changes = SetAttr { size: Some(to), ..SetAttr::default() };
                self.fs.setattr(caller, ino, None, &changes).map(drop)
            }
            Kind::SyncDir => {
                let handle = self.fs.open_dir(caller, ino)?;
                let synced = self.fs.sync_dir(caller, handle);
                self.fs.release_dir(handle)?;
                synced.map(|()| self.synced(ino))
            }
            _ => self.with_file(kind, caller, (ino, size), random),
        }
    }

    /// An inode is durable now.
    fn synced(&mut self, ino: InodeId) {
        let changed = self.history.changed.get(&ino.0).copied().unwrap_or(0);
        self.history.synced = self.history.synced.max(changed);
    }

    fn with_file(
        &mut self,
        kind: Kind,
        caller: &Caller,
        (ino, size): (InodeId, u64),
        random: &mut SplitMix,
    ) -> Result<()> {
        let handle = self.fs.open(caller, ino, READ_WRITE.into())?.handle;
        if kind == Kind::Hold {
            let slot = random.below(SLOTS) as usize;
            let before = self.held[slot].replace((ino, handle));
            return before.map_or(Ok(()), |(_, handle)| self.fs.release(handle));
        }
        let within = random.below(size + 1);
        let at = random.pick(&[within, within / 4096 * 4096, 0]);
        let most = random.pick(&[100, 5000, 40_000]);
        let len = 1 + random.below(most);
        let allocate = |mode| self.fs.fallocate(caller, handle, at, len, mode);
        let keep_size = random.below(2) == 0;
        let done = match kind {
            Kind::Write => self.write(caller, handle, at, random).map(drop),
            Kind::Append => self.write(caller, handle, size, random).map(drop),
            Kind::Allocate => allocate(FallocateMode::Allocate { keep_size }),
            Kind::Punch => allocate(FallocateMode::PunchHole),
            Kind::Zero => allocate(FallocateMode::ZeroRange { keep_size }),
            Kind::Fsync => self.fs.fsync(caller, handle, random.below(2) == 0),
            Kind::Fill => self.fill(caller, handle),
            _ => Ok(()),
        };
        self.fs.release(handle)?;
        if kind == Kind::Fsync && done.is_ok() {
            self.synced(ino);
        }
        done
    }

    fn write(&self, caller: &Caller, handle: HandleId, at: u64, random: &mut SplitMix) -> Result<usize> {
        let most = random.pick(&[50, 600, self.setup.longest]);
        let len = 1 + random.below(most);
        let mut data = vec![0; len as usize];
        random.fill(&mut data);
        let sync = random.below(16) == 0;
        self.fs.write(caller, handle, at, &data, WriteFlags { sync, ..WriteFlags::default() })
    }

    /// Takes blocks until there is no room. Each step is a moment of its own.
    fn fill(&mut self, caller: &Caller, handle: HandleId) -> Result<()> {
        let (mut at, mut len) = (0, self.setup.size);
        while len >= 4096 {
            let mode = FallocateMode::Allocate { keep_size: true };
            match self.fs.fallocate(caller, handle, at, len, mode) {
                Ok(()) => {
                    at += len;
                    self.history.add(Tree::read_with_offsets(&self.fs)?);
                }
                Err(error) if error.errno() == Errno::ENOSPC => len /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn clear(&mut self, caller: &Caller) -> Result<()> {
        let tree = Tree::read_with_offsets(&self.fs)?;
        for path in tree.lines.keys().rev().filter(|path| !path.is_empty()) {
            let mut parent = InodeId::ROOT;
            let names: Vec<&str> = path.split('/').skip(1).collect();
            let Some((last, above)) = names.split_last() else { continue };
            for name in above {
                parent = self.fs.lookup(caller, parent, OsStr::new(name))?.attr.ino;
                self.fs.forget(parent, 1);
            }
            match self.fs.unlink(caller, parent, OsStr::new(last)) {
                Err(error) if error.errno() == Errno::EISDIR => {
                    self.fs.rmdir(caller, parent, OsStr::new(last))?;
                }
                removed => removed?,
            }
            self.history.add(Tree::read_with_offsets(&self.fs)?);
        }
        Ok(())
    }
}

/// An open file system, and the memory that outlives its process.
type Opened = (LogFs, Vec<OwnedFd>);

fn open(setup: Setup, device: &Arc<SimDisk>, clock: &Arc<SimClock>) -> std::result::Result<Opened, String> {
    open_by(setup, device, clock, LogFs::open)
}

fn open_by(
    setup: Setup,
    device: &Arc<SimDisk>,
    clock: &Arc<SimClock>,
    open: impl FnOnce(Arc<dyn Device>, Settings, Arc<dyn Environment>) -> Result<LogFs>,
) -> std::result::Result<Opened, String> {
    let environment = Arc::new(SimEnvironment::new(Arc::clone(clock), setup.chance));
    device.plant(setup.fault);
    let disk: Arc<dyn Device> = device.clone();
    let fs = told("it can't be opened", open(disk, setup.settings(), environment))?;
    let memory = told("what outlives it", fs.outlive())?;
    device.watch(&memory);
    Ok((fs, memory))
}

/// A clock that is later than everything before.
fn later() -> Arc<SimClock> {
    let clock = Arc::new(SimClock::new());
    clock.advance(3_600_000_000_000);
    clock
}
