//! Room that is kept for what is to be written, beside a model of the blocks.

use super::model::{id, write};
use super::{SHAPE, check_space, io, new_store, open};
use braid_contract::{SplitMix, Store};
use braid_stores::zoned::ZonedStore;
use braid_testkit::sim::{AllLost, SimZones};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const BLOCK: u64 = 4096;
/// What is written and cut at a time, at least.
const CELL: u64 = 1024;
const CELLS: u64 = 40 * BLOCK / CELL;
const OBJECTS: u8 = 3;
/// Takes all the room that there is.
const FILLER: u8 = 99;

/// The cells of an object that have data, and its blocks that are reserved.
#[derive(Clone, Default)]
struct Blocks {
    data: BTreeSet<u64>,
    reserved: BTreeSet<u64>,
}

impl Blocks {
    fn block_of(cell: u64) -> u64 {
        cell * CELL / BLOCK
    }

    fn has_data(&self, block: u64) -> bool {
        self.data.range(block * BLOCK / CELL..(block + 1) * BLOCK / CELL).next().is_some()
    }

    fn allocate(&mut self, cells: Range<u64>) {
        let blocks = cells.map(Self::block_of).filter(|block| !self.has_data(*block)).collect::<Vec<_>>();
        self.reserved.extend(blocks);
    }

    /// What is written is durable then, and needs no room any more.
    fn write(&mut self, cells: Range<u64>) {
        cells.for_each(|cell| {
            self.data.insert(cell);
            self.reserved.remove(&Self::block_of(cell));
        });
    }

    /// Blocks that are cut only in part stay reserved.
    fn cut(&mut self, cells: Range<u64>) {
        self.data.retain(|cell| !cells.contains(cell));
        let per_block = BLOCK / CELL;
        self.reserved.retain(|block| cells.start > block * per_block || cells.end < (block + 1) * per_block);
    }

    fn allocated(&self) -> u64 {
        let blocks: BTreeSet<u64> = self.data.iter().map(|cell| Self::block_of(*cell)).collect();
        blocks.union(&self.reserved).count() as u64 * BLOCK
    }
}

fn allocated(store: &ZonedStore) -> Vec<u64> {
    (0..OBJECTS).map(|number| store.stat(id(number)).unwrap().allocated).collect()
}

/// Writes cells of which none is written.
fn put(store: &ZonedStore, number: u8, cells: &Range<u64>, random: &mut SplitMix) {
    let data = vec![number + 1; ((cells.end - cells.start) * CELL) as usize];
    let done = write(store, number, (cells.start * CELL) as usize, &data, io(random.below(3)));
    assert_eq!(done, Ok(data.len()), "object {number}, cells {cells:?}");
}

/// One operation. What is written is synced at once, if the model is to be exact.
fn step(store: &ZonedStore, objects: &mut [Blocks], random: &mut SplitMix, is_exact: bool) {
    let number = random.below(OBJECTS.into()) as u8;
    let object = &mut objects[usize::from(number)];
    let start = random.below(CELLS);
    let mut cells = start..start + 1 + random.below((CELLS - start).min(40));
    if random.below(2) == 0 {
        let unit = BLOCK / CELL;
        cells = cells.start / unit * unit..cells.end.next_multiple_of(unit);
    }
    let (offset, len) = (cells.start * CELL, (cells.end - cells.start) * CELL);
    match random.below(8) {
        0 | 1 => {
            store.allocate(id(number), offset, len, random.below(2) == 0).unwrap();
            object.allocate(cells);
        }
        2 => {
            store.punch(id(number), offset, len).unwrap();
            object.cut(cells);
        }
        3 => {
            store.truncate(id(number), offset).unwrap();
            object.cut(cells.start..CELLS);
        }
        4 => store.sync(&[id(number)], true).unwrap(),
        _ => {
            let free = cells.clone().take_while(|cell| !object.data.contains(cell)).count() as u64;
            if free > 0 {
                let cells = cells.start..cells.start + free;
                put(store, number, &cells, random);
                object.write(cells);
                if is_exact {
                    store.sync(&[id(number)], true).unwrap();
                }
            }
        }
    }
}

/// Everything else is full: the blocks that are reserved, and have no data, are
/// written.
fn write_reserved(store: &ZonedStore, objects: &mut [Blocks], random: &mut SplitMix) {
    store.create(id(FILLER)).unwrap();
    store.allocate(id(FILLER), 0, store.usage().unwrap().available, true).unwrap();
    for (number, object) in (0..OBJECTS).zip(objects) {
        for block in object.reserved.clone() {
            if random.below(2) == 0 {
                continue;
            }
            let cells = block * BLOCK / CELL..(block + 1) * BLOCK / CELL;
            put(store, number, &cells, random);
            object.write(cells);
        }
    }
    store.sync_all().unwrap();
    store.remove(&[id(FILLER)]).unwrap();
}

fn agree(seed: u64, is_exact: bool) {
    let mut random = SplitMix::new(seed);
    let (mut device, mut store) = new_store(SimZones { zones: 12, ..SHAPE });
    let mut objects = vec![Blocks::default(); usize::from(OBJECTS)];
    (0..OBJECTS).for_each(|number| store.create(id(number)).unwrap());
    for _ in 0..8 {
        for _ in 0..1 + random.below(20) {
            step(&store, &mut objects, &mut random, is_exact);
            if is_exact {
                let wanted: Vec<u64> = objects.iter().map(Blocks::allocated).collect();
                assert_eq!(allocated(&store), wanted, "seed {seed}");
                check_space(&store);
            }
        }
        if is_exact && random.below(2) == 0 {
            write_reserved(&store, &mut objects, &mut random);
        }
        store.sync_all().unwrap();
        let before = (allocated(&store), store.usage().unwrap());
        drop(store);
        device = Arc::new(device.after_power_loss(&mut AllLost));
        store = open(&device);
        assert_eq!((allocated(&store), store.usage().unwrap()), before, "seed {seed}");
        check_space(&store);
        // They also agree where the index is written anew.
        if random.below(4) == 0 {
            (0..40).for_each(|_| store.set_label(super::LABEL).unwrap());
        }
    }
}

#[test]
fn room_that_is_kept_is_what_a_model_of_the_blocks_says() {
    (0..150).for_each(|seed| agree(seed, true));
}

#[test]
fn room_that_is_kept_is_the_same_after_the_store_is_opened_anew() {
    (0..150).for_each(|seed| agree(seed, false));
}
