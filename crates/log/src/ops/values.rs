//! Keys and values: the files of a directory, each made and written by one record, and
//! several of them by one, too. A replaced file gets another inode, so that data of
//! the old one that the kernel has yet to write back can't reach the new one.

use crate::core::{Core, Write};
use crate::device::BLOCK;
use crate::directory::{Named, kind_bits};
use crate::extents::Run;
use crate::inode::{Inode, State};
use crate::ops::data::{INLINE_MAX, give_back, place, read_state, store};
use crate::ops::names::{Making, begin, find, touched};
use crate::ops::set_id::CAPABILITY;
use crate::record::{Change, Name};
use crate::room;
use crate::sync::RwLockWriteGuard;
use braid_contract::key_value::{PAGE_BYTES_MAX, VALUE_MAX, check_len};
use braid_contract::rights::{Guard, READ, SEARCH, WRITE};
use braid_contract::{Caller, Errno, Error, FileKind, PutWhen, Result, ScanRange, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A requested change of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a [u8],
    /// Its value; `None`: it goes.
    pub(crate) value: Option<&'a [u8]>,
}

/// Effects of a change of keys beside the log.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Whether something was changed.
    pub(crate) is_done: bool,
    /// Inodes that lost a name and that the kernel knows.
    pub(crate) lost: Vec<u64>,
}

fn guard(state: &State) -> Guard {
    Guard { uid: state.uid, gid: state.gid, mode: (state.mode & 0o7777) as u16 }
}

