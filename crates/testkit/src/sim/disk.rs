//! [`Disk`]: one simulated device, shared by all descriptors on it.

use super::clock::SimClock;
use super::content::BLOCK;
use super::effect::Effect;
use super::fd::SimFd;
use super::inode::ROOT;
use super::power::Frozen;
use super::state::{Context, Opens, State};
use braid_contract::{Access, Errno, Fd, Result};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The freedom of a file system with unsynced effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Model {
    /// All changes of metadata persist in one order, and to sync one of them
    /// is to sync those before it (ext4, xfs). Otherwise each directory and
    /// each inode is on its own (btrfs).
    pub journal_order: bool,
    /// To sync a file is also to sync the names that it has, and those of the
    /// directories above it.
    pub fsync_names: bool,
    /// A block that is written over may be found half old, half new, in units
    /// of 512 bytes.
    pub tear: bool,
}

impl Model {
    /// ext4 with its default options.
    pub const EXT4: Self = Self { journal_order: true, fsync_names: true, tear: true };
    /// xfs.
    pub const XFS: Self = Self { journal_order: true, fsync_names: true, tear: true };
    /// btrfs, with files that are written in place.
    pub const BTRFS: Self = Self { journal_order: false, fsync_names: true, tear: true };
    /// The freedoms of all of them, and names that only a sync of their
    /// directory makes durable.
    pub const WORST: Self = Self { journal_order: false, fsync_names: false, tear: true };
}

/// The properties of a disk.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Its name in reports.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// Device number, as `stat` shows it.
    pub device: u64,
    /// Keeps nothing across power loss, like tmpfs.
    pub volatile: bool,
    /// The possible fates of effects that were not synced.
    pub model: Model,
}

/// The operations that a failing disk answers with `EIO`, without an effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failing {
    /// All operations.
    Everything,
    /// Changes of the contents of files: their data, sizes and holes.
    Writes,
    /// Syncs.
    Syncs,
}

impl Failing {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Everything, Self::Writes, Self::Syncs];

    /// Whether an operation, by its name in effects, fails.
    fn concerns(self, operation: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Writes => ["write", "truncate", "punch", "zero", "allocate"].contains(&operation),
            Self::Syncs => ["fsync", "fdatasync", "syncfs"].contains(&operation),
        }
    }
}

/// Called before each effect.
pub type Observer = Arc<dyn Fn(&Effect) + Send + Sync>;

