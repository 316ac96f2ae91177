//! Making a file system on a device, and opening it.

use crate::account::mark_superblocks;
use crate::actor::Actor;
use crate::after_crash::CrashedLog;
use crate::checkpoint::{Image, write_image, write_superblock};
use crate::core::{Anchor, Core, RECOVERY_GROUPS, Start, groups_of_image};
use crate::device::{BLOCK, Device};
use crate::extents::Run;
use crate::handover::LiveLog;
use crate::inode::Inode;
use crate::journal::Journal;
use crate::layout::{SIZE_MIN, Superblock, WORKERS_MAX};
use crate::load::{Left, Loaded, load};
use crate::record::{Begin, Change};
use crate::settings::Settings;
use crate::space::Space;
use crate::table::Table;
use crate::writer::{Chain, Medium, group};
use braid_contract::{Environment, Errno, Error, Result, Timestamp};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of the root directory.
const ROOT: u64 = 1;

/// Numbers of segments that are left out when logs begin anew, at least.
const SEGMENTS_SKIPPED: u64 = 1 << 20;

/// The owner of the root directory of a new file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Makes an empty file system on a device, whatever was there.
///
/// # Errors
/// `EINVAL` if the device is too small, those of the device.
pub fn format(device: &Arc<dyn Device>, owner: Owner, environment: &dyn Environment) -> Result<()> {
    let size = device.size();
    if size < SIZE_MIN {
        let text = format!("{size} bytes are too few for a log file system: it needs {SIZE_MIN}");
        return Err(Error::new(Errno::EINVAL, text));
    }
    device.discard(0, size / BLOCK * BLOCK);
    let (mut uuid, now) = ([0; 16], environment.wall_ns());
    environment.fill_random(&mut uuid)?;
    let blank = Superblock {
        uuid,
        blocks: size / BLOCK,
        generation: 0,
        made_ns: now,
        is_clean: true,
        written_ns: now,
        first_record: 2,
        next_ino: ROOT + 1,
        next_segment: 1,
        image: Default::default(),
        image_records: 0,
        logs: Vec::new(),
    };
    let table = Table::default();
    table.insert(ROOT, root(owner, Timestamp::from_nanos(now)));
    let medium = medium(device, &blank, 1, blank.next_segment);
    mark_superblocks(blank.blocks, &medium.space);
    anew(&blank, &table, &medium, 1, true).map(drop)
}

fn root(owner: Owner, time: Timestamp) -> Arc<Inode> {
    let root = Inode::new(ROOT);
    let begin = Begin {
        mode: 0o040_755,
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        nlink: 2,
        parent: ROOT,
        generation: 0,
        time,
        actor: Arc::new(Actor::default()),
    };
    root.state.write().apply(1, vec![Change::Begin(Box::new(begin))], &mut Vec::new());
    Arc::new(root)
}

pub(crate) fn medium(device: &Arc<dyn Device>, of: &Superblock, workers: usize, next_segment: u64) -> Medium {
    Medium {
        device: Arc::clone(device),
        space: Arc::new(Space::new(of.blocks, workers)),
        salt: of.salt(),
        next_segment: AtomicU64::new(next_segment),
    }
}

/// Begins logs, writes an image of all inodes, and switches to them.
///
/// # Errors
/// `ENOSPC` without room for them, those of the device.
pub(crate) fn anew(
    before: &Superblock,
    table: &Table,
    medium: &Medium,
    workers: usize,
    is_clean: bool,
) -> Result<(Superblock, Image, Vec<Chain>)> {
    let chains: Vec<Chain> =
        (0..workers).map(|worker| Chain::begin(worker, medium)).collect::<Result<_>>()?;
    let image = write_image(table, medium)?;
    medium.device.flush()?;
    let superblock = Superblock {
        generation: before.generation + 1,
        is_clean,
        next_segment: medium.next_segment.load(std::sync::atomic::Ordering::Relaxed),
        image: image.at,
        image_records: image.records,
        logs: chains.iter().map(Chain::at).collect(),
        ..before.clone()
    };
    write_superblock(&*medium.device, &superblock)?;
    Ok((superblock, image, chains))
}

/// What is known of the process that had a file system in use before.
pub(crate) enum Before {
    /// Nothing: it was closed, or whatever used it is gone.
    Unknown,
    /// It gave it away.
    Gave(LiveLog),
    /// It crashed.
    Crashed(CrashedLog),
}

impl Before {
    /// The part that counts when the device is read.
    fn left(&mut self) -> Left {
        match self {
            Self::Unknown => Left::default(),
            Self::Gave(live) => Left { open: live.open(), tails: None },
            Self::Crashed(crashed) => crashed.left(),
        }
    }