fn check(is_allowed: bool) -> Result<()> {
    if is_allowed { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// A name leads to a value, and to nothing else.
fn check_kind(named: &Named) -> Result<()> {
    match named.kind() {
        Some(FileKind::Regular) => Ok(()),
        Some(FileKind::Directory) => Err(Errno::EISDIR.into()),
        _ => Err(Error::new(Errno::EINVAL, "the key's name is no regular file's")),
    }
}

/// The file of a name, if the caller may search the directory.
pub(crate) fn look_up(core: &Core, caller: &Caller, dir: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>> {
    let state = dir.state.read();
    let Some(found) = find(&state, name)? else {
        check(guard(&state).lets(caller, SEARCH))?;
        return Ok(None);
    };
    check(guard(&state).lets(caller, SEARCH))?;
    check_kind(&found)?;
    core.named(found.ino).map(Some)
}

/// Reads the bytes of a file, up to `most`, in place of the contents of `value`; `false` if it is gone.
pub(crate) fn read(
    core: &Core,
    caller: &Caller,
    inode: &Inode,
    value: &mut Vec<u8>,
    most: usize,
) -> Result<bool> {
    let state = inode.state.read();
    if !state.is_live() {
        return Ok(false);
    }
    check(guard(&state).lets(caller, READ))?;
    value.resize(check_len(state.size, most)?, 0);
    read_state(core, &state, 0, value)?;
    Ok(true)
}

/// Up to `count` keys of a range.
pub(crate) fn keys(
    caller: &Caller,
    dir: &Inode,
    range: &ScanRange,
    count: usize,
) -> Result<Vec<(Vec<u8>, u64)>> {
    loop {
        let state = dir.state.read();
        state.require_dir()?;
        check(guard(&state).lets(caller, READ | SEARCH))?;
        if let Some(names) = state.names().filter(|names| names.has_keys()) {
            return Ok(names.keys(range).take(count).map(|(key, named)| (key.clone(), named.ino)).collect());
        }
        drop(state);
        // From the first scan on.
        if let crate::inode::Content::Names(names) = &mut dir.state.write().content {
            names.order_keys();
        }
    }
}

/// Whether values of this many bytes fill a page.
pub(crate) fn is_full(bytes: usize) -> bool {
    bytes >= PAGE_BYTES_MAX
}

/// A value that is where it will be, and that no record refers to yet.
struct Stored {
    changes: Vec<Change>,
    taken: Vec<Run>,
}

/// Writes values into new blocks, but for small ones, which the log has. `sum` is the
/// checksum of all blocks of a record until now.
fn store_value(core: &Core, caller: &Caller, value: &[u8], sum: &mut Option<u32>) -> Result<Stored> {
    if value.len() > VALUE_MAX {
        let text = format!("a value of {} bytes; {VALUE_MAX} are the most", value.len());
        return Err(Error::new(Errno::EFBIG, text));
    }
    if value.len() <= INLINE_MAX {
        let changes = if value.is_empty() { Vec::new() } else { vec![Change::Inline(value.to_vec())] };
        return Ok(Stored { changes, taken: Vec::new() });
    }
    let blocks = (value.len() as u64).div_ceil(BLOCK);
    let (pieces, taken) =
        room::retry_with_room(core, || place(core, caller, &State::default(), (0, blocks)))?;
    let whole;
    let bytes = if (value.len() as u64).is_multiple_of(BLOCK) {
        value
    } else {
        let mut padded = Vec::with_capacity((blocks * BLOCK) as usize);
        padded.extend_from_slice(value);
        padded.resize((blocks * BLOCK) as usize, 0);
        whole = padded;
        &whole
    };
    if let Err(error) = store(core, &pieces, bytes) {
        give_back(core, taken);
        return Err(error);
    }
    *sum = Some(crc32c::crc32c_append(sum.unwrap_or(0), bytes));
    Ok(Stored { changes: vec![Change::Map(pieces), Change::Size(value.len() as u64)], taken })
}

/// Values on their way into a record.
struct Batch<'a> {
    wanted: Vec<Wanted<'a>>,
    stored: Vec<Option<Stored>>,
    sum: Option<u32>,
}

impl<'a> Batch<'a> {
    fn store(core: &Core, caller: &Caller, wanted: Vec<Wanted<'a>>) -> Result<Self> {
        let mut batch = Self { wanted, stored: Vec::new(), sum: None };
        for at in 0..batch.wanted.len() {
            let stored = batch.wanted[at].value.map(|value| store_value(core, caller, value, &mut batch.sum));
            match stored.transpose() {
                Ok(stored) => batch.stored.push(stored),
                Err(error) => {
                    batch.give_back(core);
                    return Err(error);
                }
            }
        }
        Ok(batch)
    }

    fn give_back(self, core: &Core) {
        self.stored.into_iter().flatten().for_each(|stored| give_back(core, stored.taken));
    }
}

/// Changes keys, all of them or none. With conditions, there is one key.
pub(crate) fn change(
    core: &Core,
    caller: &Caller,
    dir: &Inode,
    wanted: Vec<Wanted<'_>>,
    (when, mode): (PutWhen, u16),
) -> Result<Changed> {
    core.journal.writable()?;
    dir.state.read().require_dir()?;
    if wanted.iter().any(|wanted| wanted.value.is_some()) {
        room::retry_with_room(core, || room::ensure_room(core))?
    } else {
        room::checkpoint_if_urgent(core)?
    };
    let mut batch = Batch::store(core, caller, last_of_each(wanted))?;
    match apply(core, caller, dir, &mut batch, (when, mode)) {
        Ok(changed) if changed.is_done => Ok(changed),
        unchanged => {
            batch.give_back(core);
            unchanged
        }
    }
}

/// Of several changes about one name, the last.
fn last_of_each(wanted: Vec<Wanted<'_>>) -> Vec<Wanted<'_>> {
    let last: BTreeMap<&[u8], usize> =
        wanted.iter().enumerate().map(|(at, wanted)| (wanted.name, at)).collect();
    if last.len() == wanted.len() {
        return wanted;
    }
    let kept = wanted.iter().enumerate().filter(|(at, wanted)| last.get(wanted.name) == Some(at));
    kept.map(|(_, wanted)| *wanted).collect()
}

/// A file that loses names, locked, and how many.
struct Victim<'a> {
    inode: &'a Inode,
    state: RwLockWriteGuard<'a, State>,
    names: u32,
}

fn apply(
    core: &Core,
    caller: &Caller,
    dir: &Inode,
    batch: &mut Batch<'_>,
    (when, mode): (PutWhen, u16),
) -> Result<Changed> {
    let mut dir_state = dir.state.write();
    let names: Vec<Option<Named>> =
        batch.wanted.iter().map(|wanted| find(&dir_state, wanted.name)).collect::<Result<_>>()?;
    let is_met = match when {
        PutWhen::Always => true,
        PutWhen::Absent => names.iter().all(Option::is_none),
        PutWhen::Present => names.iter().all(Option::is_some),
    };
    let of_dir = guard(&dir_state);
    check(of_dir.lets(caller, if is_met { WRITE | SEARCH } else { SEARCH }))?;
    let is_needed =
        batch.wanted.iter().zip(&names).any(|(wanted, found)| wanted.value.is_some() || found.is_some());
    if !is_met || !is_needed {
        return Ok(Changed::default());
    }
    // In the order of their numbers, as renames lock files.
    let mut counts: BTreeMap<u64, (Arc<Inode>, u32)> = BTreeMap::new();
    for named in names.iter().flatten() {
        check_kind(named)?;
        counts.entry(named.ino).or_insert((core.named(named.ino)?, 0)).1 += 1;
    }
    let mut victims: BTreeMap<u64, Victim<'_>> = BTreeMap::new();
    for (ino, (inode, names)) in &counts {
        victims.insert(*ino, Victim { inode, state: inode.state.write(), names: *names });
    }
    for (wanted, named) in batch.wanted.iter().zip(&names) {
        let Some(victim) = named.as_ref().and_then(|named| victims.get(&named.ino)) else { continue };
        let of_file = guard(&victim.state);
        check(of_dir.lets_remove(caller, &of_file))?;
        check(wanted.value.is_none() || of_file.lets(caller, WRITE))?;
    }
    record(core, caller, (dir, &mut dir_state), (batch, names), victims, mode)
}

/// Records the changes of a directory, of new files, and of those that lose a name.
fn record(
    core: &Core,
    caller: &Caller,
    (dir, dir_state): (&Inode, &mut State),
    (batch, names): (&mut Batch<'_>, Vec<Option<Named>>),
    mut victims: BTreeMap<u64, Victim<'_>>,
    mode: u16,
) -> Result<Changed> {
    let now = core.now();
    let (mut changes, mut begun) = (Vec::new(), Vec::new());
    for ((wanted, stored), named) in batch.wanted.iter().zip(&batch.stored).zip(&names) {
        let Some(stored) = stored else {
            changes.extend(named.as_ref().map(|named| Change::Leave(Arc::clone(&named.name))));
            continue;
        };
        let inode = core.new_inode();
        let victim = named.as_ref().and_then(|named| victims.get(&named.ino));
        let mut first =
            begin_value(core, caller, (dir.ino, dir_state), victim.map(|victim| &*victim.state), mode);
        first.extend(stored.changes.iter().cloned());
        changes.push(Change::Enter(Name::from(wanted.name), inode.ino, kind_bits(FileKind::Regular.mode())));
        begun.push((inode, first));
    }
    changes.extend(touched(now));
    if let Some(((_, last), sum)) = begun.last_mut().zip(batch.sum) {
        // The one of the record: of all its blocks, in order.
        last.push(Change::Sum(sum));
    }
    let inodes: Vec<Arc<Inode>> = begun.iter().map(|(inode, _)| Arc::clone(inode)).collect();
    let mut states: Vec<_> = inodes.iter().map(|inode| inode.state.write()).collect();
    // Checkpoints find an inode in the table, or its record behind them.
    inodes.iter().for_each(|inode| core.table.insert(inode.ino, Arc::clone(inode)));
    let mut writes = vec![Write { ino: dir.ino, state: dir_state, changes }];
    for ((inode, changes), state) in begun.into_iter().zip(&mut states) {
        writes.push(Write { ino: inode.ino, state, changes });
    }
    for (ino, victim) in &mut victims {
        let changes = loses(victim, now);
        writes.push(Write { ino: *ino, state: &mut victim.state, changes });
    }
    core.record(core.worker(caller), writes).inspect_err(|_| {
        inodes.iter().for_each(|inode| drop(core.table.remove(inode.ino)));
    })?;
    let is_known = |victim: &&Victim<'_>| victim.inode.is_known();
    let lost = victims.values().filter(is_known).map(|victim| victim.inode.ino).collect();
    for victim in victims.values() {
        // If the kernel knows it from an earlier process, it looks it up anew when it is told.
        victim.inode.may_be_known.store(false, Ordering::Release);
        core.drop_unused(victim.inode, &victim.state);
    }
    Ok(Changed { is_done: true, lost })
}

/// How the file of a value begins: as that which it replaces, or as a new one.
fn begin_value(
    core: &Core,
    caller: &Caller,
    dir: (u64, &State),
    replaced: Option<&State>,
    mode: u16,
) -> Vec<Change> {
    let permissions = replaced.map_or(u32::from(mode), |state| state.mode) & 0o777;
    let making = Making { mode: FileKind::Regular.mode() | permissions, ..Making::default() };
    let mut first = begin(core, caller, dir, &making);
    if let Some(state) = replaced {
        (first.uid, first.gid) = (state.uid, state.gid);
    }
    let mut changes = vec![Change::Begin(Box::new(first))];
    let xattrs = replaced.into_iter().flat_map(|state| &state.xattrs).filter(|(name, _)| *name != CAPABILITY);
    changes.extend(xattrs.map(|(name, value)| Change::SetXattr(name.clone(), value.clone())));
    changes
}

/// The changes by which a file loses names; it stays as long as it is open.
fn loses(victim: &Victim<'_>, now: Timestamp) -> Vec<Change> {
    match victim.state.nlink.saturating_sub(victim.names) {
        0 if !victim.inode.is_open() => vec![Change::End],
        left => vec![Change::Links(left), Change::Changed(now)],
    }
}
