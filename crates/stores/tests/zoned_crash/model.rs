//! What a store has to have, now and after power loss: of each cell of an object the
//! writes that it may be of, and which objects may be there.
//!
//! A cell says of which object, place and write it is, so that what is found is never
//! taken for something else.

use braid_contract::{Errno, ObjectId, Store, StoreIo};
use std::collections::BTreeSet;
use std::io::IoSliceMut;

/// Bytes of a cell: the unit of all offsets and lengths.
pub(crate) const CELL: u64 = 32;

/// The number of a write; 0 is none: zeros.
pub(crate) type Write = u32;

/// An object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    /// The writes that its cells are of.
    cells: Vec<Write>,
    /// What cells were before, since the last sync: the first one, and the others.
    older: Vec<(usize, Vec<Write>)>,
    /// In cells.
    pub(crate) size: usize,
    /// Least and most that it was since the last sync.
    sizes: [usize; 2],
    pub(crate) exists: bool,
    /// Whether it may be there, and may be missing, after power loss.
    may: [bool; 2],
    /// The first write of each object that had this id.
    born: Vec<Write>,
    /// Blocks for which room is kept, and those for which it is so for certain.
    room: BTreeSet<u64>,
    sure_room: BTreeSet<u64>,
}

/// What was found of an object: its cells.
pub(crate) type Found = Option<Vec<Write>>;

/// All objects of a store, by their number, and its label.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) objects: Vec<Object>,
    pub(crate) label: Option<u8>,
    /// What the label was since one was last acknowledged.
    labels: Vec<Option<u8>>,
    block: u64,
    /// The number of the next write.
    pub(crate) next: Write,
}

pub(crate) fn id(number: usize) -> ObjectId {
    ObjectId([number as u8 + 1; 16])
}

fn stamp(number: usize, cell: usize, write: Write) -> u64 {
    (number as u64 + 1) << 56 | (cell as u64) << 32 | u64::from(write)
}

/// The bytes of cells from `first` on.
pub(crate) fn bytes_of(number: usize, first: usize, writes: &[Write]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(writes.len() * CELL as usize);
    for (cell, write) in (first..).zip(writes) {
        let stamp = if *write == 0 { 0 } else { stamp(number, cell, *write) };
        (0..CELL / 8).for_each(|_| bytes.extend_from_slice(&stamp.to_le_bytes()));
    }
    bytes
}

/// The writes that cells are of.
fn parse(number: usize, bytes: &[u8]) -> Result<Vec<Write>, String> {
    if !(bytes.len() as u64).is_multiple_of(CELL) {
        return Err(format!("object {number} has {} bytes", bytes.len()));
    }
    let parse = |(cell, bytes): (usize, &[u8])| {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let first = word(0);
        if (1..CELL as usize / 8).any(|at| word(at) != first) {
            return Err(format!(
                "object {number}, cell {cell}, is part one thing and part another: {bytes:?}"
            ));
        }
        let write = first as Write;
        if first != 0 && (write == 0 || first != stamp(number, cell, write)) {
            let (of, at) = ((first >> 56) as i64 - 1, first >> 32 & 0xff_ffff);
            return Err(format!("object {number}, cell {cell}, is of object {of}, cell {at}, write {write}"));
        }
        Ok(write)
    };
    bytes.chunks_exact(CELL as usize).enumerate().map(parse).collect()
}