    /// Refuses a device that is not as the process left it.
    fn is_of(&self, loaded: &Loaded) -> Result<()> {
        if let Self::Gave(live) = self { live.is_of(loaded) } else { Ok(()) }
    }

    fn restore(self, core: &Core) -> Result<()> {
        match self {
            Self::Unknown => {}
            Self::Gave(live) => live.restore(core)?,
            Self::Crashed(crashed) => crashed.restore(core),
        }
        Ok(())
    }
}

/// Opens the file system on a device: reads it, and recovers after a crash, or goes on from the
/// state of the process before.
///
/// # Errors
/// `EINVAL` if there is none, `EUCLEAN` if it is damaged, `ESTALE` if it is not as that process
/// left it, those of the device.
pub(crate) fn open(
    device: &Arc<dyn Device>,
    settings: Settings,
    environment: Arc<dyn Environment>,
    mut process: Before,
) -> Result<Core> {
    let workers = settings.workers;
    if !(1..=WORKERS_MAX).contains(&workers) {
        let text = format!("{workers} workers; there can be 1 to {WORKERS_MAX}");
        return Err(Error::new(Errno::EINVAL, text));
    }
    // Writes of a killed process are to be durable before they count.
    device.flush()?;
    let loaded = load(&**device, process.left())?;
    process.is_of(&loaded)?;
    let goes_on = loaded.superblock.is_clean && loaded.superblock.logs.len() == workers;
    let next_segment = if goes_on { loaded.next_segment } else { skip(loaded.next_segment, &*environment)? };
    let medium = medium(device, &loaded.superblock, workers, next_segment);
    let doubled = loaded.mark_blocks(&medium.space);
    if let Some((run, what)) = doubled.first() {
        let text = format!(
            "{} of blocks {} to {} of {what} belong to something else, too, or do not exist",
            doubled.len(),
            run.start,
            run.end() - 1
        );
        return Err(Error::new(Errno::EUCLEAN, text));
    }
    let before = Superblock {
        first_record: loaded.last_record + 1,
        next_ino: loaded.next_ino,
        written_ns: environment.wall_ns(),
        ..loaded.superblock.clone()
    };
    let (superblock, image, chains) = if goes_on {
        resume(&before, &loaded, device)?
    } else {
        recover(&before, &loaded, &medium, workers)?
    };
    let first_record = superblock.first_record;
    let anchor = Anchor { superblock, image, stale: Vec::new() };
    let journal = Journal::new(medium, chains, first_record);
    let next_ino = before.next_ino;
    let core = Core::new(Start { journal, table: loaded.table, settings, environment, anchor, next_ino });
    process.restore(&core)?;
    Ok(core)
}

/// A number for the next segment that none has. Segments that a crash cut off, also of
/// an earlier attempt to recover, may have any of the next numbers, and still be there.
pub(crate) fn skip(next: u64, environment: &dyn Environment) -> Result<u64> {
    let mut random = [0; 4];
    environment.fill_random(&mut random)?;
    Ok(next + SEGMENTS_SKIPPED + (u64::from(u32::from_le_bytes(random)) << 4))
}

type Begun = (Superblock, Vec<u64>, Vec<Chain>);

/// Goes on where a file system was closed.
fn resume(before: &Superblock, loaded: &Loaded, device: &Arc<dyn Device>) -> Result<Begun> {
    let superblock = Superblock { generation: before.generation + 1, is_clean: false, ..before.clone() };
    write_superblock(&**device, &superblock)?;
    let logs = superblock.logs.iter().zip(&loaded.nexts).enumerate();
    let chains = logs.map(|(worker, (at, next))| Chain::resumed(worker, *at, *next)).collect();
    Ok((superblock, loaded.image.clone(), chains))
}

/// Makes a checkpoint of the recovered state, so that nothing depends on the old one
/// any more.
fn recover(before: &Superblock, loaded: &Loaded, medium: &Medium, workers: usize) -> Result<Begun> {
    // As long as the old logs count, their data has to stay.
    let held: Vec<Run> = loaded.held.iter().flat_map(|run| medium.space.free_within(*run)).collect();
    for run in &held {
        medium.space.mark(*run);
    }
    // On a full device there may be room for the logs of fewer workers: two segments each
    // now, and one at the next checkpoint, beside this image and that one's.
    let image_bytes = loaded.table.iter().map(|inode| inode.state.read().weight()).sum();
    let spare = medium.space.free_groups() - 2 * groups_of_image(image_bytes) - RECOVERY_GROUPS;
    let workers = workers.min(usize::try_from(spare / 3).unwrap_or(1)).max(1);
    let (superblock, image, chains) = anew(before, &loaded.table, medium, workers, false)?;
    let groups = loaded.image.iter().chain(&loaded.logs).map(|left| group(*left));
    groups.chain(held).for_each(|run| medium.space.free(run));
    Ok((superblock, image.groups, chains))
}
