//! A simulated device, whose cache loses unflushed data.

use braid_contract::{Errno, Error, Result, SplitMix};
use braid_log::{BLOCK, Device};
use braid_sys::SharedWords;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Block = Arc<[u8]>;
type Blocks = Vec<Option<Block>>;
/// Writes of blocks, in order.
type Writes = Vec<(u64, Block)>;

/// The bytes of blocks that were never written.
const GARBAGE: u8 = 0xa5;

/// The fate of the blocks written since the last flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Nothing,
    All,
    /// Of each block, one of its versions.
    Some(u64),
    /// As with `Some`, but mostly the last version.
    Most(u64),
}

/// A fault of the device, which a file system can't survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Only superblocks are flushed.
    SkipsFlushes,
    /// The flush before a superblock happens after it.
    FlushesLate,
}

/// An effect on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// A write: first block, and number of blocks.
    Write(u64, u64),
    Flush,
}

/// The device before an effect.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) effect: Option<Effect>,
    durable: Arc<Blocks>,
    volatile: Writes,
    /// The memory that would outlive the process.
    memory: Memory,
}

/// Words of pieces of memory, as far as they are in use.
type Memory = Vec<Vec<u64>>;

#[derive(Debug, Default)]
struct Disk {
    durable: Arc<Blocks>,
    /// Since the last flush, in order.
    volatile: Writes,
    /// The contents that reads return.
    now: Blocks,
    moments: Option<Vec<Moment>>,
    /// Memory that outlives the process: each a number of bytes, and these.
    watched: Vec<SharedWords>,
    /// This many effects succeed.
    effects_left: Option<u64>,
    fault: Option<Fault>,
    /// Whether a superblock was written last.
    at_superblock: bool,
    /// What the last flush changed: the device before it. For a fault only.
    unflushed: Option<(Arc<Blocks>, Writes)>,
}

/// A device in memory.
#[derive(Debug)]
pub(crate) struct SimDisk {
    blocks: u64,
    disk: Mutex<Disk>,
}

impl SimDisk {
    pub(crate) fn new(size: u64) -> Arc<Self> {
        let blocks: Blocks = vec![None; (size / BLOCK) as usize];
        Self::of(Arc::new(blocks))
    }