/// What the store has of an object, to its end, which is data where it says so.
fn read(store: &dyn Store, number: usize) -> Result<Found, String> {
    let size = match store.stat(id(number)) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
        stat => stat.map_err(|error| format!("stat of object {number}: {error}"))?.size,
    };
    let mut bytes = vec![0; size as usize];
    let done = store
        .read_at(id(number), 0, &mut [IoSliceMut::new(&mut bytes)], StoreIo::default())
        .map_err(|error| format!("read of object {number}: {error}"))?;
    if done != bytes.len() {
        return Err(format!("read of object {number}: {done} of {size} bytes"));
    }
    let cells = parse(number, &bytes)?;
    let mut at = 0;
    while let Some((start, end)) =
        store.next_data(id(number), at as u64 * CELL).map_err(|error| format!("object {number}: {error}"))?
    {
        let stretch = (start / CELL) as usize..end.div_ceil(CELL) as usize;
        let wrong = match cells.get(stretch.clone()) {
            None => Some(stretch.end),
            Some(data) => (at..stretch.start)
                .find(|cell| cells[*cell] != 0)
                .or_else(|| data.iter().position(|cell| *cell == 0).map(|cell| cell + stretch.start)),
        };
        if let Some(cell) = wrong {
            return Err(format!("object {number}, cell {cell}: data is at {start}..{end}, it says"));
        }
        at = stretch.end;
    }
    match cells.iter().skip(at).position(|cell| *cell != 0) {
        Some(cell) => Err(format!("object {number}, cell {}: it says that no data is there", at + cell)),
        None => Ok(Some(cells)),
    }
}

impl Object {
    fn at(&self, cell: usize) -> Write {
        self.cells.get(cell).copied().unwrap_or(0)
    }

    /// Cells are of these writes now.
    fn set(&mut self, first: usize, writes: impl ExactSizeIterator<Item = Write>) {
        let end = first + writes.len();
        if self.cells.len() < end {
            self.cells.resize(end, 0);
        }
        let older = self.cells[first..end].to_vec();
        self.cells[first..end].iter_mut().zip(writes).for_each(|(cell, write)| *cell = write);
        self.older.push((first, older));
    }

    fn resize(&mut self, size: usize) {
        self.size = size;
        self.sizes = [self.sizes[0].min(size), self.sizes[1].max(size)];
    }

    fn cut(&mut self, first: usize, end: usize, block: u64) {
        let blocks = first as u64 * CELL / block..(end as u64).saturating_mul(CELL).div_ceil(block);
        let end = end.min(self.cells.len());
        if first < end {
            self.set(first, vec![0; end - first].into_iter());
        }
        for room in [&mut self.room, &mut self.sure_room] {
            room.retain(|at| !blocks.contains(at));
        }
    }

    /// It is durable as it is.
    fn is_synced(&mut self) {
        self.older.clear();
        self.sizes = [self.size; 2];
        self.may = [self.exists, !self.exists];
        self.sure_room = self.room.clone();
    }

    /// Why cells can't be what is left after power loss.
    fn refuses(&self, found: &[Write]) -> Option<String> {
        let [least, most] = self.sizes;
        if !(least..=most).contains(&found.len()) {
            return Some(format!("its size is {} cells, not {least} to {most}", found.len()));
        }
        let mut object = None;
        for (cell, write) in found.iter().enumerate() {
            let of = self.born.partition_point(|born| born <= write);
            let is_older = |(first, older): &(usize, Vec<Write>)| {
                (*first..*first + older.len()).contains(&cell) && older[cell - first] == *write
            };
            if *write != self.at(cell) && !self.older.iter().any(is_older) {
                return Some(format!("cell {cell} is of write {write}, not {}", self.describe(cell)));
            }
            if *write != 0 && object.replace(of).is_some_and(|before| before != of) {
                return Some(format!("cell {cell} is of another object of this id: write {write}"));
            }
        }
        let missing =
            (found.len()..self.cells.len()).find(|cell| self.at(*cell) != 0 && !self.may_be_nothing(*cell));
        missing.map(|cell| format!("cell {cell} is missing: {}", self.describe(cell)))
    }

    fn may_be_nothing(&self, cell: usize) -> bool {
        self.older
            .iter()
            .any(|(first, older)| (*first..*first + older.len()).contains(&cell) && older[cell - first] == 0)
    }

    fn describe(&self, cell: usize) -> String {
        let of_cell = |(first, older): &(usize, Vec<Write>)| {
            (*first..*first + older.len()).contains(&cell).then(|| older[cell - first])
        };
        let older: Vec<Write> = self.older.iter().filter_map(of_cell).collect();
        format!("{}, nor one of {older:?}", self.at(cell))
    }
}