/// A call that comes before an operation of a name.
type Earlier = (&'static str, Box<dyn FnOnce() + Send>);

/// One simulated device with a file system; cheap to clone.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

/// The state that all descriptors on a disk share.
pub(super) struct Shared {
    pub(super) config: Arc<DiskConfig>,
    state: Mutex<Guarded>,
    /// Held while an observer is called, so that effects come one after
    /// another.
    effects: Mutex<()>,
    observer: Mutex<Option<Observer>>,
    refused: Mutex<Option<(&'static str, Errno)>>,
    earlier: Mutex<Option<Earlier>>,
    failing: Mutex<Option<Failing>>,
    clock: Mutex<Arc<SimClock>>,
    violations: Mutex<Vec<String>>,
}

/// The state behind the disk's lock.
pub(super) struct Guarded {
    pub(super) state: Arc<State>,
    pub(super) opens: Opens,
}

/// The target of an effect, for reports.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) operation: &'static str,
    pub(super) ino: u64,
    pub(super) name: Option<&'a std::ffi::OsStr>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl<'a> Subject<'a> {
    pub(super) fn inode(operation: &'static str, ino: u64) -> Self {
        Self { operation, ino, name: None, offset: 0, len: 0 }
    }

    pub(super) fn name(operation: &'static str, dir: u64, name: &'a std::ffi::OsStr) -> Self {
        Self { name: Some(name), ..Self::inode(operation, dir) }
    }

    pub(super) fn part(operation: &'static str, ino: u64, offset: u64, len: u64) -> Self {
        Self { offset, len, ..Self::inode(operation, ino) }
    }
}

impl Disk {
    /// An empty file system.
    #[must_use]
    pub fn new(config: DiskConfig) -> Self {
        let clock = Arc::new(SimClock::new());
        let state = State::empty(&config, clock.now());
        Self::from_state(Arc::new(config), Arc::new(state), clock)
    }

    pub(super) fn from_state(config: Arc<DiskConfig>, state: Arc<State>, clock: Arc<SimClock>) -> Self {
        let shared = Shared {
            config,
            state: Mutex::new(Guarded { state, opens: Opens::new() }),
            effects: Mutex::default(),
            observer: Mutex::default(),
            refused: Mutex::default(),
            earlier: Mutex::default(),
            failing: Mutex::default(),
            clock: Mutex::new(clock),
            violations: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> Fd {
        SimFd::open(&self.shared, ROOT, Access::Directory)
    }

    /// Sets the observer, which is called without any lock that
    /// [`freeze`](Self::freeze) takes, right before each effect. It must not
    /// change the disk.
    pub fn set_observer(&self, observer: Option<Observer>) {
        *lock(&self.shared.observer) = observer;
    }

    /// From now on, operations of this name, as effects have it, are answered
    /// with this error and do nothing; with `None`, none are.
    pub fn refuse(&self, refused: Option<(&'static str, Errno)>) {
        *lock(&self.shared.refused) = refused;
    }

    /// Right before the next operation of this name, as effects have it or
    /// `open`, does something else, which may use the disk: as if another thread
    /// came first.
    pub fn precede(&self, operation: &'static str, by: impl FnOnce() + Send + 'static) {
        *lock(&self.shared.earlier) = Some((operation, Box::new(by)));
    }

    /// From now on, it fails in this way; with `None`, it does not. Power loss
    /// ends it.
    pub fn fail(&self, failing: Option<Failing>) {
        *lock(&self.shared.failing) = failing;
    }

    /// How it fails.
    #[must_use]
    pub fn failing(&self) -> Option<Failing> {
        *lock(&self.shared.failing)
    }

    /// From now on, so many bytes more than are in use find room; with `None`,
    /// as many as in the beginning. Power loss changes nothing of it.
    pub fn leave_room(&self, bytes: Option<u64>) {
        let mut guarded = self.shared.lock();
        let state = Arc::make_mut(&mut guarded.state);
        state.capacity = match bytes {
            Some(bytes) => state.used + bytes / BLOCK,
            None => self.shared.config.capacity / BLOCK,
        };
    }

    /// Sets the clock that the times of inodes come from.
    pub fn set_clock(&self, clock: Arc<SimClock>) {
        *lock(&self.shared.clock) = clock;
    }

    /// Its properties.
    #[must_use]
    pub fn config(&self) -> &DiskConfig {
        &self.shared.config
    }

    /// Its state at this moment.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let state = self.shared.lock().state.clone();
        let clock = lock(&self.shared.clock).fork();
        Frozen::new(self.shared.config.clone(), state, clock)
    }

    /// Accesses that would have killed a process on a real kernel, or might
    /// have: those to mappings where the file has no block or has ended.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        lock(&self.shared.violations).clone()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({})", self.shared.config.name)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.state)
    }

    /// Carries out a change or a sync. An observer is called before it, and
    /// only for one that succeeds and changes anything.
    pub(super) fn effect<R>(
        &self,
        subject: Subject<'_>,
        change: impl FnOnce(&mut State, &Context<'_>) -> Result<R>,
    ) -> Result<R> {
        if let Some((_, errno)) = lock(&self.refused).filter(|(operation, _)| *operation == subject.operation)
        {
            return Err(errno.into());
        }
        self.may_do(subject.operation)?;
        let now = lock(&self.clock).now();
        let Some(observer) = lock(&self.observer).clone() else {
            let Guarded { state, opens } = &mut *self.lock();
            return change(Arc::make_mut(state), &Context { now, opens });
        };
        let _one_at_a_time = lock(&self.effects);
        let (before, after, result) = {
            let guarded = self.lock();
            let before = guarded.state.clone();
            let mut after = State::clone(&before);
            let result = change(&mut after, &Context { now, opens: &guarded.opens })?;
            (before, after, result)
        };
        if after.seq != before.seq {
            observer(&self.describe(&before, subject));
            self.lock().state = Arc::new(after);
        }
        Ok(result)
    }

    /// Runs the call that precedes an operation; `EIO` if the disk fails in
    /// this.
    pub(super) fn may_do(&self, operation: &str) -> Result<()> {
        let earlier = lock(&self.earlier).take_if(|(next, _)| *next == operation);
        if let Some((_, earlier)) = earlier {
            earlier();
        }
        match *lock(&self.failing) {
            Some(failing) if failing.concerns(operation) => Err(Errno::EIO.into()),
            _ => Ok(()),
        }
    }

    fn describe(&self, state: &State, subject: Subject<'_>) -> Effect {
        let mut path = state.path_of(subject.ino);
        if let Some(name) = subject.name {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(&name.to_string_lossy());
        }
        Effect {
            disk: self.config.name.as_str().into(),
            operation: subject.operation,
            ino: subject.ino,
            path,
            offset: subject.offset,
            len: subject.len,
        }
    }

    pub(super) fn violation(&self, what: &str, ino: u64, offset: u64) {
        let path = self.lock().state.path_of(ino);
        let text = format!("{}: {what} {path} at {offset}", self.config.name);
        lock(&self.violations).push(text);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