    fn of(durable: Arc<Blocks>) -> Arc<Self> {
        let now = (*durable).clone();
        let disk = Disk { durable, now, ..Disk::default() };
        Arc::new(Self { blocks: disk.now.len() as u64, disk: Mutex::new(disk) })
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the moment before each effect from now on.
    pub(crate) fn record(&self) {
        self.lock().moments = Some(Vec::new());
    }

    /// The moments since they were last asked for.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        self.lock().moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// This moment.
    pub(crate) fn moment(&self) -> Moment {
        let disk = self.lock();
        let (durable, volatile) = (Arc::clone(&disk.durable), disk.volatile.clone());
        Moment { effect: None, durable, volatile, memory: disk.memory() }
    }

    /// Notes this memory with each moment from now on.
    pub(crate) fn watch(&self, memory: &[OwnedFd]) {
        let open = |fd: &OwnedFd| SharedWords::open(fd.try_clone()?);
        let watched = memory.iter().map(open).collect::<std::io::Result<_>>();
        self.lock().watched = watched.expect("memory for a test");
    }

    /// Has effects fail after this many more.
    pub(crate) fn fail_after(&self, effects: u64) {
        self.lock().effects_left = Some(effects);
    }

    /// Gives it a fault from now on.
    pub(crate) fn plant(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// Turns a bit of the device, as it is seen and as it is durable.
    pub(crate) fn damage(&self, offset: u64, bit: u8) {
        let mut disk = self.lock();
        let (block, at) = ((offset / BLOCK) as usize, (offset % BLOCK) as usize);
        let mut bytes =
            disk.now[block].as_deref().map_or_else(|| vec![GARBAGE; BLOCK as usize], <[u8]>::to_vec);
        bytes[at] ^= 1 << bit;
        let bytes: Block = bytes.into();
        disk.now[block] = Some(Arc::clone(&bytes));
        Arc::make_mut(&mut disk.durable)[block] = Some(bytes);
    }
}

impl Moment {
    /// The device after the process was killed at this moment, and the memory that outlived it. Of
    /// the effect that came next, some blocks may be done, and the rest not, if `next` is the moment
    /// behind it.
    pub(crate) fn after_kill(
        &self,
        next: Option<&Self>,
        random: &mut SplitMix,
    ) -> (Arc<SimDisk>, Vec<OwnedFd>) {
        let mut volatile = self.volatile.clone();
        if let Some(next) = next.filter(|next| Arc::ptr_eq(&next.durable, &self.durable)) {
            let begun = &next.volatile[volatile.len()..];
            volatile.extend_from_slice(&begun[..random.below(begun.len() as u64 + 1) as usize]);
        }
        let device = SimDisk::of(Arc::clone(&self.durable));
        let mut disk = device.lock();
        for (block, bytes) in &volatile {
            disk.now[*block as usize] = Some(Arc::clone(bytes));
        }
        disk.volatile = volatile;
        drop(disk);
        let restored = self.memory.iter().map(|words| {
            let memory = SharedWords::create("test", words.len()).expect("memory for a test");
            memory.words().iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
            memory.as_fd().try_clone_to_owned().expect("a descriptor")
        });
        (Arc::clone(&device), restored.collect())
    }

    /// Whether nothing can be lost.
    pub(crate) fn is_durable(&self) -> bool {
        self.volatile.is_empty()
    }

    /// The device after the power was lost at this moment.
    pub(crate) fn after_power_loss(&self, left: Left) -> Arc<SimDisk> {
        let mut blocks = (*self.durable).clone();
        let mut random = SplitMix::new(match left {
            Left::Some(seed) | Left::Most(seed) => seed,
            _ => 0,
        });
        // Each block is decided about for itself: a version may be kept by which
        // later ones are overtaken.
        let mut skipped = vec![false; blocks.len()];
        for (block, bytes) in &self.volatile {
            let at = *block as usize;
            let keeps = match left {
                Left::Nothing => false,
                Left::All => true,
                Left::Some(_) => !skipped[at] && random.below(2) == 0,
                Left::Most(_) => random.below(8) > 0,
            };
            if keeps {
                blocks[at] = Some(Arc::clone(bytes));
            } else if matches!(left, Left::Some(_)) && random.below(2) == 0 {
                skipped[at] = true;
            }
        }
        SimDisk::of(Arc::new(blocks))
    }
}

impl Disk {
    fn begin(&mut self, effect: Effect) -> Result<()> {
        if let Some(left) = &mut self.effects_left {
            *left = left.checked_sub(1).ok_or_else(|| Error::new(Errno::EIO, "the device fails"))?;
        }
        if self.moments.is_some() {
            let (durable, volatile) = (Arc::clone(&self.durable), self.volatile.clone());
            let moment = Moment { effect: Some(effect), durable, volatile, memory: self.memory() };
            self.moments.get_or_insert_default().push(moment);
        }
        Ok(())
    }

    fn memory(&self) -> Memory {
        let copy = |memory: &SharedWords| {
            let words = memory.words();
            let len = 1 + words[0].load(Ordering::Acquire).div_ceil(8) as usize;
            words[..len].iter().map(|word| word.load(Ordering::Relaxed)).collect()
        };
        self.watched.iter().map(copy).collect()
    }
}

impl Device for SimDisk {
    fn size(&self) -> u64 {
        self.blocks * BLOCK
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let disk = self.lock();
        if offset + buf.len() as u64 > self.size() {
            return Err(Error::new(
                Errno::EIO,
                format!("{} bytes at {offset} are beyond the end", buf.len()),
            ));
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (block, within) = ((at / BLOCK) as usize, (at % BLOCK) as usize);
            let len = (BLOCK as usize - within).min(buf.len() - done);
            match &disk.now[block] {
                Some(bytes) => buf[done..done + len].copy_from_slice(&bytes[within..within + len]),
                None => buf[done..done + len].fill(GARBAGE),
            }
            done += len;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        assert!(offset.is_multiple_of(BLOCK) && bytes.len().is_multiple_of(BLOCK as usize), "not in blocks");
        let (first, count) = (offset / BLOCK, bytes.len() as u64 / BLOCK);
        assert!(first + count <= self.blocks, "beyond the end");
        let mut disk = self.lock();
        disk.at_superblock = first == 0 || first + 1 == self.blocks;
        if let Some((durable, volatile)) = disk.unflushed.take()
            && disk.at_superblock
        {
            (disk.durable, disk.volatile) = (durable, volatile);
        }
        disk.begin(Effect::Write(first, count))?;
        for (block, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            let bytes: Block = bytes.into();
            disk.now[block as usize] = Some(Arc::clone(&bytes));
            disk.volatile.push((block, bytes));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut disk = self.lock();
        disk.begin(Effect::Flush)?;
        match disk.fault {
            Some(Fault::SkipsFlushes) if !disk.at_superblock => return Ok(()),
            Some(Fault::FlushesLate) if !disk.at_superblock => {
                disk.unflushed = Some((Arc::clone(&disk.durable), disk.volatile.clone()));
            }
            _ => {}
        }
        let volatile = std::mem::take(&mut disk.volatile);
        let durable = Arc::make_mut(&mut disk.durable);
        for (block, bytes) in volatile {
            durable[block as usize] = Some(bytes);
        }
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) {}
}