impl Model {
    pub(crate) fn new(objects: usize, block: u64) -> Self {
        let objects = vec![Object { may: [false, true], ..Object::default() }; objects];
        Self { objects, label: None, labels: Vec::new(), block, next: 1 }
    }

    pub(crate) fn created(&mut self, number: usize) {
        let object = &mut self.objects[number];
        if !object.exists {
            object.exists = true;
            object.may = [true, true];
            object.born.push(self.next);
        }
    }

    /// The writes that cells are to be of, and whether none was written before: with
    /// `again`, those that were are written as they are.
    pub(crate) fn next_write(
        &mut self,
        number: usize,
        first: usize,
        count: usize,
        again: bool,
    ) -> (Vec<Write>, bool) {
        let object = &self.objects[number];
        let write = self.next;
        self.next += 1;
        let is_new = (first..first + count).all(|cell| object.at(cell) == 0);
        let cells = (first..first + count).map(|cell| match object.at(cell) {
            there if again && there != 0 => there,
            _ => write,
        });
        (cells.collect(), is_new || again)
    }

    pub(crate) fn wrote(&mut self, number: usize, first: usize, writes: &[Write]) {
        let object = &mut self.objects[number];
        object.set(first, writes.iter().copied());
        object.resize(object.size.max(first + writes.len()));
    }

    pub(crate) fn resized(&mut self, number: usize, size: usize) {
        let object = &mut self.objects[number];
        object.cut(size, usize::MAX, self.block);
        object.resize(size);
    }

    pub(crate) fn punched(&mut self, number: usize, first: usize, count: usize) {
        self.objects[number].cut(first, first + count, self.block);
    }

    pub(crate) fn reserved(&mut self, number: usize, first: usize, count: usize) {
        let blocks = first as u64 * CELL / self.block..((first + count) as u64 * CELL).div_ceil(self.block);
        self.objects[number].room.extend(blocks);
    }

    pub(crate) fn grew(&mut self, number: usize, size: usize) {
        let object = &mut self.objects[number];
        object.resize(size.max(object.size));
    }

    pub(crate) fn removed(&mut self, number: usize) {
        let object = &mut self.objects[number];
        object.cut(0, usize::MAX, self.block);
        object.room.clear();
        object.sure_room.clear();
        object.resize(0);
        object.exists = false;
        object.may[1] = true;
    }

    pub(crate) fn synced(&mut self, number: usize) {
        self.objects[number].is_synced();
    }

    pub(crate) fn all_synced(&mut self) {
        self.objects.iter_mut().for_each(Object::is_synced);
    }

    pub(crate) fn labelling(&mut self, label: Option<u8>) {
        self.labels.push(std::mem::replace(&mut self.label, label));
    }

    pub(crate) fn labelled(&mut self) {
        self.labels.clear();
    }

    /// It was not labelled, though it may turn out to be.
    pub(crate) fn not_labelled(&mut self) {
        let before = self.labels.last().copied().flatten();
        self.labelling(before);
    }

    fn label_of(store: &dyn Store) -> Result<Option<u8>, String> {
        let label = store.label().map_err(|error| format!("its label: {error}"))?;
        match label.as_deref() {
            None => Ok(None),
            Some([label, rest @ ..]) if rest.len() == usize::from(*label) => Ok(Some(*label)),
            Some(label) => Err(format!("its label is {label:?}")),
        }
    }

    /// What a label says.
    pub(crate) fn label_bytes(label: u8) -> Vec<u8> {
        vec![label; usize::from(label) + 1]
    }

    /// All that a store has.
    fn find(&self, store: &dyn Store) -> Result<Vec<Found>, String> {
        let mut strange = None;
        let known = |found| (0..self.objects.len()).any(|number| id(number) == found);
        store
            .list(&mut |found| strange = strange.or((!known(found)).then_some(found)))
            .map_err(|error| format!("list: {error}"))?;
        if let Some(strange) = strange {
            return Err(format!("there is an object {strange:?}"));
        }
        (0..self.objects.len()).map(|number| read(store, number)).collect()
    }

    /// The store is as it says.
    pub(crate) fn compare(&self, store: &dyn Store) -> Result<(), String> {
        if Self::label_of(store)? != self.label {
            return Err(format!("its label is not {:?}", self.label));
        }
        for (number, (found, object)) in self.find(store)?.iter().zip(&self.objects).enumerate() {
            if found.is_some() != object.exists {
                return Err(format!("object {number} is there: {}", found.is_some()));
            }
            let found = found.as_deref().unwrap_or_default();
            if found.len() != object.size {
                return Err(format!("object {number} has {} cells, not {}", found.len(), object.size));
            }
            if let Some(cell) = (0..found.len()).find(|cell| found[*cell] != object.at(*cell)) {
                let (is, wanted) = (found[cell], object.at(cell));
                return Err(format!("object {number}, cell {cell}, is of write {is}, not {wanted}"));
            }
        }
        self.check_space(store, false)
    }

    /// The store has what it must after power loss, or after its process ended; it is
    /// taken as it is from now on. What was not durable is so then if the power was
    /// lost.
    pub(crate) fn recover(&mut self, store: &dyn Store, is_durable: bool) -> Result<(), String> {
        let label = Self::label_of(store)?;
        if label != self.label && !self.labels.contains(&label) {
            return Err(format!(
                "its label is {label:?}, not {:?}, nor one of {:?}",
                self.label, self.labels
            ));
        }
        let all = self.find(store)?;
        self.label = label;
        for (number, (found, object)) in all.into_iter().zip(&mut self.objects).enumerate() {
            if !object.may[usize::from(found.is_none())] {
                return Err(format!("object {number} is there: {}", found.is_some()));
            }
            object.exists = found.is_some();
            if let Some(why) = found.as_deref().and_then(|found| object.refuses(found)) {
                return Err(format!("object {number}: {why}"));
            }
            let found = found.unwrap_or_default();
            // It is the one that was made before it was removed, if that was undone.
            if let Some(write) = found.iter().find(|write| **write != 0) {
                object.born.retain(|born| born <= write);
            }
            let count = object.cells.len();
            object.size = found.len();
            object.set(
                0,
                found.into_iter().chain(std::iter::repeat(0)).take(count).collect::<Vec<_>>().into_iter(),
            );
            if !object.exists {
                object.room.clear();
                object.sure_room.clear();
            }
            object.room = object.sure_room.clone();
            if is_durable {
                object.is_synced();
                let size = object.size;
                object.cells.truncate(size);
            }
        }
        if is_durable {
            self.labels.clear();
        }
        self.check_space(store, is_durable)
    }

    /// What is counted of space is what objects have, and all that they must have.
    /// Until it is written, a block that was written in part counts twice.
    fn check_space(&self, store: &dyn Store, is_written: bool) -> Result<(), String> {
        let mut all = 0;
        for (number, object) in self.objects.iter().enumerate().filter(|(_, object)| object.exists) {
            let allocated = store.stat(id(number)).map_err(|error| error.to_string())?.allocated;
            let data = (0..object.cells.len()).filter(|cell| object.cells[*cell] != 0);
            let mut blocks: BTreeSet<u64> = data.map(|cell| cell as u64 * CELL / self.block).collect();
            blocks.extend(&object.sure_room);
            if allocated < blocks.len() as u64 * self.block {
                return Err(format!("object {number} has {allocated} bytes, not {} blocks", blocks.len()));
            }
            all += allocated;
        }
        let usage = store.usage().map_err(|error| error.to_string())?;
        let used = usage.total - usage.available;
        let is_full = usage.available == 0 && all > usage.total;
        let may_be = used == all || (!is_written && used > all) || is_full;
        if !may_be {
            return Err(format!("{used} bytes are said to be used, objects have {all}"));
        }
        Ok(())
    }
}
